"""The error that users are meant to read, and what such messages share."""

import difflib
import traceback
from collections.abc import Sequence

#: torch's words, on a CPU and on a GPU; it raises a RuntimeError
NO_MEMORY = ("can't allocate memory", "out of memory")
#: in which fairseq looks at what its users gave it; and what it hands that to unchanged
FAIRSEQ = ("fairseq", "fairseq_cli", "hydra", "omegaconf")
LIBRARIES = ("torch", "numpy")


class UserError(ValueError):
    """The user's problem, in one sentence: what is wrong, where, and what to do.

    In Python it is a ValueError, as the plugin's PluginError is. It is not derived from that, since
    importing the plugin imports torch.

    ``vaswani.cli.main`` prints it without a traceback and exits with status 1.
    """

    for_users = True


def refusal_of_fairseq(error: BaseException) -> str:
    """Return fairseq's message on a value, file or machine that it cannot use; "" for other errors.

    It has no class of errors for that: it raises ValueError, AssertionError, NotImplementedError or
    Exception itself, or leaves it to torch and numpy. What Python raises at a bug (TypeError,
    AttributeError …) is not meant for users, and neither is what our code or a user-dir raises.
    """
    kinds = (ValueError, AssertionError, NotImplementedError)
    if not isinstance(error, kinds) and type(error) is not Exception:
        return ""
    frames = traceback.walk_tb(error.__traceback__)
    packages = [str(frame.f_globals.get("__name__")).split(".")[0] for frame, _ in frames]
    raised_by = [package for package in packages if package not in LIBRARIES]
    return str(error) if raised_by and raised_by[-1] in FAIRSEQ else ""


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 line``, ``2 lines``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def list_numbers(numbers: Sequence[int], most: int = 20) -> str:
    """Return the first numbers and how many follow: ``3, 1,205 and 18 more``."""
    more = len(numbers) - most
    return ", ".join(f"{n:,}" for n in numbers[:most]) + (f" and {more:,} more" if more > 0 else "")


def nearest(word: str, words: Sequence[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the word most similar to ``word``, or an empty string."""
    similar = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f" (did you mean '{similar[0]}'?)" if similar else ""
