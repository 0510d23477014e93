"""How to search for translations: the options of every verb, of a model folder and of Python."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from numbers import Integral, Real
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import Table
from vaswani.common.options import Checked, option

logger = logging.getLogger(__name__)

#: tokens per batch; on a CPU, more gain nothing and leave cores without a batch
CPU_BATCH, GPU_BATCH = 2000, 8000
#: the same on a CPU for a model exported to CTranslate2
EXPORT_CPU_BATCH = 1000

#: what is used of an experiment's section ``generation``, and recorded in a model folder
BEAM_OPTIONS = ("beam", "nbest", "lenpen", "unkpen", "max_len_a", "max_len_b", "min_len")
#: types of options → what may be given for them in Python, where it is more: numpy's numbers, too
ACCEPTED: dict[object, Any] = {int: Integral, float: Real, int | None: Integral | None}


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Checked):
    """fairseq's generation options, with fairseq's names and defaults, and a few more."""

    beam: int = option(5, metavar="N", help="beam size", least=1)
    nbest: int = option(1, metavar="N", help="translations per sentence", least=1)
    lenpen: float = option(1.0, metavar="N", help="larger favours longer translations")
    unkpen: float = option(0.0, metavar="N", help="larger means fewer unknown words")
    max_len_a: float = option(
        0.0, metavar="A", help="at most A · source length + B tokens", least=0
    )
    max_len_b: int = option(200, metavar="B", help="see --max-len-a", least=0)
    min_len: int = option(1, metavar="N", help="at least N tokens", least=0)
    length_penalty: str = option(
        "fairseq",
        help="what --lenpen means: a power of the length, or the paper's formula",
        choices=["fairseq", "gnmt"],
    )
    temperature: float = option(
        1.0, metavar="T", help="divide logits by T before the softmax", above=0
    )
    print_alignment: bool = option(
        False, help="add columns: tokens, and which words attend to which"
    )
    replace_unk: bool = option(False, help="copy the source word where the model outputs <unk>")
    #: None: what suits the device
    max_tokens: int | None = option(
        None,
        metavar="N",
        help=f"tokens per batch ({CPU_BATCH:,} on a CPU, of an export {EXPORT_CPU_BATCH:,}; "
        f"{GPU_BATCH:,} on a GPU)",
        least=1,
    )

    @property
    def needs_attention(self) -> bool:
        """Whether it has to be known which subwords attend to which."""
        return self.print_alignment or self.replace_unk

    def changed(self, **options: Any) -> "SearchOptions":
        """The same with some options changed.

        Raises:
            TypeError: an unknown option, or a value of another type.
            UserError: a number outside its limits.
        """
        types = {item.name: item.type for item in fields(self)}
        for name, value in options.items():
            kind = types.get(name, object)  # of an unknown one, replace() says so
            if not isinstance(value, ACCEPTED.get(kind, kind)):
                expected = getattr(kind, "__name__", kind)
                raise TypeError(f"{name} should be of type {expected}, but is {value!r}")
        return replace(self, **options)

    def check(self) -> None:
        """Raises UserError, naming the option, for values that no search can use together.

        This refuses more than fairseq-generate, which replaces impossible values by similar ones,
        whereas our report of a translation states the requested values.
        """
        if self.length_penalty not in ("fairseq", "gnmt"):
            raise UserError(f"--length-penalty is fairseq or gnmt, not {self.length_penalty}")
        if not self.max_len_a and self.max_len_b < self.min_len:
            raise UserError(
                f"--max-len-b {self.max_len_b} allows fewer words than --min-len {self.min_len} "
                "asks for: raise the one, lower the other, or give --max-len-a"
            )
        if self.nbest > self.beam:
            raise UserError(
                f"--nbest {self.nbest} asks for more translations than --beam {self.beam} finds: "
                f"give --beam {self.nbest}, or a lower --nbest"
            )

    def within_vocabulary(self, types: int) -> "SearchOptions":
        """With a beam of at most the words that there are, as in fairseq; a warning says so.

        Args:
            types: size of the target dictionary
        """
        most = types - 1
        if self.beam <= most:
            return self
        logger.warning(
            "--beam %d is reduced to %d: the dictionary has no more words", self.beam, most
        )
        return replace(self, beam=most, nbest=min(self.nbest, most))


def as_arguments(names: Sequence[str]) -> Any:
    """A dataclass of these search options for a command line: None, or False, if not given.

    What is not given is as the model was trained, or packed.
    """
    made: Any = []
    for item in fields(SearchOptions):
        if item.name in names:
            kind: Any = item.type
            default, kind = (False, bool) if kind is bool else (None, kind | None)
            made.append((item.name, kind, field(default=default, metadata=item.metadata)))
    return make_dataclass("SearchArguments", made, bases=(Checked,), frozen=True, kw_only=True)


def cli_overrides(arguments: object) -> Table:
    """The search options that were given on a command line, by name."""
    options = {item.name: getattr(arguments, item.name, None) for item in fields(SearchOptions)}
    return {
        name: value for name, value in options.items() if value is not None and value is not False
    }


def flag(name: str) -> str:
    """An option as it is given: ``--max-len-a``."""
    return "--" + name.replace("_", "-")
