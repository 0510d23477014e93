"""A packed model: a folder that can be copied anywhere and has all that translating needs.

    config.json         the model's sizes, how text is prepared, how to decode, where it comes from
    model.safetensors   the parameters; shared matrices are stored once
    dict.LANG.txt       the dictionaries, as fairseq has them
    bpecodes            the BPE codes, as subword-nmt has them (none if words are not split), or
    sentencepiece.bpe.model     SentencePiece's model, instead
    README.md           a model card, which may be edited
    SHA256SUMS          a hash of every file, in the format of ``sha256sum --check``

Nothing in it is a program or a pickle. Everything except the model card is compared with its hash
when it is read; what it says is believed then.

What 'vaswani export' makes has the target's own files (for CTranslate2, model.bin, config.json and
vocabularies; for fairseq, model.pt and dictionaries; for Hugging Face, config.json,
generation_config.json, model.safetensors and vocab.json), and beside them what raw text needs:

    vaswani.json        how text is prepared, how to decode, where it comes from, the proof
    bpecodes or sentencepiece.bpe.model, README.md, SHA256SUMS
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vaswani.common.artifact import check_unchanged, making
from vaswani.common.errors import UserError
from vaswani.common.files import Table, read_json, sha256_of
from vaswani.common.find import is_run, run_folders
from vaswani.folders.recipe import SUBWORD_MODELS, TextRecipe, read_section
from vaswani.folders.search_options import TranslationOptions
from vaswani_transformer.io.folder_table import check_sections
from vaswani_transformer.io.sums import SUMS, check_file, read_sums

if TYPE_CHECKING:  # an export to CTranslate2 is read without torch
    from torch import Tensor

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
#: what 'vaswani export' writes beside its target's files
EXPORT = "vaswani.json"


class FolderFormat(NamedTuple):
    """A form of folder.

    Attributes:
        table: the file that says what it is
        format, version: what is named there
        command: makes it
        remedy: what to do about a damaged one
    """

    table: str
    format: str
    version: int
    command: str
    remedy: str

    @property
    def header(self) -> Table:
        """What its table begins with."""
        return {"format": self.format, "format_version": self.version}


PACKED = FolderFormat(CONFIG, "vaswani-transformer", 1, "vaswani pack", "pack the model again")
EXPORTED = FolderFormat(
    EXPORT, "vaswani-transformer-export", 1, "vaswani export", "export the model again"
)
TARGETS = ("ctranslate2", "fairseq", "huggingface")
#: CTranslate2's
MODEL, TARGETS_CONFIG = "model.bin", "config.json"


@dataclass(frozen=True)
class ModelFolder:
    """A folder that was read and is complete."""

    path: Path
    #: what config.json says
    config: Table
    #: SHA-256 by file name
    sums: dict[str, str]
    #: how text is prepared
    recipe: TextRecipe

    @property
    def langs(self) -> tuple[str, str]:
        """Source, then target."""
        return self.recipe.langs

    @property
    def codes(self) -> Path | None:
        """The BPE codes or SentencePiece's model; None if words are not split."""
        return self.path / SUBWORD_MODELS[self.recipe.bpe].in_model if self.recipe.bpe else None

    @property
    def search_options(self) -> TranslationOptions:
        """How to search; UserError if the section ``generation`` is of another version."""
        generation = self.config["generation"]
        return read_section(TranslationOptions, generation, f"{self.path}: generation")

    @property
    def usual_length(self) -> int | None:
        """The subwords of a source line that 99 % of the training lines do not exceed.

        None in folders of earlier versions, and where pack had no training text.
        """
        length: int | None = self.config.get("source_lengths", {}).get("99")
        return length

    def dictionary(self, lang: str) -> Path:
        """The dictionary of a language."""
        return self.path / f"dict.{lang}.txt"

    def parameters(self) -> "dict[str, Tensor]":
        """The model's state dict in float32, with shared matrices under all their names."""
        from vaswani_transformer.io.packed import read_weights  # imports torch

        shared = not_stored(self.config["architecture"])
        with errors_for_users():
            return read_weights(self.path / WEIGHTS, shared)


# ---- reading --------------------------------------------------------------------------------


def read_folder(path: Path) -> ModelFolder:
    """A model folder; every file that is used is compared with its hash.

    Raises:
        UserError: it is not one, of another format version, or altered.
        OSError: a file is missing.
    """
    config = read_config(path)
    sums = read_sums(path / SUMS)
    check_files(path, [CONFIG], sums, PACKED.remedy)
    recipe = read_section(TextRecipe, config["text"], f"{path / CONFIG}: text")
    folder = ModelFolder(path, config, sums, recipe)
    needed = [WEIGHTS, *(f"dict.{lang}.txt" for lang in recipe.langs)]
    needed += [folder.codes.name] if folder.codes else []
    check_files(path, needed, sums, PACKED.remedy)
    return folder


def check_files(path: Path, names: Iterable[str], sums: dict[str, str], remedy: str) -> None:
    """Raises UserError for a file whose hash differs from ``sums``."""
    for name in names:
        with errors_for_users():
            check_file(path / name, sums.get(name), remedy)


