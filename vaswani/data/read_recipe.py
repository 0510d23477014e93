"""Where a data recipe comes from, ``configs/data/NAME.yaml`` or options, and its checks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from vaswani.common.environment import cores
from vaswani.common.errors import UserError, nearest
from vaswani.common.find import find_config
from vaswani.common.options import Checked, argument, check_range, option
from vaswani.common.yaml_tables import read_yaml
from vaswani.folders.data_bin import SPLITS
from vaswani.folders.prepared_text import STAGES, PreparedText
from vaswani.folders.recipe import BPE, SENTENCEPIECE, SUBWORD_MODELS, Recipe
from vaswani_transformer.io import moses
from vaswani_transformer.io.typed import check_types

#: valid values of these keys
CHOICES = {
    "bpe_counts": ("merges", "types"),
    "normalise": ("none", "train", "all"),
    "clean_after": ("tok", "bpe"),
    "subword": tuple(SUBWORD_MODELS),
    "unicode": ("none", "NFC"),
    "text_rules": tuple(moses.JOINERS),
}
#: the least values of these keys
LEAST = {
    "bpe": 1,
    "copies": 1,
    "dictionary": 1,
    "limit": 1,
    "max_words": 1,
    "min_words": 0,
    "ratio": 1,
    "valid_every": 2,
}
#: fairseq reads languages from names such as train.en-de.en.idx
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(Checked):
    """The keys of a recipe that are options, too: None or False, what the recipe says."""

    source_lang: str | None = option(
        metavar="LANG", help="source language code, also the suffix of the source files"
    )
    target_lang: str | None = option(
        metavar="LANG", help="target language code, also the suffix of the target files"
    )
    train: list[str] | None = option(
        metavar="PREFIX",
        help="training text: PREFIX.LANG, or FILE.tsv with two columns; repeat the option "
        "to join several",
    )
    valid: str | None = option(metavar="PREFIX", help="validation text: PREFIX.LANG, or FILE.tsv")
    valid_every: int | None = option(
        metavar="N",
        help="instead of --valid: hold out every N-th training pair for validation",
        least=LEAST["valid_every"],
    )
    test: str | None = option(metavar="PREFIX", help="test text: PREFIX.LANG, or FILE.tsv")
    like: str | None = option(
        metavar="DATA|RUN|MODEL",
        help="use the BPE codes, dictionary and recipe of this prepared text, run or model",
    )
    tokenised: bool = option(False, "the text is already tokenised")
    keep_tags: bool = option(
        False, "treebanks: keep part-of-speech tags (default: replace each tag by XX)"
    )
    subword: str | None = option(
        choices=list(SUBWORD_MODELS),
        help="subword algorithm: subword_nmt (the default, BPE of Moses tokens) or "
        "sentencepiece, which needs no spaces between words",
    )
    bpe: int | None = option(
        metavar="N",
        help="number of merges of the joint BPE; with sentencepiece, number of pieces",
        least=1,
    )
    split_digits: bool = option(False, "split numbers into single digits (2010 becomes 2 0 1 0)")
    bpe_dropout: float | None = option(
        metavar="P",
        help="BPE-dropout: skip each merge with probability P in the training text (0.1 "
        "in Provilkov et al., 2020)",
        above=0,
    )
    copies: int | None = option(
        metavar="K",
        help="with --bpe-dropout: repeat the training text K times, each time split differently",
        least=1,
    )
    max_words: int | None = option(
        metavar="N", help="leave out pairs with a side of more than N words", least=1
    )
    ratio: float | None = option(
        metavar="R",
        help="leave out pairs with a side more than R times as long as the other",
        least=1,
    )
    limit: int | None = option(
        metavar="PAIRS", help="use only this many pairs, for a trial", least=1
    )

    def keys(self) -> dict[str, object]:
        """Return the given keys, except ``like``, which names text whose recipe is read."""
        table = {item.name: getattr(self, item.name) for item in fields(RecipeOptions)}
        del table["like"]
        if self.train and len(self.train) == 1:
            table["train"] = self.train[0]
        return {
            name: value for name, value in table.items() if value is not None and value is not False
        }


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(Checked):
    """What is prepared, and where the result goes."""

    name: str | None = argument(
        help="name of a recipe in configs/data, or of a configuration in configs/", default=None
    )
    text: str | None = option(metavar="FOLDER", help="folder of the recipe's text files")
    out: str | None = option(metavar="DIR", help="output folder (default: data/NAME)")


@dataclass(frozen=True, kw_only=True)
class WorkOptions(Checked):
    """How the work is done; the text is the same."""

    workers: int = option(
        cores(), metavar="N", help="number of processes (default: one per core)", least=1
    )
    start: str | None = option(
        flag="--from", choices=STAGES, help="redo this stage and all later stages"
    )
    if_missing: bool = option(
        False, "skip if the data-bin is complete, even if it was made from different text"
    )
    show_dropped: int = option(
        0, "show N examples of the pairs that are left out", metavar="N", least=0
    )
    archives: str = option(
        "data/archives", "folder for downloaded archives (default: data/archives)", metavar="DIR"
    )
    manifest: str | None = option(metavar="FILE", help="YAML file with other URLs for the archives")


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(WorkOptions, RecipeOptions, PlaceOptions):
    """A name, or the files and languages of one's own text; and how to process it."""


