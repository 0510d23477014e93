"""The options of a beam search (section 6.1). Needs no torch."""

import math
from dataclasses import dataclass

LENGTH_PENALTIES = ["fairseq", "gnmt"]


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search, with fairseq's names and defaults."""

    beam: int = 5
    nbest: int = 1
    """results per sentence; with ``gnmt`` the search stops when it has that many"""
    lenpen: float = 1.0
    """the power of the length (``fairseq``), or α in ((5 + length) / 6)^α (``gnmt``, 6.1)"""
    unkpen: float = 0.0
    """is subtracted from the log-probability of an unknown word; with ``gnmt`` at least 0"""
    max_len_a: float = 0.0
    max_len_b: int = 200
    """at most a · S + b tokens"""
    min_len: int = 1
    length_penalty: str = "fairseq"
    temperature: float = 1.0
    no_repeat_ngram_size: int = 0
    """length of the n-grams that may not occur twice in a translation; 0 allows all"""

    def check(self) -> None:
        """Raise ValueError for a value with which a search fails or has wrong results."""
        if self.length_penalty not in LENGTH_PENALTIES:
            raise ValueError(
                f"--length-penalty must be {' or '.join(LENGTH_PENALTIES)}, not "
                f"{self.length_penalty}"
            )
        for name in ("lenpen", "unkpen", "max_len_a", "temperature"):
            value = getattr(self, name)
            if not math.isfinite(value):
                flag = "--" + name.replace("_", "-")
                raise ValueError(f"{flag} must be a finite number, not {value}")
        if self.no_repeat_ngram_size < 0:
            raise ValueError(
                f"--no-repeat-ngram-size must be 0 or more, not {self.no_repeat_ngram_size}"
            )
        for name in ("beam", "nbest", "temperature"):
            if getattr(self, name) <= 0:
                raise ValueError(f"--{name} must be above 0, not {getattr(self, name)}")
        if self.length_penalty != "gnmt":
            return
        if self.lenpen < 0:
            raise ValueError(
                f"--lenpen {self.lenpen} is negative, which --length-penalty gnmt does not allow: "
                "give 0 or more (0.6 in the paper), or --length-penalty fairseq"
            )
        if self.unkpen < 0:  # a hypothesis could still get better, and the search would end
            raise ValueError(
                f"--unkpen {self.unkpen} is negative, which --length-penalty gnmt does not allow: "
                "give 0 or more, or --length-penalty fairseq"
            )
