"""The options of beam search that ``vaswani generate`` takes, and what they may be."""

import math
from typing import Any, Callable, Dict, Mapping

from vaswani.errors import UserError

OPTIONS: Dict[str, Callable[[str], Any]] = {
    "beam": int,
    "nbest": int,
    "lenpen": float,
    "unkpen": float,
    "max_len_a": float,
    "max_len_b": int,
    "min_len": int,
    "no_repeat_ngram_size": int,
}
LEAST = {"beam": 1, "nbest": 1, "max_len_a": 0, "max_len_b": 0, "min_len": 0}
LEAST["no_repeat_ngram_size"] = 0


def check_search(options: Mapping[str, Any]) -> None:
    """Raises UserError, naming the option, for what no search can be done with.

    ``options`` are given or the run's; fairseq's defaults stand for what is not there.
    """
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{flag} is {value}, but must be a finite number")
        if name in LEAST and value < LEAST[name]:
            raise UserError(f"{flag} is {value}, but must be at least {LEAST[name]}")
    beam, nbest = options.get("beam", 5), options.get("nbest", 1)
    if nbest > beam:
        raise UserError(
            f"--nbest {nbest} asks for more translations than --beam {beam} finds: give --beam "
            f"{nbest}, or a lower --nbest"
        )
