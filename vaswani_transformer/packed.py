"""Reads a packed model: the folder that ``vaswani pack`` makes, without fairseq.

config.json         the model's sizes, how text is prepared, how to decode, where it comes from
model.safetensors   the parameters; a matrix that is shared is stored once
dict.LANG.txt       the vocabularies
SHA256SUMS          a hash of every file
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from .config import TransformerConfig
from .sums import SUMS, check_file, read_sums
from .vocabulary import Vocabulary

CONFIG, WEIGHTS = "config.json", "model.safetensors"
#: what config.json begins with
FORMAT, VERSION = "vaswani-transformer", 1
#: the matrices of source, target and output, which may be one (3.4)
MATRICES = (
    "encoder.embedding.tokens.weight",
    "decoder.embedding.tokens.weight",
    "decoder.output_projection.weight",
)


def check_sums(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError for a file that is not as ``SHA256SUMS`` says; OSError if one is missing."""
    sums = read_sums(folder / SUMS)
    for name in names:
        check_file(folder / name, sums.get(name), "pack the model again")


def read_table(folder: Path) -> dict[str, Any]:
    """What config.json says.

    Raises:
        ValueError: it is missing, was not written by ``vaswani pack``, or by another version of it.
    """
    try:
        table = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        table = None
    version = table.get("format_version") if isinstance(table, dict) else None
    if type(version) is not int or table.get("format") != FORMAT:
        raise ValueError(f"{folder / CONFIG} is missing, damaged, or not written by 'vaswani pack'")
    if version != VERSION:
        advice = "get a newer one" if version > VERSION else "pack the model again"
        raise ValueError(
            f"{folder} is of format version {version}, but this vaswani-transformer reads version "
            f"{VERSION}: {advice}"
        )
    return table


def shared_matrices(architecture: Mapping[str, Any]) -> dict[str, str]:
    """The matrices that are not stored, each with the one that it is."""
    source, target, output = MATRICES
    if architecture.get("untie_embeddings"):
        return {}
    if architecture.get("share_decoder_input_output_embed"):
        return {output: target}
    return {target: source, output: source}


def read_config(architecture: Mapping[str, Any], where: str) -> TransformerConfig:
    """The sizes in the section ``architecture`` of config.json.

    Raises:
        ValueError: a name that this version does not know.
    """
    unknown = sorted(set(architecture) - set(TransformerConfig.__dataclass_fields__))
    if unknown:
        raise ValueError(f"{where}: architecture has {unknown[0]!r}, which this version lacks")
    return TransformerConfig(**architecture)


def read_parameters(path: Path, config: TransformerConfig) -> dict[str, Tensor]:
    """The parameters in float32, with a shared matrix under all its names.

    The shapes of each side's last layer bound how large a model ``config`` describes.

    Raises:
        ValueError: they are not those in the file's header; nothing was read then.
    """
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        for side in ("encoder", "decoder"):
            last = getattr(config, f"{side}_layers") - 1
            name = f"{side}.layers.{last}.feed_forward.fc1.weight"
            sizes = (getattr(config, f"{side}_{size}") for size in ("ffn_embed_dim", "embed_dim"))
            expected = tuple(sizes)
            if shapes.get(name) != expected:
                raise ValueError(
                    f"{path}: {name} is {shapes.get(name, 'missing')}, not {expected} as {CONFIG} "
                    "says: pack the model again"
                )
        state = {name: file.get_tensor(name).float() for name in shapes}
    for name, stored in shared_matrices(vars(config)).items():
        state[name] = state[stored]
    return state


class PackedModel(NamedTuple):
    """What a folder holds; the parameters are read when they are asked for.

    Attributes:
        variant: ``arch`` and ``options``, if it is a variant of the paper's model
    """

    folder: Path
    config: TransformerConfig
    source: Vocabulary
    target: Vocabulary
    variant: Mapping[str, Any] | None

    def parameters(self) -> dict[str, Tensor]:
        """The parameters; see :func:`read_parameters`."""
        return read_parameters(self.folder / WEIGHTS, self.config)


def read_packed(folder: str | Path) -> PackedModel:
    """What a folder holds, its files compared with their hashes.

    Args:
        folder: made by ``vaswani pack``

    Raises:
        ValueError: the folder is no packed model, of another version, or altered.
        OSError: a file is missing.
    """
    folder = Path(folder)
    table = read_table(folder)
    check_sums(folder, [CONFIG, WEIGHTS])
    languages = [table["text"][side] for side in ("source_lang", "target_lang")]
    check_sums(folder, [f"dict.{language}.txt" for language in languages])
    return read_checked(folder, table, languages)


def read_checked(folder: Path, table: Mapping[str, Any], languages: Sequence[str]) -> PackedModel:
    """As :func:`read_packed`, of a folder whose files were checked.

    Args:
        folder: made by ``vaswani pack``
        table: its config.json
        languages: of source and target
    """
    source, target = [Vocabulary.load(folder / f"dict.{language}.txt") for language in languages]
    config = read_config(table["architecture"], str(folder / CONFIG))
    variant = table.get("variant")
    if variant:
        for name, value in variant["options"].items():
            setattr(config, name, value)
    return PackedModel(folder, config, source, target, variant)