def read_config(path: Path) -> Table:
    """A folder's config.json, as it is; UserError if it is not one of this version."""
    if (path / EXPORT).is_file():
        raise UserError(
            f"{path} was made by 'vaswani export', only for 'vaswani translate' or its target: "
            "give the model folder it was made from"
        )
    if not (path / CONFIG).is_file():
        raise no_model(path)
    from vaswani_transformer.io import packed  # imports torch

    with errors_for_users():
        table = packed.read_table(path)
        packed.read_config(table["architecture"], str(path / CONFIG))
    return table


@contextlib.contextmanager
def errors_for_users() -> Iterator[None]:
    """A ValueError of the paper's package about a folder becomes a UserError."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from None


def check_export(table: Table, path: Path) -> None:
    """Raises UserError unless a folder's ``vaswani.json`` is of the form and version read here."""
    if table.get("format") != EXPORTED.format:
        raise UserError(f"{path / EXPORT} is damaged: {EXPORTED.remedy}")
    if table.get("format_version") != EXPORTED.version:
        raise UserError(
            f"{path} is of format version {table.get('format_version')}, but this "
            f"vaswani-transformer reads version {EXPORTED.version}: {EXPORTED.remedy}"
        )


def sibling(folder: Path, end: str) -> Path:
    """The path beside a folder that has its name and this ending, also for ``.`` and ``..``."""
    named = folder if folder.name not in ("", "..") else Path(os.path.abspath(folder))
    return named.with_name(named.name + end)


def no_model(path: Path) -> UserError:
    """How to get a model folder from a checkpoint, a run, or nothing."""

    if path.is_file() and path.suffix == ".pt":
        return UserError(
            f"{path} is a checkpoint, not a model folder: 'vaswani pack {path} --data DIR --out "
            "MODEL' makes one from it"
        )
    run = next((run for run in run_folders(str(path)) if is_run(run)), None)
    if run:
        return UserError(
            f"{path} is a run; its model folder is {run / 'model'}, which 'vaswani pack {path}' "
            "makes: give that"
        )
    return UserError(f"there is no model folder {path}: 'vaswani pack RUN' makes one")


# ---- reading an export ----------------------------------------------------------------------


def read_model(path: Path) -> ModelFolder:
    """A packed model, or one that was exported to CTranslate2.

    Raises:
        UserError: as :func:`read_export` and :func:`read_folder`.
    """
    return read_export(path) if (path / EXPORT).is_file() else read_folder(path)


def is_export(folder: ModelFolder) -> bool:
    """Whether a folder is an export."""
    return bool(folder.config.get("format") == EXPORTED.format)


def read_export(path: Path) -> ModelFolder:
    """A folder exported to CTranslate2; every file that is used is compared with its hash.

    Raises:
        UserError: it is for another target, of another format version, or altered.
        OSError: a file is missing.
    """
    table = read_json(path / EXPORT)
    check_export(table, path)
    if table.get("target") != "ctranslate2":
        raise UserError(
            f"{path} was exported to {table.get('target')}, whose own commands translate with it: "
            f"see {path / CARD}; for 'vaswani translate' use the model folder it was made from"
        )
    sums = read_sums(path / SUMS)
    check_files(path, [EXPORT], sums, EXPORTED.remedy)
    with errors_for_users():
        check_sections(table, str(path / EXPORT), ("text", "generation", "limits"))
    recipe = read_section(TextRecipe, table["text"], f"{path / EXPORT}: text")
    folder = ModelFolder(path, table, sums, recipe)
    needed = {MODEL, TARGETS_CONFIG, *sums} - {CARD}
    needed |= {folder.codes.name} if folder.codes else set()
    check_files(path, sorted(needed), sums, EXPORTED.remedy)
    return folder


# ---- writing --------------------------------------------------------------------------------


def write_folder(folder: Path, fill: Callable[[Path], None], form: FolderFormat = PACKED) -> None:
    """Make a complete model folder, or nothing. One that was packed before is replaced.

    Args:
        folder: where to make it
        fill: writes everything except the hashes into a temporary folder
        form: of the folder

    Raises:
        UserError: something there was not packed, or has changed since; or the disk is full.
    """

    def check(path: Path) -> None:
        check_unchanged(path, SUMS, sums_of(path, form), form.command)

    with making(folder, check) as part:
        part.mkdir()
        fill(part)
        names = sorted(path.name for path in part.iterdir())
        with open(part / SUMS, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{sha256_of(part / name)}  {name}\n" for name in names)


def sums_of(folder: Path, form: FolderFormat = PACKED) -> dict[str, str]:
    """The hashes of the files that were packed in a folder; empty if none were."""
    packed = read_json(folder / form.table).get("format") == form.format
    return read_sums(folder / SUMS) if packed and (folder / SUMS).is_file() else {}


def not_stored(architecture: Table) -> dict[str, str]:
    """The matrices that are shared, each with the one that is stored for it."""
    from vaswani_transformer.io.packed import shared_matrices  # imports torch

    return shared_matrices(architecture)


def write_weights(path: Path, state: "Mapping[str, Tensor]", architecture: Table) -> None:
    """Write parameters; of shared matrices, only one."""
    from safetensors.torch import save

    stored = {
        name: value.detach().contiguous().clone()
        for name, value in state.items()
        if name not in not_stored(architecture)
    }
    with open(path, "wb") as stream:  # the library's save_file raises errors without a number
        stream.write(save(stored, metadata={"format": "pt"}))
