"""How to search for translations: the options of every verb, of a model folder and of Python."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from numbers import Integral, Real
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.options import Checked, check_range, option
from vaswani_transformer.search_options import LENGTH_PENALTIES, SearchOptions

logger = logging.getLogger(__name__)

#: tokens per batch; on a CPU, more gain nothing and leave cores without a batch
CPU_BATCH, GPU_BATCH = 2000, 8000
#: the same on a CPU for a model exported to CTranslate2
EXPORT_CPU_BATCH = 1000

#: what is used of a configuration's section ``generation``, and recorded in a model folder
BEAM_OPTIONS = (
    "beam",
    "nbest",
    "lenpen",
    "unkpen",
    "max_len_a",
    "max_len_b",
    "min_len",
    "no_repeat_ngram_size",
)
#: types of options → what may be given for them in Python, where it is more: numpy's numbers, too
ACCEPTED: dict[object, Any] = {int: Integral, float: Real, int | None: Integral | None}


#: how each is described on a command line, and the limits of numbers
ARGUMENTS: dict[str, Any] = {
    "beam": option(metavar="N", help="beam size", least=1),
    "nbest": option(metavar="N", help="translations per sentence", least=1),
    "lenpen": option(metavar="N", help="length penalty; larger values favour longer translations"),
    "unkpen": option(
        metavar="N", help="penalty for unknown words; larger values give fewer of them"
    ),
    "max_len_a": option(
        metavar="A", help="maximum length of a translation: A · source length + B tokens", least=0
    ),
    "max_len_b": option(metavar="B", help="see --max-len-a", least=0),
    "min_len": option(metavar="N", help="minimum length of a translation in tokens", least=0),
    "length_penalty": option(
        help="formula of the length penalty: length^lenpen, or the paper's "
        "((5 + length) / 6)^lenpen",
        choices=LENGTH_PENALTIES,
    ),
    "temperature": option(metavar="T", help="divide logits by T before the softmax", above=0),
    "no_repeat_ngram_size": option(
        metavar="N",
        help="do not repeat any sequence of N tokens within a translation; 0: no limit",
        least=0,
    ),
    "print_alignment": option(
        help="add columns with the tokens and with the alignment by attention"
    ),
    "replace_unk": option(help="copy the source word where the model outputs <unk>"),
    "max_tokens": option(
        metavar="N",
        help=f"tokens per batch (default: {GPU_BATCH:,} on a GPU, {CPU_BATCH:,} on a CPU, "
        f"{EXPORT_CPU_BATCH:,} for a model exported to CTranslate2 on a CPU)",
        least=1,
    ),
}


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(SearchOptions):
    """How to search, and what to make of what is found."""

    print_alignment: bool = False
    replace_unk: bool = False
    max_tokens: int | None = None
    """None: what suits the device"""

    def __post_init__(self) -> None:
        """Raise UserError, naming the option, for a number outside its limits."""
        for name, argument in ARGUMENTS.items():
            value = getattr(self, name)
            if isinstance(value, Real):
                limits = argument.metadata
                check_range(flag(name), value, limits.get("least"), limits.get("above"))

    @property
    def needs_attention(self) -> bool:
        """Whether translations need an alignment: which subword attends to which."""
        return self.print_alignment or self.replace_unk

    def changed(self, **options: Any) -> "TranslationOptions":
        """Return a copy with some options changed.

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
        """Raise UserError, naming the option, for values that no search can use together.

        This refuses more than fairseq-generate, which replaces impossible values by similar ones,
        whereas our report of a translation states the requested values.
        """
        try:
            super().check()
        except ValueError as error:
            raise UserError(str(error)) from None
        if not self.max_len_a and self.max_len_b < self.min_len:
            raise UserError(
                f"--max-len-b {self.max_len_b} allows fewer words than --min-len {self.min_len} "
                "asks for: raise --max-len-b, lower --min-len, or give --max-len-a"
            )
        if self.nbest > self.beam:
            raise UserError(
                f"--nbest {self.nbest} asks for more translations than --beam {self.beam} finds: "
                f"give --beam {self.nbest}, or a lower --nbest"
            )

    def within_vocabulary(self, types: int) -> "TranslationOptions":
        """Reduce the beam to at most the size of the vocabulary, as in fairseq, with a warning.

        Args:
            types: size of the target dictionary
        """
        widest = types - 1
        if self.beam <= widest:
            return self
        logger.warning(
            "--beam %d is reduced to %d: the dictionary has no more words", self.beam, widest
        )
        return replace(self, beam=widest, nbest=min(self.nbest, widest))


