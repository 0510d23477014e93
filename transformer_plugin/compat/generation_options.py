"""Options of beam search that cannot work, or that fairseq silently reduces."""

import dataclasses
import logging
import math
from typing import Any, Dict

from fairseq.dataclass.configs import GenerationConfig

from ..config import ConfigError, flag

logger = logging.getLogger(__name__)

_DEFAULTS: Dict[str, Any] = {f.name: f.default for f in dataclasses.fields(GenerationConfig)}
_ABOVE_ZERO = ["beam", "nbest", "temperature"]  # for others, 0 and less mean "off"


def check(args: Any) -> None:
    """Raise ConfigError if one of fairseq's options of beam search cannot work.

    All versions give a stack trace from the middle of the search, or nonsense (``--lenpen nan``).
    """

    def value(name: str) -> Any:
        return getattr(args, name, _DEFAULTS.get(name))

    if value("replace_unk") is not None:
        raise ConfigError(
            "--replace-unk fails in every version of fairseq at the first unknown word: leave it "
            "out, or decode with 'vaswani translate --replace-unk'"
        )
    if value("no_repeat_ngram_size") > 0:
        raise ConfigError(
            "--no-repeat-ngram-size changes nothing, since fairseq compares words with padding: "
            "leave it out"
        )
    if value("diverse_beam_groups") > 0:
        raise ConfigError(
            "--diverse-beam-groups compares the groups of other sentences, or fails: leave it out, "
            "or give --diversity-rate"
        )
    if not math.isfinite(value("lenpen")):
        raise ConfigError(f"--lenpen must be a finite number, not {value('lenpen')}")
    for name in _ABOVE_ZERO:
        if value(name) <= 0:
            raise ConfigError(f"{flag(name)} must be above 0, not {value(name)}")
    fixed = not value("max_len_a") and not value("match_source_len")
    if fixed and value("max_len_b") < value("min_len"):
        raise ConfigError(
            f"--max-len-b {value('max_len_b')} allows fewer words than --min-len "
            f"{value('min_len')} asks for: raise the one, lower the other, or give --max-len-a"
        )


def warn_of_reduced(args: Any, types: int) -> None:
    """Warn of a beam that fairseq reduces to the target dictionary's number of ``types``."""
    beam = getattr(args, "beam", _DEFAULTS["beam"])
    if beam > types - 1:
        logger.warning(
            "--beam %d is reduced to %d: the dictionary has no more words", beam, types - 1
        )
