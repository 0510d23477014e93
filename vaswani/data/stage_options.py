"""What each stage of a preparation depends on besides its input: all of it is in the stage's key.

A stage reads its options from here alone, so that none can be forgotten in the key.
"""

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, Mapping, Optional, TypeVar

from vaswani.data.clean import Limits
from vaswani.data.recipe import Recipe
from vaswani.data.subwords import BPE, Name

Own = TypeVar("Own", bound="StageOptions")


@dataclass(frozen=True)
class StageOptions:
    """The options of a stage; most are those of the recipe by the same name."""

    @classmethod
    def from_recipe(cls: "type[Own]", recipe: Recipe, **others: Any) -> Own:
        """The options that a recipe has, and ``others`` that it does not have."""
        known = {item.name for item in fields(Recipe)}
        own = [item.name for item in fields(cls) if item.name in known]
        return cls(**{name: getattr(recipe, name) for name in own}, **others)

    def in_key(self) -> Any:
        """All options, in a form for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TextOptions(StageOptions):
    """raw → text."""

    normalise: str = "none"
    valid_every: Optional[int] = None
    limit: Optional[int] = None
    trees: bool = False
    keep_tags: bool = False


@dataclass(frozen=True)
class TokenOptions(StageOptions):
    """text → tok; limits by set, in words."""

    tokenised: bool = False
    split_hyphens: bool = False
    straight_test_apostrophes: bool = False
    limits: Mapping[str, Limits] = field(default_factory=dict)
    subword: Name = BPE


@dataclass(frozen=True)
class CodesOptions(StageOptions):
    """tok → codes; the hash is of codes made from other text, if they are used."""

    bpe: int
    bpe_counts: str = "merges"
    codes_sha256: Optional[str] = None
    trees: bool = False
    subword: Name = BPE


@dataclass(frozen=True)
class SubwordOptions(StageOptions):
    """tok, codes → bpe; limits by set, in subwords."""

    limits: Mapping[str, Limits] = field(default_factory=dict)
    trees: bool = False
    subword: Name = BPE


@dataclass(frozen=True)
class BinaryOptions(StageOptions):
    """bpe → data-bin; the hash is of a dictionary made from other text, if it is used."""

    dictionary: Optional[int] = None
    dictionary_sha256: Optional[str] = None
    trees: bool = False
    subword: Name = BPE


def limits_of(recipe: Recipe, stage: str) -> Dict[str, Limits]:
    """What pairs must satisfy after a stage ("tok" or "bpe"), by set."""
    by_split = {split: recipe.limits(split, stage) for split in recipe.splits}
    return {split: limits for split, limits in by_split.items() if limits}