def recipe_from(table: Mapping[str, Any], where: str) -> Recipe:
    """Return a checked recipe from a YAML table or from arguments; ``where`` names it in errors.

    Raises:
        UserError: an unknown or missing key, or a value that is not among the choices.
    """
    keys = [item.name for item in fields(Recipe)]
    values = {key: value for key, value in table.items() if value is not None}
    for key in values:
        if key not in keys:
            raise UserError(f"{where}: there is no key '{key}'{nearest(str(key), keys)}")
    hints = {key: hint for key, hint in get_type_hints(Recipe).items() if key not in CHOICES}
    try:
        check_types(values, hints, where)
    except ValueError as error:
        raise UserError(str(error)) from None
    for key in ("source_lang", "target_lang"):
        if key not in values:
            raise UserError(
                f"{where}: {key} is missing: give --{key.replace('_', '-')}, the language code, "
                "such as 'en', which is also the suffix of your files"
            )
        lang = values[key]
        if not isinstance(lang, str) or not _LANGUAGE.fullmatch(lang):
            raise UserError(
                f"{where}: {key} is '{lang}', but must be a language code, such as 'en', of "
                "letters, digits and _, which is also the suffix of your files (in YAML, quote "
                "'no')"
            )
    if values["source_lang"] == values["target_lang"]:
        raise UserError(
            f"{where}: source_lang and target_lang are both '{values['source_lang']}', so both "
            "sides would be the same file: give the two sides different names, for example "
            "text.en and text.en_simple, with --target-lang en_simple"
        )
    for key, choices in CHOICES.items():
        if values.get(key, choices[0]) not in choices:
            allowed = ", ".join(map(str, choices))
            raise UserError(f"{where}: {key} must be one of {allowed}, not {values[key]!r}")
    if values.get("tokenised") and values.get("subword") == SENTENCEPIECE:
        raise UserError(
            f"{where}: SentencePiece splits raw text: leave out --tokenised (tokenised: true), or "
            f"take --subword {BPE}"
        )
    check_dropout(values, where)
    for key, least in LEAST.items():
        if key in values:
            check_range(f"{where}: {key}", values[key], least)
    check_splits(values, where)
    return Recipe(**values)


def check_splits(table: Mapping[str, Any], where: str) -> None:
    """Raise UserError if training or validation text is missing, or is given twice."""
    named = [split for split in SPLITS if split in table]
    if not named and table.get("trees"):  # the recipe of any trees, which the arguments name
        return
    if "like" in table:
        if not named:
            raise UserError(
                f"{where}: there is no text to prepare: with --like, give at least one of --train, "
                "--valid and --test"
            )
        return
    if "train" not in named:
        raise UserError(
            f"{where}: there is no training text: give --train, the prefix of its files (in a "
            "recipe, 'train')"
        )
    if "valid" in named and "valid_every" in table:
        raise UserError(
            f"{where}: --valid and --valid-every (in a recipe, 'valid' and 'valid_every') cannot "
            "be used together: leave out one of the two"
        )
    if "valid" not in named and "valid_every" not in table:
        raise UserError(
            f"{where}: there is no validation text: give --valid, the prefix of its files (in a "
            "recipe, 'valid'), or --valid-every N ('valid_every') to hold out every N-th training "
            "pair"
        )


def check_dropout(table: Mapping[str, Any], where: str) -> None:
    """Raise UserError for an invalid BPE-dropout, or for copies that would all be equal."""
    dropout = table.get("bpe_dropout")
    if dropout is None:
        if table.get("copies", 1) != 1:
            raise UserError(
                f"{where}: copies of the training text are all equal without BPE-dropout: give "
                "--bpe-dropout 0.1 (bpe_dropout), too, or leave out --copies"
            )
        return
    check_range(f"{where}: bpe_dropout", dropout, 0)
    if not 0 < dropout < 1:
        raise UserError(
            f"{where}: bpe_dropout must be a probability above 0 and below 1, such as 0.1, not "
            f"{dropout}"
        )
    if table.get("subword") == SENTENCEPIECE:
        raise UserError(
            f"{where}: BPE-dropout works only with subword-nmt: leave out --subword "
            f"{SENTENCEPIECE}, or --bpe-dropout"
        )


def find_recipe(name: str) -> tuple[Recipe, Path]:
    """Return the recipe for the name of an experiment or recipe, and the folder for its text.

    An experiment says ``task.data: data/NAME/data-bin``; its recipe is ``configs/data/NAME.yaml``,
    or, for one's own text, the one left in the folder: ``data/NAME/recipe.yaml``.
    """
    try:
        path = find_config(name)
    except UserError:
        path = find_config(name, "data")
    table = read_yaml(path)
    folder = Path("data") / path.stem
    if isinstance(table.get("task"), dict):
        folder = Path(str(table["task"].get("data"))).parent
        beside = path.parent / "data" / f"{folder.name}.yaml"
        made_earlier = PreparedText(folder).recipe_file
        try:
            path = beside if beside.is_file() else find_config(folder.name, "data")
        except UserError:
            if not made_earlier.is_file():
                raise
            path = made_earlier
        table = read_yaml(path)
    return recipe_from(table, str(path)), folder
