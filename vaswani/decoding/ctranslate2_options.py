"""The options that a model exported to CTranslate2 accepts."""

import math
import os
from typing import Optional

from vaswani.common.environment import cores
from vaswani.common.errors import UserError
from vaswani.common.processes import limit_workers
from vaswani.decoding.search import SearchOptions
from vaswani.model_folder.search_options import check_nbest


def check(options: SearchOptions, types: int) -> None:
    """Raises UserError for options that CTranslate2 lacks, or that no search can use."""
    lacking = {
        "--length-penalty gnmt": options.length_penalty != "fairseq"
        and "it divides by a power of the length alone; --lenpen is the power",
        "--sampling": options.sampling
        and "its random numbers depend on the thread, so a seed would not give the same text",
        "--unkpen": options.unkpen and "it has no penalty for unknown words",
    }
    for name, reason in lacking.items():
        if reason:
            raise UserError(f"{name} is unavailable for a model exported to CTranslate2: {reason}")
    for name in ("beam", "nbest", "max_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} is {value}, but must be at least 1")
    for name in ("max_len_a", "max_len_b", "min_len", "no_repeat_ngram_size", "lenpen"):
        value, flag = getattr(options, name), "--" + name.replace("_", "-")
        if not math.isfinite(value):
            raise UserError(f"{flag} must be a finite number, not {value}")
        if value < 0 and name != "lenpen":
            raise UserError(f"{flag} must not be negative, but is {value}")
    if not options.max_len_a and options.max_len_b < options.min_len:
        raise UserError(
            f"--max-len-b {options.max_len_b} allows fewer words than --min-len "
            f"{options.min_len} asks for"
        )
    check_nbest(options.nbest, options.beam)
    if options.beam > types:
        raise UserError(
            f"--beam {options.beam} is more than the {types:,} types of the target dictionary: "
            "give a lower one"
        )


def threads(requested: Optional[int]) -> int:
    """How many threads translate: as requested, or OMP_NUM_THREADS, or one per core."""
    if requested is not None and requested < 1:
        raise UserError(f"--workers is {requested}, but must be at least 1")
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if requested is not None:
        return limit_workers(requested)
    return int(setting) if setting.isdigit() and int(setting) else cores()
