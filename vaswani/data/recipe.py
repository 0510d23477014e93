"""What a data recipe says, and where it comes from: ``configs/data/NAME.yaml`` or arguments."""

import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

from vaswani.common.artifact import key_of
from vaswani.common.errors import UserError, nearest
from vaswani.data import stage, text
from vaswani.data.clean import Limits
from vaswani.data.subwords import BPE, KINDS, SENTENCEPIECE, Name
from vaswani.data.text import SPLITS
from vaswani.experiment.find import find_config, read_yaml

#: in the folder of prepared data: how everything else there was made
RECIPE_FILE = "recipe.yaml"
#: valid values of these keys
CHOICES = {
    "bpe_counts": ("merges", "types"),
    "normalise": ("none", "train", "all"),
    "clean_after": ("tok", "bpe"),
    "subword": tuple(KINDS),
}
#: fairseq reads languages from names such as train.en-de.en.idx
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
#: what a recipe cannot have with SentencePiece: it takes raw text, and the dictionary is its own
NOT_OF_PIECES = (
    "tokenised",
    "trees",
    "split_hyphens",
    "straight_test_apostrophes",
    "dictionary",
)


@dataclass(frozen=True)
class Recipe:
    """How an experiment's data is made; the fields are the keys of ``configs/data/*.yaml``."""

    source_lang: str
    target_lang: str
    #: prefixes of the files, LANG (and .gz or .xz) appended; with ``archives``, parts of the
    #: manifest, of which ``train`` may list several
    train: Union[str, List[str], None] = None
    valid: Optional[str] = None
    test: Optional[str] = None
    #: the manifest the parts are in: ``configs/data/archives/NAME.yaml``
    archives: Optional[str] = None
    #: the folder of prepared text whose codes and dictionary are used for these texts (``--like``)
    like: Optional[str] = None
    #: every n-th training pair becomes the validation set, instead of ``valid``
    valid_every: Optional[int] = None
    #: Moses' punctuation normalisation and removal of control characters: for "train" (and what is
    #: held out of it), "all" or "none"
    normalise: str = "none"
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
    min_words: Optional[int] = None
    max_words: Optional[int] = None
    #: highest ratio of longer to shorter side
    ratio: Optional[float] = None
    #: where the limits apply: to words ("tok") or subwords ("bpe")
    clean_after: str = "tok"
    #: what splits words: "subword_nmt", Moses' tokens by BPE; "sentencepiece", raw text
    subword: Name = BPE
    #: size of the joint BPE (5.1); of SentencePiece's joint model, its number of pieces
    bpe: int = 10000
    #: what ``bpe`` counts: merges, or types (single characters and merges together)
    bpe_counts: str = "merges"
    #: how many of the most frequent types the dictionary keeps; all, if not given
    dictionary: Optional[int] = None
    #: a trial: the first pairs of each training part, this many together
    limit: Optional[int] = None
    #: expected counts, by ``text/train``, ``tok/train``, …: shown beside the counts
    expected: Optional[Dict[str, int]] = None

    @property
    def langs(self) -> Tuple[str, str]:
        """Source, then target."""
        return self.source_lang, self.target_lang

    @property
    def splits(self) -> List[str]:
        """The existing sets; a user's own text may have no test set."""
        held_out = ["valid"] if self.valid_every else []
        return [n for n in SPLITS if n in held_out or getattr(self, n)]

    def parts(self, split: str) -> List[str]:
        """The prefixes or parts that make up a set, in order."""
        named = getattr(self, split)
        return [named] if isinstance(named, str) else list(named or [])

    def cleaned(self, split: str) -> bool:
        """Whether pairs may be left out of a set: of training text, and of what is held out."""
        return split == "train" or (split == "valid" and bool(self.valid_every))

    def limits(self, split: str, stage: str) -> Optional[Limits]:
        """What a pair of a set must satisfy after a stage ("tok" or "bpe"), if anything.

        With SentencePiece it applies to pieces: between spaces there may be a whole sentence.
        """
        if not self.cleaned(split) or (self.subword == SENTENCEPIECE and stage == "tok"):
            return None
        if self.subword == SENTENCEPIECE:
            return Limits(self.min_words, self.max_words, self.ratio)
        if stage == self.clean_after:
            return Limits(self.min_words, self.max_words, self.ratio)
        # extremely long words are kept from the BPE in any case
        return Limits() if stage == "tok" else None


def recipe_from(table: Dict[str, Any], where: str) -> Recipe:
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
        if not isinstance(given.get(key), str):
            raise UserError(f"{where}: '{key}' is missing (a code such as 'en'; quote 'no')")
        if not _LANGUAGE.fullmatch(given[key]):
            like = re.sub(r"\W+", "_", given[key]).strip("_")
            raise UserError(
                f"{where}: {key} is '{given[key]}', but fairseq's file names allow only letters, "
                f"digits and _: name your files .{like or 'en'} and give that"
            )
    check_sets(given, where)
    check_values(given, where)
    return Recipe(**given)


def check_sets(given: Dict[str, Any], where: str) -> None:
    """Raises UserError unless training and validation text are each named once."""
    named = [split for split in SPLITS if split in given]
    if given.get("trees") and not named:
        return  # the recipe of any trees; the arguments name them
    if "like" in given:
        if not named:
            raise UserError(f"{where}: no text is named: give --train, --valid or --test")
        return
    if not given.get("train"):
        raise UserError(f"{where}: 'train' is missing: the prefix of its two files")
    if ("valid" in given) == ("valid_every" in given):
        raise UserError(
            f"{where}: 'valid' is missing: the prefix of its two files (or give 'valid_every' to "
            "hold out every n-th training pair; not both)"
        )


def check_values(given: Dict[str, Any], where: str) -> None:
    """Raises UserError if a value is not among the choices, or another excludes it."""
    for key, choices in CHOICES.items():
        if given.get(key, choices[0]) not in choices:
            raise UserError(f"{where}: {key} is {given[key]!r}; it may be {', '.join(choices)}")
    if given.get("subword") == SENTENCEPIECE:
        moses = ["normalise"] * (given.get("normalise", "none") != "none")
        for key in [key for key in NOT_OF_PIECES if given.get(key)] + moses:
            raise UserError(
                f"{where}: {key} and subword: {SENTENCEPIECE} exclude each other: it takes raw "
                "text, without Moses before or after, and its dictionary is that of its pieces"
            )


def find_recipe(name: str) -> Tuple[Recipe, Path]:
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


# ---- the one left in the folder -------------------------------------------------------------


def write_recipe(recipe: Recipe, folder: Path) -> None:
    """Write ``recipe.yaml``, which says how everything else was made."""
    import yaml

    content = yaml.safe_dump(asdict(recipe), sort_keys=False)
    path = folder / RECIPE_FILE
    lines = content.split("\n")[:-1]
    stage.run_stage(path, key_of(content), lambda aside: text.write_lines(aside, lines))


def has_trees(data_bin: Path) -> bool:
    """Whether binarised data is that of ``vaswani prepare trees``."""
    path = data_bin.parent / RECIPE_FILE
    return path.is_file() and bool(read_yaml(path).get("trees"))
