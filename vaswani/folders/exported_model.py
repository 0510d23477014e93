"""What 'vaswani export' makes: a folder with the target's own files, and what raw text needs.

The target's files are, for CTranslate2, model.bin, config.json and vocabularies; for fairseq,
model.pt and dictionaries; for Hugging Face, config.json, generation_config.json, model.safetensors
and vocab.json. Beside them are:

    vaswani.json        how text is prepared, how to decode, where it comes from, the proof
    bpecodes or sentencepiece.bpe.model, README.md, SHA256SUMS

Of these, ``vaswani translate`` reads the exports to CTranslate2, without torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import read_json, write_json
from vaswani.folders.model_folder import (
    CARD,
    EXPORT,
    FolderFormat,
    ModelFolder,
    TextModel,
    errors_for_users,
    write_folder,
)
from vaswani.folders.recipe import TextRecipe
from vaswani_transformer.io.folder_table import FolderTable
from vaswani_transformer.io.sums import SUMS, check_file, read_sums

EXPORTED = FolderFormat(
    EXPORT, "vaswani-transformer-export", 1, "vaswani export", "export the model again"
)
#: what a model may be exported to; the first can be read here again
TARGETS = ("ctranslate2", "fairseq", "huggingface")
#: CTranslate2's
MODEL, MODEL_CONFIG = "model.bin", "config.json"


@dataclass(frozen=True)
class Limits:
    """The most tokens that a source, and a target, may have, with the end of sentence."""

    source: int
    target: int


@dataclass(frozen=True, kw_only=True)
class ExportTable(FolderTable):
    """What vaswani.json says.

    Attributes:
        limits: of the model
        target: one of ``TARGETS``
        quantization: of CTranslate2; None: float32
        license: that the model's card names
        proof: the comparison with the packed model; None if there was none
        versions: of the libraries that were compared with
    """

    limits: Limits
    target: str = TARGETS[0]
    quantization: str | None = None
    license: str | None = None
    proof: dict[str, Any] | None = None
    versions: dict[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the table for vaswani.json."""
        compared = {"proof": self.proof, "versions": self.versions}
        return {
            "format": EXPORTED.format,
            "format_version": EXPORTED.version,
            "target": self.target,
            "quantization": self.quantization,
            "text": self.text,
            "source_lengths": self.source_lengths,
            "generation": self.generation,
            "limits": vars(self.limits),
            "origin": self.origin,
            "license": self.license,
            "scores": self.scores,
            **{name: table for name, table in compared.items() if table is not None},
        }


@dataclass(frozen=True)
class ExportedModel(TextModel):
    """A folder exported to CTranslate2, which was read and is complete.

    Attributes:
        limits: the most tokens of a source and of a target
    """

    limits: Limits

    @classmethod
    def read(cls, path: Path) -> "ExportedModel":
        """Read a folder exported to CTranslate2; every file that is used is compared with its hash.

        Raises:
            UserError: it is for another target, of another format version, or altered.
            OSError: a file is missing.
        """
        table = read_json(path / EXPORT)
        check_format(table, path)
        if table.get("target") != TARGETS[0]:
            raise UserError(
                f"{path} was exported to {table.get('target')}, and only the commands of that "
                f"program can use it: see {path / CARD}, or give 'vaswani translate' the model "
                "folder that it was made from"
            )
        sums = read_sums(path / SUMS)
        with errors_for_users():
            check_file(path / EXPORT, sums.get(EXPORT), EXPORTED.remedy)
        with errors_for_users():
            sections = ExportTable.from_json(table, str(path / EXPORT))
        exported = cls.of_table(path, sections, sums)
        needed = {MODEL, MODEL_CONFIG, *sums} - {CARD}
        if exported.subword_model:
            needed.add(exported.subword_model.name)
        with errors_for_users():
            for name in sorted(needed):
                check_file(path / name, sums.get(name), EXPORTED.remedy)
        return exported

    @classmethod
    def of_table(cls, path: Path, table: ExportTable, sums: Mapping[str, str]) -> "ExportedModel":
        """Build the object from the table in vaswani.json.

        Args:
            path: the folder
            table: what the file says
            sums: SHA-256 by file name

        Raises:
            UserError: a key of the text's section is unknown, or of another type.
        """
        recipe = TextRecipe.from_json(table.text, f"{path / EXPORT}: text")
        return cls(path, recipe, table.generation, table.source_lengths, sums, table.limits)


def write_export(folder: Path, fill: Callable[[Path], tuple[ExportTable, str]]) -> None:
    """Make a complete export, or nothing. An earlier export is replaced.

    Args:
        folder: where to make it
        fill: writes the target's files, and what splits words, into a temporary folder; returns
            what vaswani.json says, and the card

    Raises:
        UserError: something there was not exported, or has changed since; or the disk is full.
    """

    def fill_all(part: Path) -> None:
        table, card = fill(part)
        write_json(part / EXPORT, table.to_json())
        (part / CARD).write_text(card, encoding="utf-8", newline="\n")

    write_folder(folder, fill_all, EXPORTED)


def check_format(table: Mapping[str, Any], path: Path) -> None:
    """Raise UserError unless a folder's ``vaswani.json`` is of the form and version read here."""
    if table.get("format") != EXPORTED.format:
        raise UserError(f"{path / EXPORT} is damaged: {EXPORTED.remedy}")
    if table.get("format_version") != EXPORTED.version:
        raise UserError(
            f"{path} is of format version {table.get('format_version')}, but this "
            f"vaswani-transformer reads version {EXPORTED.version}: {EXPORTED.remedy}"
        )


def read_model(path: Path) -> ModelFolder | ExportedModel:
    """Read a packed model, or one that was exported to CTranslate2.

    Raises:
        UserError: as :meth:`ExportedModel.read` and :meth:`ModelFolder.read`.
    """
    return ExportedModel.read(path) if (path / EXPORT).is_file() else ModelFolder.read(path)
