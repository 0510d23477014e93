"""A packed model: a folder that can be copied anywhere and has all that translating needs.

    config.json         the model's sizes, how text is prepared, how to decode, where it comes from
    model.safetensors   the parameters; shared matrices are stored once
    dict.LANG.txt       the dictionaries, as fairseq has them
    bpecodes            the BPE codes, as subword-nmt has them (none if words are not split), or
    sentencepiece.bpe.model     SentencePiece's model, instead
    README.md           a model card, which may be edited
    SHA256SUMS          a hash of every file, in the format of ``sha256sum --check``

Nothing in it is a program or a pickle. Everything except the model card is compared with its hash
when it is read; what it says is believed then. ``vaswani_transformer/io/packed.py`` reads the
model; here is what raw text needs besides. An export is in ``exported_model.py``.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vaswani.common.errors import UserError
from vaswani.common.files import read_json, sha256_of, write_json
from vaswani.common.outputs import Draft, FolderOutputs, changed_files
from vaswani.folders.recipe import BPE, SENTENCEPIECE, Name, TextRecipe, read_section
from vaswani.folders.run import Run
from vaswani.folders.search_options import TranslationOptions
from vaswani_transformer.config import TransformerConfig
from vaswani_transformer.io import packed
from vaswani_transformer.io.folder_table import FORMAT, VERSION, ModelTable
from vaswani_transformer.io.packed import CONFIG, WEIGHTS, PackedModel, dictionary_name
from vaswani_transformer.io.sums import SUMS, read_sums

if TYPE_CHECKING:  # an export to CTranslate2 is read without torch
    from torch import Tensor

CARD = "README.md"
#: what splits words, by the names with which fairseq's ``from_pretrained`` finds it
SUBWORD_FILES: dict[Name, str] = {BPE: "bpecodes", SENTENCEPIECE: "sentencepiece.bpe.model"}
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


PACKED = FolderFormat(CONFIG, FORMAT, VERSION, "vaswani pack", packed.REMEDY)


@dataclass(frozen=True)
class ModelText:
    """The text of a model: how it is prepared, and what it was split and numbered with.

    Attributes:
        path: the folder
        recipe: how text is prepared
    """

    path: Path
    recipe: TextRecipe

    @property
    def langs(self) -> tuple[str, str]:
        """The languages of the source and of the target."""
        return self.recipe.langs

    @property
    def subword_model(self) -> Path | None:
        """The BPE codes or SentencePiece's model; None if words are not split."""
        kind = self.recipe.subword
        return self.path / SUBWORD_FILES[kind] if kind else None

    def dictionary(self, lang: str) -> Path:
        """Return the dictionary of a language."""
        return self.path / dictionary_name(lang)

    @classmethod
    def read_unchecked(cls, path: Path) -> "ModelText":
        """Read how a packed model's text is prepared; no file is compared with its hash."""
        text = read_json(path / CONFIG).get("text", {})
        return ModelText(path, TextRecipe.from_json(text, f"{path / CONFIG}: text"))

    def check_files(self) -> None:
        """Raise UserError if a file that splits or numbers text has changed since it was packed.

        Raises:
            OSError: a file is missing.
        """
        names = [path.name for path in map(self.dictionary, self.langs)]
        if self.subword_model:
            names.insert(0, self.subword_model.name)
        with errors_for_users():
            packed.check_files(self.path, [*names, CONFIG], read_sums(self.path / SUMS))


@dataclass(frozen=True)
class TextModel(ModelText):
    """A model, packed or exported, with what raw text needs.

    Attributes:
        generation: how to search, as the folder says it
        source_lengths: per cent of the training lines → the subwords that they do not exceed
        sums: SHA-256 by file name
    """

    generation: Mapping[str, Any]
    source_lengths: Mapping[str, int]
    sums: Mapping[str, str]

    @property
    def search_options(self) -> TranslationOptions:
        """How to search; UserError if the section ``generation`` is of another version."""
        return read_section(TranslationOptions, self.generation, f"{self.path}: generation")

    @property
    def usual_length(self) -> int | None:
        """The subwords of a source line that 99 % of the training lines do not exceed.

        None in folders of earlier versions, and where pack had no training text.
        """
        return self.source_lengths.get("99")

    @property
    def sums_without_card(self) -> dict[str, str]:
        """The SHA-256 of each file by its name, except for the card, which may be edited."""
        return {name: digest for name, digest in self.sums.items() if name != CARD}


@dataclass(frozen=True)
class ModelFolder(TextModel):
    """A folder that ``vaswani pack`` made, which was read and is complete.

    Attributes:
        packed: the model
    """

    packed: PackedModel

    @classmethod
    def read(cls, path: Path) -> "ModelFolder":
        """Read a folder; every file that is used is compared with its hash.

        Raises:
            UserError: it is not one, of another format version, or altered.
            OSError: a file is missing.
        """
        if (path / EXPORT).is_file():
            raise UserError(
                f"{path} was made by 'vaswani export', and only 'vaswani translate' or the target "
                "program can read it: give the model folder it was made from"
            )
        if not is_model_folder(path):
            raise missing_model(path)
        with errors_for_users():
            model = packed.read_packed(path)
        recipe = TextRecipe.from_json(model.table.text, f"{path / CONFIG}: text")
        table = model.table
        folder = cls(path, recipe, table.generation, table.source_lengths, model.sums, model)
        if folder.subword_model:
            with errors_for_users():
                model.check_files([folder.subword_model.name])
        return folder

    @property
    def table(self) -> ModelTable:
        """The contents of config.json, typed."""
        return self.packed.table

    @property
    def config(self) -> TransformerConfig:
        """The model's sizes, with the options of a variant."""
        return self.packed.config

    @property
    def table_sha256(self) -> str:
        """The hash of config.json."""
        return self.sums[CONFIG]

    @property
    def weights_sha256(self) -> str:
        """The hash of the file of parameters."""
        return self.sums[WEIGHTS]

    @property
    def card(self) -> str:
        """The model card, which may have been edited; empty if it was removed."""
        path = self.path / CARD
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    def parameters(self) -> "dict[str, Tensor]":
        """Read the model's state dict in float32, with shared matrices under all their names."""
        with errors_for_users():
            return self.packed.parameters()


