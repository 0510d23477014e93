"""Reads and writes a packed model: the folder that ``vaswani pack`` makes. Without fairseq.

config.json         the model's sizes, how text is prepared, how to decode, and its origin
model.safetensors   the parameters; a matrix that is shared is stored once
dict.LANG.txt       the vocabularies
SHA256SUMS          a hash of every file

Only the parameters need torch.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from ..config import SIZES, TransformerConfig, check_sizes
from ..vocabulary import Vocabulary
from .folder_table import FORMAT, VERSION, ModelTable, Variant
from .sums import SUMS, check_file, read_sums
from .typed import check_types, read_record

if TYPE_CHECKING:  # an export to CTranslate2 is read without torch
    from torch import Tensor

CONFIG, WEIGHTS = "config.json", "model.safetensors"
#: what to do about a damaged folder
REMEDY = "pack the model again"
#: no size of a model is larger; products of larger sizes would exceed torch's 64 bits
LARGEST = 2**31
#: the shape of each parameter
Shapes = Mapping[str, tuple[int, ...]]
#: the matrices of source, target and output, which may be one (3.4)
MATRICES = (
    "encoder.embedding.tokens.weight",
    "decoder.embedding.tokens.weight",
    "decoder.output_projection.weight",
)


def dictionary_name(language: str) -> str:
    """Return the file name of a language's vocabulary in a model folder."""
    return f"dict.{language}.txt"


def read_table(folder: Path) -> ModelTable:
    """Read the sections of a model folder's config.json.

    Raises:
        ValueError: it is missing or was not written by ``vaswani pack`` or by this version of it;
            or a section is missing, or of another type.
    """
    try:
        table = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # nested too deep
        table = None
    version = table.get("format_version") if isinstance(table, dict) else None
    if type(version) is not int or table.get("format") != FORMAT:
        raise ValueError(
            f"{folder / CONFIG} is missing, damaged, or not written by 'vaswani pack': give the "
            f"folder of a packed model, or {REMEDY}"
        )
    if version != VERSION:
        advice = "get a newer one" if version > VERSION else REMEDY
        raise ValueError(
            f"{folder} is of format version {version}, but this vaswani-transformer reads version "
            f"{VERSION}: {advice}"
        )
    try:
        return ModelTable.from_json(table, str(folder / CONFIG))
    except ValueError as error:
        raise ValueError(f"{error}: {REMEDY}") from None


def shared_matrices(config: TransformerConfig) -> dict[str, str]:
    """Return the matrices that are not stored, each with the stored matrix that it shares."""
    source, target, output = MATRICES
    if config.untie_embeddings:
        return {}
    if config.share_decoder_input_output_embed:
        return {output: target}
    return {target: source, output: source}


def read_config(
    architecture: Mapping[str, Any], where: str, variant: Variant | None = None
) -> TransformerConfig:
    """Read the sizes in the section ``architecture`` of config.json, and a variant's own options.

    Raises:
        ValueError: this version does not know a name, or a value is of another type.
    """
    config = read_record(TransformerConfig, architecture, f"{where}: architecture")
    check_config(config, f"{where}: architecture")
    if variant:
        for name, value in variant.options.items():
            setattr(config, name, value)
        check_config(config, f"{where}: variant")
    return config


def check_config(config: TransformerConfig, where: str) -> None:
    """Raise ValueError for sizes and options with which no model can be made.

    Args:
        config: as read; values may be of other types than its fields
        where: name of the file, for the message
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
    """Raise errors about sizes as ValueError that begins with the name of the file.

    torch raises RuntimeError if the product of the sizes exceeds memory.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        problem = str(error).splitlines()[0]
        raise ValueError(f"{where}: {problem}") from error


