"""Finds the binarised text that ``vaswani generate`` translates, and checks that it can."""

from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.experiment.find import first_data_bin


def data_folder(config: Any) -> Path:
    """The data-bin, or the folder with the text that ``vaswani prepare`` made it from."""
    folder = first_data_bin(config.task.data)
    return folder.parent if (folder.parent / "recipe.yaml").is_file() else folder


def data_files(config: Any, subset: str) -> tuple[list[Path], int]:
    """The files read for a subset (dictionaries, source, target), and its number of sentences.

    Raises:
        UserError: no such data or subset, or it is empty or damaged.
    """
    from vaswani.data import data_bin
    from vaswani.data.data_bin import read_index

    folder = data_bin.fill_in_languages(config.task)
    pair = (config.task.source_lang, config.task.target_lang)
    prefix = data_bin.split_prefix(folder, subset, *pair)
    sides = [Path(f"{prefix}.{language}") for language in pair]
    present = [side for side in sides if Path(f"{side}.idx").exists() or side == sides[0]]
    sentences = [len(read_index(str(side)).sizes) for side in present]
    total = sentences[0]
    if not total:
        raise UserError(f"{sides[0]} holds no sentence: there is nothing to translate")
    if sentences[-1] != total:
        raise UserError(
            f"{prefix} has {total:,} {pair[0]} and {sentences[-1]:,} {pair[1]} sentences: the "
            "numbers should be equal; prepare it again"
        )
    files = [folder / f"dict.{language}.txt" for language in pair]
    files += [Path(f"{side}{end}") for side in sides for end in (".idx", ".bin")]
    return [path for path in files if path.is_file()], total
