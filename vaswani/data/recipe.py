"""What a data recipe says, and where it comes from: ``configs/data/NAME.yaml`` or arguments."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from vaswani.common.artifact import RecordedOutputs, is_as_recorded
from vaswani.common.errors import UserError, nearest
from vaswani.common.files import read_json
from vaswani.common.options import check_number
from vaswani.data.pairs import Limits
from vaswani.data.text import SPLITS
from vaswani.data.text_recipe import (
    BPE,
    SENTENCEPIECE,
    SUBWORD_MODELS,
    Name,
    TextRecipe,
)
from vaswani.experiment.find import find_config, read_yaml

#: in the folder of prepared data: how everything else there was made
RECIPE_FILE = "recipe.yaml"
#: the folder of records in it
STAGES = ".stages"
#: valid values of these keys
CHOICES = {
    "bpe_counts": ("merges", "types"),
    "normalise": ("none", "train", "all"),
    "clean_after": ("tok", "bpe"),
    "subword": tuple(SUBWORD_MODELS),
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


@dataclass(frozen=True)
class Recipe:
    """How an experiment's data is made; the fields are the keys of ``configs/data/*.yaml``."""

    source_lang: str
    target_lang: str
    #: prefixes of the files, LANG (and .gz or .xz) appended; with ``archives``, parts of the
    #: manifest, of which ``train`` may list several
    train: str | list[str] | None = None
    valid: str | None = None
    test: str | None = None
    #: the manifest the parts are in: ``configs/data/archives/NAME.yaml``
    archives: str | None = None
    #: the folder of prepared text whose codes and dictionary are used for these texts (``--like``)
    like: str | None = None
    #: every n-th training pair becomes the validation set, instead of ``valid``
    valid_every: int | None = None
    #: Moses' punctuation normalisation and removal of control characters: for "train" (and what is
    #: held out of it), "all" or "none"
    normalise: Literal["none", "train", "all"] = "none"
    #: the text is already tokenised
    tokenised: bool = False
    #: the sets are files of trees in Penn brackets, each of which makes both sides (6.3): words,
    #: which the BPE is for, and brackets
    trees: bool = False
    #: the brackets hold part-of-speech tags, instead of XX for each
    keep_tags: bool = False
    #: Moses' ``-a``: "well-known" becomes well @-@ known
    split_hyphens: bool = False
    #: ’ becomes ' in the test set before it is tokenised
    straight_test_apostrophes: bool = False
    #: limits of a training pair, in words or subwords of either side: see ``clean_after``
    min_words: int | None = None
    max_words: int | None = None
    #: highest ratio of longer to shorter side
    ratio: float | None = None
    #: where the limits apply: to words ("tok") or subwords ("bpe")
    clean_after: str = "tok"
    #: what splits words: "subword_nmt", Moses' tokens by BPE; "sentencepiece", raw text
    subword: Name = BPE
    #: size of the joint BPE (5.1); of SentencePiece's joint model, its number of pieces
    bpe: int = 10000
    #: what ``bpe`` counts: merges, or types (single characters and merges together)
    bpe_counts: str = "merges"
    #: probability with which each merge of the training text's subwords is left out (BPE-dropout,
    #: Provilkov et al., 2020, arXiv:1910.13267)
    bpe_dropout: float | None = None
    #: how often the training text is there, each time split anew
    copies: int = 1
    #: how many of the most frequent types the dictionary keeps; all, if not given
    dictionary: int | None = None
    #: a trial: the first pairs of each training part, this many together
    limit: int | None = None
    #: measured by ``vaswani prepare``: BLEU of the validation text, restored from its tokens
    restored_bleu: float | None = None
    #: expected counts, by ``text/train``, ``tok/train``, …: shown beside the counts
    expected: dict[str, int] | None = None

    @property
    def langs(self) -> tuple[str, str]:
        """Source, then target."""
        return self.source_lang, self.target_lang

    @property
    def splits(self) -> list[str]:
        """The existing sets; a user's own text may have no test set."""
        held_out = ["valid"] if self.valid_every else []
        return [n for n in SPLITS if n in held_out or getattr(self, n)]

    def parts(self, split: str) -> list[str]:
        """The prefixes or parts that make up a set, in order."""
        named = getattr(self, split)
        return [named] if isinstance(named, str) else list(named or [])

    def cleaned(self, split: str) -> bool:
        """Whether pairs may be left out of a set: of training text, and of what is held out."""
        return split == "train" or (split == "valid" and bool(self.valid_every))

    @property
    def text(self) -> TextRecipe:
        """How its text is processed, line by line."""
        raw = self.tokenised or self.subword == SENTENCEPIECE
        return TextRecipe(
            self.source_lang,
            self.target_lang,
            normalise=self.normalise,
            straight_apostrophes=self.straight_test_apostrophes,
            tokeniser="none" if raw else "moses",
            split_hyphens=self.split_hyphens,
            bpe=self.subword,
        )

    def limits(self, stage: str) -> dict[str, Limits]:
        """What the pairs of a set must satisfy after a stage ("tok" or "bpe"), if anything.

        With SentencePiece it applies to pieces: between spaces there may be a whole sentence.
        """
        limits = Limits(self.min_words, self.max_words, self.ratio)
        if self.subword == SENTENCEPIECE:
            limited = limits if stage == "bpe" else None
        elif stage == self.clean_after:
            limited = limits
        else:  # extremely long words are kept from the BPE in any case
            limited = Limits() if stage == "tok" else None
        return {split: limited for split in self.splits if limited and self.cleaned(split)}


