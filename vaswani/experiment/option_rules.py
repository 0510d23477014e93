"""Rules for values in a file that does not build the model, such as an export's.

Those for options of the plugin's components are in ``transformer_plugin/config.py``.
"""

import math
from typing import Any, Callable, Dict, NamedTuple


class Rule(NamedTuple):
    """What a value must be, in words and as a test; None, which is no value, is not tested."""

    words: str
    holds: Callable[[Any], bool]


def at_least(least: float) -> Rule:
    """A number from ``least`` on; neither infinite nor NaN."""
    return Rule(f"{least:g} or more", lambda value: least <= value < math.inf)


def between(least: float, most: float) -> Rule:
    """A number in a range, both ends included."""
    return Rule(f"from {least:,} to {most:,}", lambda value: least <= value <= most)


POSITIVE = Rule("a number above 0", lambda value: 0 < value < math.inf)
SHARE = Rule("in [0, 1)", lambda value: 0 <= value < 1)
COUNT = at_least(0)
#: numpy accepts 32 bits, and fairseq adds the epoch and the number of updates
SEED = between(0, 4_000_000_000)
#: a model's options
MODEL_SIZES: Dict[str, Rule] = {
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), SHARE),
    **{
        f"{side}_{size}": between(1, most)
        for side in ("encoder", "decoder")
        for size, most in (
            ("layers", 1000),
            ("embed_dim", 2**17),
            ("ffn_embed_dim", 2**20),
            ("attention_heads", 2**13),
        )
    },
}
