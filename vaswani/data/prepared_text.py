"""Text that ``vaswani prepare`` has made: its recipe, its subwords, what belongs together."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from vaswani.common.artifact import RecordedOutputs, is_as_recorded
from vaswani.common.errors import UserError
from vaswani.common.files import read_json
from vaswani.common.yaml_tables import read_yaml
from vaswani.folders.recipe import BPE, RECIPE_FILE, SUBWORD_MODELS, Name, Recipe
from vaswani_transformer.io import moses

#: the folder of records in it
STAGES = ".stages"


def recipe_in(folder: Path) -> Recipe | None:
    """The recipe that ``vaswani prepare`` left in a folder; None: the text was made otherwise.

    Raises:
        UserError: it was edited, or is of a later version.
    """
    path = folder / RECIPE_FILE
    if not path.is_file():
        return None
    names = {item.name for item in fields(Recipe)}  # earlier versions had others
    table = {key: value for key, value in read_yaml(path).items() if key in names}
    check_as_made(folder, [path])
    if table.get("text_rules", 1) not in moses.JOINERS:
        raise UserError(
            f"{path}: text_rules is {table['text_rules']!r}, and this version has 1 to "
            f"{moses.VERSION}: prepare the text again, or use the version that it is from"
        )
    return Recipe(**{"source_lang": "", "target_lang": "", **table})


def text_rules_of(folder: Path) -> int:
    """The version of the rules for a folder's text; the newest where there is no recipe."""
    recipe = recipe_in(folder)
    return recipe.text_rules if recipe else moses.VERSION


def find_subword_model(folder: Path) -> tuple[Name, Path | None]:
    """What made the subwords of prepared text, and the file that it learned, if that is there."""
    recipe = recipe_in(folder)
    kind: Name = recipe.subword if recipe else BPE
    path = folder / SUBWORD_MODELS[kind].in_data
    return kind, path if path.is_file() else None


def has_trees(data_bin: Path) -> bool:
    """Whether binarised data is that of ``vaswani prepare trees``."""
    recipe = recipe_in(data_bin.parent)
    return bool(recipe and recipe.trees)


def outputs_of(path: Path) -> RecordedOutputs:
    """A file or folder of prepared text, recorded in ``.stages/NAME.json`` beside it."""
    stages = path.parent / STAGES
    return RecordedOutputs(
        path.parent, [path.name], stages / f"{path.name}.json", stages / "part" / path.name
    )


def check_prepared(folder: Path, files: Iterable[Path]) -> None:
    """Raises UserError unless files of prepared text are what ``vaswani prepare`` made, together.

    A stop between its stages, or an edited file, leaves some that do not belong to the others:
    codes of one vocabulary with the dictionary of another. Text that was prepared otherwise, or by
    earlier versions, has no record of it.

    Args:
        folder: of the text
        files: those that are used; others are not read
    """
    check_as_made(folder, files)
    for record in sorted((folder / STAGES).glob("*.json")):
        for stage, key in read_json(record).get("made_from", {}).items():
            if outputs_of(folder / stage).table().get("key") != key:
                raise UserError(
                    f"{folder / stage} was made again, and {folder / record.stem} was not: run "
                    "'vaswani prepare' again, which goes on where it was stopped"
                )


def check_as_made(folder: Path, files: Iterable[Path]) -> None:
    """Raises UserError for a file of prepared text that was changed since; others are not known."""
    for file in files:
        name = file.relative_to(folder).parts[0]
        recorded = outputs_of(folder / name).files().get(file)
        if recorded and not is_as_recorded(file, *recorded):
            raise UserError(
                f"{file} is not as 'vaswani prepare' made it: run that again, to have it made anew"
            )