def recipe_from(table: dict[str, Any], where: str) -> Recipe:
    """A checked recipe from a YAML table or from arguments; ``where`` names it in errors.

    Raises:
        UserError: an unknown or missing key, or a value that is not among the choices.
    """
    known = [item.name for item in fields(Recipe)]
    given = {key: value for key, value in table.items() if value is not None}
    for key in given:
        if key not in known:
            raise UserError(f"{where}: there is no key '{key}'{nearest(str(key), known)}")
    for key in ("source_lang", "target_lang"):
        lang = given.get(key, "")
        if not isinstance(lang, str) or not _LANGUAGE.fullmatch(lang):
            raise UserError(
                f"{where}: {key} is '{lang}', but should be a code such as 'en' (quote 'no'), in "
                "letters, digits and _, as fairseq's file names have it: the ending of your files"
            )
    if given["source_lang"] == given["target_lang"]:
        raise UserError(
            f"{where}: source_lang and target_lang are both '{given['source_lang']}', the ending "
            "of one file: name the two sides apart, for example text.en and text.en_simple, with "
            "--target-lang en_simple"
        )
    for key, choices in CHOICES.items():
        if given.get(key, choices[0]) not in choices:
            raise UserError(f"{where}: {key} is {given[key]!r}; it may be {', '.join(choices)}")
    if given.get("tokenised") and given.get("subword") == SENTENCEPIECE:
        raise UserError(
            f"{where}: SentencePiece splits raw text: leave out --tokenised (tokenised: true), or "
            f"take --subword {BPE}"
        )
    check_dropout(given, where)
    for key, least in LEAST.items():
        if key in given:
            check_number(f"{where}: {key}", given[key], least)
    named = [split for split in SPLITS if split in given]
    own_text = "train" in named and ("valid" in named) != ("valid_every" in given)
    # trees: their recipe is that of any trees, which the arguments name
    if not (own_text or (named and "like" in given) or (not named and given.get("trees"))):
        raise UserError(
            f"{where}: training or validation text is missing, or there twice: give 'train' and "
            "'valid', the prefixes of their files (instead of 'valid', 'valid_every' holds out "
            "every n-th training pair); beside --like, at least one of --train, --valid and --test"
        )
    return Recipe(**given)


def check_dropout(table: dict[str, Any], where: str) -> None:
    """Raises UserError for BPE-dropout that cannot be, or copies that would all be equal."""
    dropout = table.get("bpe_dropout")
    if dropout is None:
        if table.get("copies", 1) != 1:
            raise UserError(
                f"{where}: copies of the training text are all equal without BPE-dropout: give "
                "--bpe-dropout 0.1 (bpe_dropout), too, or leave out --copies"
            )
        return
    check_number(f"{where}: bpe_dropout", dropout, 0)
    if not 0 < dropout < 1:
        raise UserError(
            f"{where}: bpe_dropout is {dropout}; as a probability it is above 0 and below 1, as 0.1"
        )
    if table.get("subword") == SENTENCEPIECE:
        raise UserError(
            f"{where}: BPE-dropout is subword-nmt's: leave out --subword {SENTENCEPIECE}, or "
            "--bpe-dropout"
        )


def find_recipe(name: str) -> tuple[Recipe, Path]:
    """The recipe for the name of an experiment or recipe, and the folder it makes.

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
        left = folder / RECIPE_FILE
        try:
            path = beside if beside.is_file() else find_config(folder.name, "data")
        except UserError:
            if not left.is_file():
                raise
            path = left
        table = read_yaml(path)
    return recipe_from(table, str(path)), folder


# ---- prepared text --------------------------------------------------------------------------


def recipe_in(folder: Path) -> Recipe | None:
    """The recipe that ``vaswani prepare`` left in a folder; None: the text was made otherwise."""
    path = folder / RECIPE_FILE
    if not path.is_file():
        return None
    known = {item.name for item in fields(Recipe)}  # earlier versions had others
    table = {key: value for key, value in read_yaml(path).items() if key in known}
    return Recipe(**{"source_lang": "", "target_lang": "", **table})


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
    for file in files:
        name = file.relative_to(folder).parts[0]
        recorded = outputs_of(folder / name).files().get(file)
        if recorded and not is_as_recorded(file, *recorded):
            raise UserError(
                f"{file} is not as 'vaswani prepare' made it: run that again, to have it made anew"
            )
    for record in sorted((folder / STAGES).glob("*.json")):
        for stage, key in read_json(record).get("made_from", {}).items():
            if outputs_of(folder / stage).table().get("key") != key:
                raise UserError(
                    f"{folder / stage} was made again, and {folder / record.stem} was not: run "
                    "'vaswani prepare' again, which goes on where it was stopped"
                )
