"""What ``vaswani export`` makes: a folder with the target's files and what raw text needs.

    vaswani.json    how text is prepared, how to decode, where the model comes from, the proof
    bpecodes        as in the packed model
    README.md       how to use it, and the proof
    SHA256SUMS      a hash of every file

The rest are the target's own files: for CTranslate2, model.bin, config.json and vocabularies; for
fairseq, model.pt and dictionaries.
"""

from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.files import read_json
from vaswani.model_folder.folder import (
    CARD,
    CODES,
    EXPORT,
    SUMS,
    Kind,
    ModelFolder,
    check_files,
    read_folder,
    read_sums,
    refuse_pickles,
)
from vaswani.model_folder.schema import LENGTH, Limits, check_sections, read_section
from vaswani.model_folder.text_recipe import TextRecipe

EXPORTED = Kind(EXPORT, "vaswani-transformer-export", "vaswani export")
EXPORT_VERSION = 1
TARGETS = ("ctranslate2", "fairseq")
#: CTranslate2's
MODEL, TARGETS_CONFIG = "model.bin", "config.json"
#: the sections of every vaswani.json
SECTIONS = ("text", "generation", "limits", "origin")
#: what else is there, which translating does not need
OTHERS = ("target", "quantization", "scores", "proof")


def read_model(path: Path) -> ModelFolder:
    """A packed model, or one that was exported to CTranslate2.

    Raises:
        UserError: as :func:`read_export` and :func:`vaswani.model_folder.folder.read_folder`.
    """
    return read_export(path) if (path / EXPORT).is_file() else read_folder(path)


def is_export(folder: ModelFolder) -> bool:
    """Whether a folder is an export."""
    return bool(folder.config.get("format") == EXPORTED.format)


def read_export(path: Path) -> ModelFolder:
    """A folder exported to CTranslate2; every file that is used is compared with its hash.

    Raises:
        UserError: it is for another target, of another format version, incomplete or altered, or
            contains a pickle.
    """
    table = read_json(path / EXPORT)
    version = table.get("format_version")
    if table.get("format") != EXPORTED.format or type(version) is not int:
        raise UserError(f"{path / EXPORT} was not written by 'vaswani export', or is damaged")
    if version != EXPORT_VERSION:
        advice = "get a newer one" if version > EXPORT_VERSION else "export the model again"
        raise UserError(
            f"{path} is of format version {version}, but this vaswani-transformer reads version "
            f"{EXPORT_VERSION}: {advice}"
        )
    if table.get("target") != "ctranslate2":
        raise UserError(
            f"{path} was exported to {table.get('target')}, whose own commands translate with it: "
            f"see {path / CARD}; for 'vaswani translate' use the model folder it was made from"
        )
    check_sections(table, SECTIONS, OTHERS, path / EXPORT)
    limits = {"source": LENGTH, "target": LENGTH}
    read_section(Limits, table["limits"], f"{path / EXPORT}: limits", limits)
    if not (path / SUMS).is_file():
        raise UserError(f"{path} is incomplete: {SUMS} is missing; copy the folder again")
    refuse_pickles(path, known=[MODEL])
    recipe = read_section(TextRecipe, table["text"], f"{path / EXPORT}: text")
    sums = read_sums(path / SUMS)
    needed = {EXPORT, MODEL, TARGETS_CONFIG, *sums} - {CARD}
    names = sorted(needed | ({CODES} if recipe.bpe else set()))
    check_files(path, names, sums, "export the model again")
    return ModelFolder(path, table, sums, recipe)