def search_of_configuration(config: Mapping[str, Any]) -> TranslationOptions:
    """Return the search options in a configuration; raise UserError for an invalid number."""
    generation = config["generation"]
    search = {key: generation[key] for key in BEAM_OPTIONS if key in generation}
    penalty = str(config["task"].get("length_penalty") or "fairseq")
    return TranslationOptions(**search, length_penalty=penalty)


def check_search(config: Mapping[str, Any]) -> None:
    """Raise UserError if ``vaswani generate`` cannot search with a configuration."""
    try:
        search_of_configuration(config).check()
    except UserError as error:
        raise UserError(re.sub(r"--[a-z-]+", key_of_flag, str(error))) from None


def key_of_flag(match: re.Match[str]) -> str:
    """Return an option's key in a configuration: ``generation.max_len_b`` for ``--max-len-b``."""
    name = match.group()[2:].replace("-", "_")
    return f"generation.{name}" if name in BEAM_OPTIONS else f"task.{name}"


def as_arguments(names: Sequence[str]) -> Any:
    """Return the dataclass of these options for a command line: None, or False, if not given.

    What is not given is as the model was trained, or packed.
    """
    arguments: Any = []
    for item in fields(TranslationOptions):
        if item.name not in names:
            continue
        kind: Any = item.type
        metadata = ARGUMENTS[item.name].metadata
        if kind is bool:
            arguments.append((item.name, bool, field(default=False, metadata=metadata)))
        else:
            arguments.append((item.name, kind | None, field(default=None, metadata=metadata)))
    return make_dataclass("SearchArguments", arguments, bases=(Checked,), frozen=True, kw_only=True)


def cli_overrides(arguments: object) -> dict[str, Any]:
    """Return the search options that were given on a command line, by name."""
    options = {}
    for item in fields(TranslationOptions):
        value = getattr(arguments, item.name, None)
        if value is not None and value is not False:
            options[item.name] = value
    return options


def flag(name: str) -> str:
    """Return an option's flag: ``--max-len-a``."""
    return "--" + name.replace("_", "-")


# ---- in words ----------------------------------------------------------------------------------

#: the defaults of a search, by name: what a record of earlier versions has besides is not read
DEFAULTS: Mapping[str, Any] = vars(TranslationOptions())


def describe_search(options: Mapping[str, Any]) -> str:
    """Describe a search by its recorded options: ``beam 4, lenpen 0.6``, and other non-defaults."""
    search = {name: options.get(name, default) for name, default in DEFAULTS.items()}
    rule = "gnmt " if search["length_penalty"] == "gnmt" else ""
    parts = [f"beam {search['beam']}", f"lenpen {rule}{search['lenpen']:g}"]
    for name, default in DEFAULTS.items():
        if name not in ("beam", "lenpen", "length_penalty") and search[name] != default:
            parts.append(f"{flag(name)[2:]} {search[name]}")
    return ", ".join(parts)


def differences(options: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Describe how the options of a search differ from another's: ``beam 1, not 4``.

    Args:
        options: by name; what is missing has its default
        other: the other search's
    """
    parts = []
    for name, default in DEFAULTS.items():
        before, after = options.get(name, default), other.get(name, default)
        if before != after:
            parts.append(f"{flag(name)[2:]} {before}, not {after}")
    return ", ".join(parts)
