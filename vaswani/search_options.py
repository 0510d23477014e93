"""The options of beam search that ``vaswani generate`` takes, and what they may be."""

from typing import Any, Callable, Dict

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
NOT_NEGATIVE = ("max_len_a", "max_len_b", "min_len")


def check_search(generation: Any) -> None:
    """Raises UserError or ConfigError, naming the option, for what no search can be done with.

    More is refused than for fairseq-generate, which takes what cannot be for something near it: the
    report of a translation says what was asked for.
    """
    from transformer_plugin.compat import generation_options

    generation_options.check(generation)
    for name in NOT_NEGATIVE:
        if generation[name] < 0:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} must not be negative, but is {generation[name]}")
    if generation.nbest > generation.beam:
        raise UserError(
            f"--nbest {generation.nbest} asks for more translations than --beam "
            f"{generation.beam} finds: give --beam {generation.nbest}, or a lower --nbest"
        )
