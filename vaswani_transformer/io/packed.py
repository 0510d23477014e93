"""Reads a packed model: the folder that ``vaswani pack`` makes, without fairseq.

config.json         the model's sizes, how text is prepared, how to decode, where it comes from
model.safetensors   the parameters; a matrix that is shared is stored once
dict.LANG.txt       the vocabularies
SHA256SUMS          a hash of every file
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from torch import Tensor

from ..config import SIZES, TransformerConfig, check_sizes
from ..vocabulary import Vocabulary
from .folder_table import check_sections
from .sums import SUMS, check_file, read_sums
from .typed import check_types, read_record

CONFIG, WEIGHTS = "config.json", "model.safetensors"
#: what config.json begins with
FORMAT, VERSION = "vaswani-transformer", 1
#: no size of a model is larger, nor do torch's 64 bits count a product of many such
LARGEST = 2**31
#: the shape of each parameter
Shapes = Mapping[str, tuple[int, ...]]
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
        ValueError: it is missing, was not written by ``vaswani pack``, or by another version of it;
            a section is missing, or of another type.
    """
    try:
        table = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # nested too deep
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
    check_sections(table, str(folder / CONFIG))
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
        ValueError: a name that this version does not know, or a value of another type.
    """
    config = read_record(TransformerConfig, architecture, f"{where}: architecture")
    check_config(config, f"{where}: architecture")
    return config


def check_config(config: TransformerConfig, where: str) -> None:
    """Raise ValueError for sizes and options of which no model can be made.

    Args:
        config: as it was read; values may be of other types than its fields
        where: it is, for the message
    """
    check_types(vars(config), get_type_hints(TransformerConfig), where)
    with errors_of(where):
        check_sizes(config)
    for name in (*SIZES, "max_source_positions", "max_target_positions"):
        size = getattr(config, name)
        if size is not None and not 1 <= size <= LARGEST:
            raise ValueError(f"{where}: {name} must be 1 to {LARGEST:,}, not {size}")


@contextlib.contextmanager
def errors_of(where: str | Path) -> Iterator[None]:
    """Say where sizes are from of which no model can be made, as a ValueError.

    torch raises a RuntimeError where they multiply to more than memory can have.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        problem = str(error).splitlines()[0]
        raise ValueError(f"{where}: {problem}") from error


def read_parameters(path: Path, config: TransformerConfig) -> dict[str, Tensor]:
    """The parameters in float32, with a shared matrix under all its names.

    The shapes of each side's last layer bound how large a model ``config`` describes.

    Raises:
        ValueError: they are not those in the file's header, and nothing was read then; or the file
            is damaged.
    """

    def check(shapes: Shapes) -> None:
        check_last_layers(path, shapes, config)

    return read_weights(path, shared_matrices(vars(config)), check)


def read_weights(
    path: Path, shared: Mapping[str, str], check: Callable[[Shapes], None] = lambda _: None
) -> dict[str, Tensor]:
    """A file's parameters in float32, with a shared matrix under all its names.

    Args:
        path: the file
        shared: :func:`shared_matrices`
        check: raises ValueError for shapes that are wrong, before anything is read

    Raises:
        ValueError: the file is damaged, or lacks a matrix.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            check(shapes)
            state = {name: file.get_tensor(name).float() for name in shapes}
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}): pack the model again") from None
    for name, stored in shared.items():
        if stored not in state:
            raise ValueError(f"{path}: {stored} is missing: pack the model again")
        state[name] = state[stored]
    return state


def check_last_layers(path: Path, shapes: Shapes, config: TransformerConfig) -> None:
    """Raise ValueError unless each side's last layer is there, of the size ``config`` gives it."""
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


def check_shapes(path: Path, state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless a file's parameters are those of a model, each of its shape.

    Args:
        path: the file, for the message
        state: its parameters
        expected: the model's, without values: on torch's device "meta"
    """
    for name in sorted({*state, *expected}):
        in_file, in_model = (
            tuple(tensors[name].shape) if name in tensors else "missing"
            for tensors in (state, expected)
        )
        if in_file != in_model:
            raise ValueError(
                f"{path}: {name} is {in_file}, but {in_model} in the model that {CONFIG} and the "
                "dictionaries describe: pack the model again"
            )


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
        check_config(config, f"{folder / CONFIG}: variant")
    return PackedModel(folder, config, source, target, variant)
