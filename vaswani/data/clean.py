"""Which pairs are kept: the limits of Moses' clean-corpus-n; the rest are counted by reason."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

#: letters per word; also Moses' limit. Without one, BPE is quadratic in word length.
LONGEST_WORD = 1000
#: examples kept per reason, and characters kept per side
EXAMPLES, EXAMPLE_LENGTH = 100, 200

EMPTY = "with an empty side"
NOT_UTF8 = "not UTF-8"
#: the pair's place, and its two sides
Example = Tuple[str, str, str]


@dataclass(frozen=True)
class Limits:
    """Words per side (least and most), ratio of longer to shorter side; None: no limit."""

    min_words: Optional[int] = None
    max_words: Optional[int] = None
    ratio: Optional[float] = None

    def reason(self, source: str, target: str) -> Optional[str]:
        """Why a pair is left out, or None if it is kept. Words are separated by spaces."""
        first, second = source.split(), target.split()
        short, long = sorted((len(first), len(second)))
        if short == 0:
            return EMPTY
        if self.min_words is not None and short < self.min_words:
            return f"of fewer than {self.min_words} words"
        if self.max_words is not None and long > self.max_words:
            return f"of more than {self.max_words} words"
        if self.ratio is not None and long > self.ratio * short:
            return f"more than {self.ratio:g} times longer on one side"
        if max(map(len, first)) > LONGEST_WORD or max(map(len, second)) > LONGEST_WORD:
            return f"with a word of more than {LONGEST_WORD:,} letters"
        return None


@dataclass
class Report:
    """What became of the pairs of one set: seen, kept, and left out by reason, with examples."""

    seen: int = 0
    kept: int = 0
    #: pairs held out as the validation set (neither kept here nor left out)
    held_out: int = 0
    #: words such as </s>, written letter by letter because fairseq would take them for its own
    spelt_out: int = 0
    #: characters ▁, which SentencePiece would take for spaces
    made_spaces: int = 0
    dropped: Dict[str, int] = field(default_factory=dict)
    examples: Dict[str, List[Example]] = field(default_factory=dict)

    def drop(self, reason: str, place: str, source: str, target: str) -> None:
        """Count a pair that is left out; the first few for each reason are kept as examples."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < EXAMPLES:
            shown.append((place, source[:EXAMPLE_LENGTH], target[:EXAMPLE_LENGTH]))

    def add(self, other: "Report") -> None:
        """Add the counts of a later chunk of the same set."""
        self.seen += other.seen
        self.kept += other.kept
        self.held_out += other.held_out
        self.spelt_out += other.spelt_out
        self.made_spaces += other.made_spaces
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        for reason, examples in other.examples.items():
            shown = self.examples.setdefault(reason, [])
            shown.extend(examples[: EXAMPLES - len(shown)])

    def summary(self) -> str:
        """``4,500 pairs of 4,512; left out: 10 with an empty side, 2 not UTF-8``."""
        text = f"{self.kept:,} pairs"
        if self.kept != self.seen:
            text += f" of {self.seen:,}"
        if self.held_out:
            text += f"; held out: {self.held_out:,}"
        if self.dropped:
            most = sorted(self.dropped.items(), key=lambda item: -item[1])
            counts = [f"{count:,} {reason}" for reason, count in most]
            text += f"; left out: {', '.join(counts)}"
        if self.spelt_out:
            text += f"; spelt out: {self.spelt_out:,} words such as </s>, which are fairseq's own"
        if self.made_spaces:
            text += (
                f"; made spaces: {self.made_spaces:,} characters ▁, which are SentencePiece's own"
            )
        return text