def read_weights(
    path: Path, config: TransformerConfig, check: Callable[[Shapes], None]
) -> "dict[str, Tensor]":
    """Read a file's parameters in float32, with a shared matrix under all its names.

    Args:
        path: the file
        config: the model's sizes
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
        raise ValueError(f"{path} is damaged ({error}): {REMEDY}") from None
    for name, stored in shared_matrices(config).items():
        if stored not in state:
            raise ValueError(f"{path}: {stored} is missing: {REMEDY}")
        state[name] = state[stored]
    return state


def write_weights(path: Path, state: "Mapping[str, Tensor]", config: TransformerConfig) -> None:
    """Write the parameters of a model; a shared matrix is written once."""
    from safetensors.torch import save

    shared = shared_matrices(config)
    stored = {}
    for name, value in state.items():
        if name not in shared:
            stored[name] = value.detach().contiguous().clone()
    with open(path, "wb") as stream:  # the library's save_file raises errors without a number
        stream.write(save(stored, metadata={"format": "pt"}))


def check_last_layers(path: Path, shapes: Shapes, config: TransformerConfig) -> None:
    """Raise ValueError unless the file has each side's last layer, in the sizes of ``config``."""
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


def check_shapes(
    path: Path, state: "Mapping[str, Tensor]", expected: "Mapping[str, Tensor]"
) -> None:
    """Raise ValueError unless a file's parameters have the names and shapes of a model's.

    Args:
        path: the file, for the message
        state: its parameters
        expected: the model's parameters; on torch's device "meta", without values
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


@dataclass(frozen=True)
class PackedModel:
    """The content of a model folder; the parameters are read only when they are used.

    Attributes:
        table: its config.json
        config: the model's sizes, with the options of a variant
        sums: the hash of each file, by name
    """

    folder: Path
    table: ModelTable
    config: TransformerConfig
    source: Vocabulary
    target: Vocabulary
    sums: Mapping[str, str]

    @property
    def variant(self) -> Variant | None:
        """The variant of the paper's model, if it is one."""
        return self.table.variant

    def check_files(self, names: Iterable[str]) -> None:
        """Raise ValueError for a file with another hash, and OSError for a missing file."""
        check_files(self.folder, names, self.sums)

    def parameters(self) -> "dict[str, Tensor]":
        """Read the parameters in float32, with a shared matrix under all its names.

        The shapes of each side's last layer are checked first, because ``config`` may describe a
        larger model than the file contains.

        Raises:
            ValueError: the file is damaged, or its shapes are not those of ``config``; in the
                second case nothing was read.
        """
        path = self.folder / WEIGHTS

        def check(shapes: Shapes) -> None:
            if self.variant is None:  # whose layers may have other parts
                check_last_layers(path, shapes, self.config)

        return read_weights(path, self.config, check)

    def check_shapes(self, state: "Mapping[str, Tensor]", expected: "Mapping[str, Tensor]") -> None:
        """Raise ValueError unless parameters have the names and shapes of a model's.

        Args:
            state: :meth:`parameters`
            expected: the model's parameters; on torch's device "meta", without values
        """
        check_shapes(self.folder / WEIGHTS, state, expected)


def check_files(folder: Path, names: Iterable[str], sums: Mapping[str, str]) -> None:
    """Raise ValueError for a file whose hash is not in ``sums``, and OSError for a missing file."""
    for name in names:
        check_file(folder / name, sums.get(name), REMEDY)


def read_packed(folder: str | Path) -> PackedModel:
    """Read a model folder, and compare its files with their hashes.

    Args:
        folder: made by ``vaswani pack``

    Raises:
        ValueError: the folder is not a packed model, was made by another version, or was changed.
        OSError: a file is missing.
    """
    folder = Path(folder)
    table = read_table(folder)
    sums = read_sums(folder / SUMS)
    dictionaries = [dictionary_name(language) for language in table.langs]
    check_files(folder, [CONFIG, WEIGHTS, *dictionaries], sums)
    source, target = [Vocabulary.load(folder / name) for name in dictionaries]
    config = read_config(table.architecture, str(folder / CONFIG), table.variant)
    return PackedModel(folder, table, config, source, target, sums)
