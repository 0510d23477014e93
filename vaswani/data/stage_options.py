"""What each stage of a preparation depends on besides its input: all of it is in the stage's key.

A stage reads its options from here alone. A new option is a new field at the end, with a default
under which the stage does what it did before: so it cannot be forgotten in the key, and data that
were made before it existed are not made again.
"""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Dict, Mapping, Optional, TypeVar

from vaswani.data.clean import Limits
from vaswani.data.recipe import Recipe
from vaswani.data.subwords import BPE, Name

Own = TypeVar("Own", bound="StageOptions")


def later_fields(options: Any, first: int) -> Dict[str, Any]:
    """The fields after the ``first`` ones, by name, except those at their default."""
    later = {item: getattr(options, item.name) for item in fields(options)[first:]}
    return {item.name: value for item, value in later.items() if value != item.default}


@dataclass(frozen=True)
class StageOptions:
    """The options of a stage; most are those of the recipe by the same name."""

    #: how many of the fields version 0.1 had
    FIRST: ClassVar[int] = 0

    @classmethod
    def from_recipe(cls: "type[Own]", recipe: Recipe, **others: Any) -> Own:
        """The options that a recipe has, and ``others`` that it does not have."""
        known = {item.name for item in fields(Recipe)}
        own = [item.name for item in fields(cls) if item.name in known]
        return cls(**{name: getattr(recipe, name) for name in own}, **others)

    def key_of_version_0_1(self) -> Any:
        """The first fields in the form of version 0.1, so that its data keep their keys."""
        return [getattr(self, item.name) for item in fields(self)[: self.FIRST]]

    def in_key(self) -> Any:
        """All options, in a form for JSON; later fields only where they change something."""
        later = later_fields(self, self.FIRST)
        return [self.key_of_version_0_1(), later] if later else self.key_of_version_0_1()


@dataclass(frozen=True)
class TextOptions(StageOptions):
    """raw → text."""

    FIRST = 3
    normalise: str = "none"
    valid_every: Optional[int] = None
    limit: Optional[int] = None
    trees: bool = False
    keep_tags: bool = False


@dataclass(frozen=True)
class TokenOptions(StageOptions):
    """text → tok; limits by set, in words."""

    FIRST = 4
    tokenised: bool = False
    split_hyphens: bool = False
    straight_test_apostrophes: bool = False
    limits: Mapping[str, Limits] = field(default_factory=dict)
    subword: Name = BPE

    def key_of_version_0_1(self) -> Any:
        """Grouped, or left out, as they were then."""
        words = [self.tokenised, self.split_hyphens, self.straight_test_apostrophes]
        return [words, limits_in_key(self.limits)]


@dataclass(frozen=True)
class CodesOptions(StageOptions):
    """tok → codes; the hash is of codes made from other text, if they are used."""

    FIRST = 3
    bpe: int
    bpe_counts: str = "merges"
    codes_sha256: Optional[str] = None
    trees: bool = False
    subword: Name = BPE

    def key_of_version_0_1(self) -> Any:
        """Grouped, or left out, as they were then."""
        return [self.bpe, self.bpe_counts, *([self.codes_sha256] if self.codes_sha256 else [])]


@dataclass(frozen=True)
class SubwordOptions(StageOptions):
    """tok, codes → bpe; limits by set, in subwords."""

    FIRST = 1
    limits: Mapping[str, Limits] = field(default_factory=dict)
    trees: bool = False
    subword: Name = BPE

    def key_of_version_0_1(self) -> Any:
        """Grouped, or left out, as they were then."""
        return limits_in_key(self.limits)


@dataclass(frozen=True)
class BinaryOptions(StageOptions):
    """bpe → data-bin; the hash is of a dictionary made from other text, if it is used."""

    FIRST = 2
    dictionary: Optional[int] = None
    dictionary_sha256: Optional[str] = None
    trees: bool = False
    subword: Name = BPE

    def key_of_version_0_1(self) -> Any:
        """Grouped, or left out, as they were then."""
        sha256 = self.dictionary_sha256
        return [self.dictionary, sha256] if sha256 else self.dictionary


def limits_in_key(limits: Mapping[str, Limits]) -> Any:
    """The limits of all sets; of a set without, nothing."""
    first = ("min_words", "max_words", "ratio")
    return [
        {**{name: getattr(limit, name) for name in first}, **later_fields(limit, len(first))}
        for limit in limits.values()
    ]


def limits_of(recipe: Recipe, stage: str) -> Dict[str, Limits]:
    """What pairs must satisfy after a stage ("tok" or "bpe"), by set."""
    by_split = {split: recipe.limits(split, stage) for split in recipe.splits}
    return {split: limits for split, limits in by_split.items() if limits}
