"""What 'vaswani export' makes: a folder with the target's own files, and what raw text needs.

The target's files are, for CTranslate2, model.bin, config.json and vocabularies; for fairseq,
model.pt and dictionaries; for Hugging Face, config.json, generation_config.json, model.safetensors
and vocab.json. Beside them are:

    vaswani.json        how text is prepared, how to decode, where it comes from, the proof
    bpecodes or sentencepiece.bpe.model, README.md, SHA256SUMS

Of these, ``vaswani translate`` reads the exports to CTranslate2, without torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import read_json
from vaswani.folders.model_folder import (
    CARD,
    EXPORT,
    FolderFormat,
    ModelFolder,
    TextModel,
    errors_for_users,
)
from vaswani.folders.recipe import TextRecipe, read_section
from vaswani_transformer.io.folder_table import ExportTable, Limits
from vaswani_transformer.io.sums import SUMS, check_file, read_sums

EXPORTED = FolderFormat(
    EXPORT, "vaswani-transformer-export", 1, "vaswani export", "export the model again"
)
#: what a model may be exported to; the first can be read here again
TARGETS = ("ctranslate2", "fairseq", "huggingface")
#: CTranslate2's
MODEL, MODEL_CONFIG = "model.bin", "config.json"


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
                f"{path} was exported to {table.get('target')}, whose own commands translate with "
                f"it: see {path / CARD}; for 'vaswani translate' use the model folder it was made "
                "from"
            )
        sums = read_sums(path / SUMS)
        with errors_for_users():
            check_file(path / EXPORT, sums.get(EXPORT), EXPORTED.remedy)
        exported = cls.from_json(path, table, sums)
        needed = {MODEL, MODEL_CONFIG, *sums} - {CARD}
        needed |= {exported.codes.name} if exported.codes else set()
        with errors_for_users():
            for name in sorted(needed):
                check_file(path / name, sums.get(name), EXPORTED.remedy)
        return exported

    @classmethod
    def from_json(
        cls, path: Path, table: Mapping[str, Any], sums: Mapping[str, str]
    ) -> "ExportedModel":
        """Make one of the content of its vaswani.json.

        Args:
            path: the folder
            table: the content
            sums: SHA-256 by file name

        Raises:
            UserError: a section or a key is missing, unknown, or of another type.
        """
        where = str(path / EXPORT)
        with errors_for_users():
            sections = ExportTable.from_json(table, where)
        recipe = read_section(TextRecipe, sections.text, f"{where}: text")
        return cls(
            path, recipe, sections.generation, sections.source_lengths, sums, sections.limits
        )


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
    """A packed model, or one that was exported to CTranslate2.

    Raises:
        UserError: as :meth:`ExportedModel.read` and :meth:`ModelFolder.read`.
    """
    return ExportedModel.read(path) if (path / EXPORT).is_file() else ModelFolder.read(path)