# ---- reading --------------------------------------------------------------------------------


def is_model_folder(path: Path) -> bool:
    """Return whether a path is a model folder, complete or not."""
    return (path / CONFIG).is_file()


def read_origin(path: Path) -> Mapping[str, Any]:
    """Read the origin of a folder's checkpoint, without checking the files."""
    origin: Mapping[str, Any] = read_json(path / CONFIG).get("origin", {})
    return origin


@contextlib.contextmanager
def errors_for_users() -> Iterator[None]:
    """Turn a ValueError of the paper's package about a folder into a UserError."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from None


def sibling(folder: Path, end: str) -> Path:
    """Return the path beside a folder with its name and this ending, also for ``.`` and ``..``."""
    named = folder if folder.name not in ("", "..") else Path(os.path.abspath(folder))
    return named.with_name(named.name + end)


def missing_model(path: Path) -> UserError:
    """Return the error that says how to pack a checkpoint, a run, or a new model."""

    if path.is_file() and path.suffix == ".pt":
        return UserError(
            f"{path} is a checkpoint, not a model folder: 'vaswani pack {path} --data DIR --out "
            "MODEL' makes one from it"
        )
    run = next((run for run in Run.candidates(str(path)) if run.exists), None)
    if run:
        return UserError(
            f"{path} is a run, not a model folder: run 'vaswani pack {path}', and give {run.model}"
        )
    return UserError(f"there is no model folder {path}: 'vaswani pack RUN' makes one")


# ---- writing --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contents:
    """What a model folder is made of.

    Attributes:
        table: config.json
        parameters: the state dict
        dictionaries: of source and target
        subword_model: the BPE codes or SentencePiece's model; None if words are not split
    """

    table: ModelTable
    parameters: "Mapping[str, Tensor]"
    dictionaries: tuple[Path, Path]
    subword_model: Path | None

    @property
    def config(self) -> TransformerConfig:
        """The sizes and options of the packed model."""
        return packed.read_config(self.table.architecture, CONFIG)

    @property
    def copied(self) -> dict[str, Path]:
        """The files that are copied, by their names in the folder."""
        sides = zip(self.table.langs, self.dictionaries, strict=True)
        files = {dictionary_name(lang): path for lang, path in sides}
        if self.subword_model:
            files[SUBWORD_FILES[self.table.text["bpe"]]] = self.subword_model
        return files

    def count_parameters(self) -> int:
        """Count the parameters, each matrix that is shared counted once."""
        shared = packed.shared_matrices(self.config)
        stored = [value for name, value in self.parameters.items() if name not in shared]
        return sum(value.numel() for value in stored)

    def is_in(self, path: Path) -> bool:
        """Return whether a folder has exactly this model; its card may have been edited."""
        if not path.is_dir() or read_json(path / CONFIG) != self.table.to_json():
            return False
        sums = sums_of(path)
        if {*changed_files(path, SUMS, sums)} - {CARD}:
            return False
        if not all((path / name).is_file() for name in sums if name != CARD):
            return False
        return all(sums.get(name) == sha256_of(file) for name, file in self.copied.items())

    def write(self, path: Path, card: str) -> None:
        """Make a folder, or replace an earlier packed folder.

        Args:
            path: of the folder
            card: the model card, in Markdown

        Raises:
            UserError: something there was not packed, or has changed since; or the disk is full.
        """

        def fill(part: Path) -> None:
            write_json(part / CONFIG, self.table.to_json())
            packed.write_weights(part / WEIGHTS, self.parameters, self.config)
            for name, file in self.copied.items():
                shutil.copyfile(file, part / name)
            (part / CARD).write_text(card, encoding="utf-8", newline="\n")

        write_folder(path, fill)


def write_folder(folder: Path, fill: Callable[[Path], None], form: FolderFormat = PACKED) -> None:
    """Make a complete folder with hashes, or nothing. An earlier packed folder is replaced.

    Args:
        folder: where to make it
        fill: writes everything except the hashes into a temporary folder
        form: of the folder

    Raises:
        UserError: something there was not packed, or has changed since; or the disk is full.
    """

    with ModelOutputs(folder, form).write() as draft:
        fill(draft.path)


class ModelOutputs(FolderOutputs):
    """A folder with the hashes of its files in ``SHA256SUMS``.

    Args:
        folder: where it goes
        form: of the folder
    """

    def __init__(self, folder: Path, form: FolderFormat) -> None:
        super().__init__(folder, SUMS, form.command)
        self.form = form

    def sums(self) -> dict[str, str]:
        """Return the hashes of the files packed there; empty if none were."""
        return sums_of(self.path, self.form)

    def complete_record(self, draft: Draft) -> None:
        """Write the hash of each file."""
        names = sorted(path.name for path in draft.path.iterdir())
        with open(draft.path / SUMS, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{sha256_of(draft.path / name)}  {name}\n" for name in names)


def sums_of(folder: Path, form: FolderFormat = PACKED) -> dict[str, str]:
    """Return the hashes of the files that were packed in a folder; empty if none were."""
    is_packed = read_json(folder / form.table).get("format") == form.format
    return read_sums(folder / SUMS) if is_packed and (folder / SUMS).is_file() else {}
