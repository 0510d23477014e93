"""How to search for translations: the options of every verb, of a model folder and of Python."""

import logging
import math
from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import (
    Any,
    Dict,
    List,
    Literal,
    Optional,
    Sequence,
    get_args,
    get_origin,
    get_type_hints,
)

from vaswani.common.errors import UserError
from vaswani.common.options import option
from vaswani.model_folder.schema import read_section

logger = logging.getLogger(__name__)

#: tokens per batch; on a CPU, more gain nothing and leave cores without a batch
CPU_BATCH, GPU_BATCH = 2000, 8000
#: the same on a CPU for a model exported to CTranslate2
EXPORT_CPU_BATCH = 1000

#: what is used of an experiment's section ``generation``, and recorded in a model folder
BEAM_OPTIONS = ("beam", "nbest", "lenpen", "unkpen", "max_len_a", "max_len_b", "min_len")
#: fairseq's options that only apply to sampling
SAMPLING = ("sampling", "sampling_topk", "sampling_topp", "temperature")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """fairseq's generation options, with fairseq's names and defaults, and a few more."""

    beam: int = option(5, metavar="N", help="beam size")
    nbest: int = option(1, metavar="N", help="translations per sentence")
    lenpen: float = option(1.0, metavar="N", help="larger favours longer translations")
    unkpen: float = option(0.0, metavar="N", help="larger means fewer unknown words")
    max_len_a: float = option(0.0, metavar="A", help="at most A · source length + B tokens")
    max_len_b: int = option(200, metavar="B", help="see --max-len-a")
    min_len: int = option(1, metavar="N", help="at least N tokens")
    length_penalty: Literal["fairseq", "gnmt"] = option(
        "fairseq", help="what --lenpen means: a power of the length, or the paper's formula"
    )
    sampling: bool = option(False, help="draw words by their probability, instead of beam search")
    sampling_topk: int = option(-1, metavar="N", help="draw from the N likeliest words")
    sampling_topp: float = option(
        -1.0, metavar="P", help="draw from the likeliest words with a joint probability of P"
    )
    temperature: float = option(1.0, metavar="T", help="divide logits by T before the softmax")
    seed: int = option(1, metavar="N", help="the seed of --sampling")
    print_alignment: bool = option(
        False, help="add columns: tokens, and which words attend to which"
    )
    replace_unk: bool = option(False, help="copy the source word where the model outputs <unk>")
    #: None: what suits the device
    max_tokens: Optional[int] = option(
        None,
        metavar="N",
        help=f"tokens per batch ({CPU_BATCH:,} on a CPU, of an export {EXPORT_CPU_BATCH:,}; "
        f"{GPU_BATCH:,} on a GPU)",
    )

    @property
    def needs_attention(self) -> bool:
        """Whether it has to be known which subwords attend to which."""
        return self.print_alignment or self.replace_unk

    def changed(self, **options: Any) -> "SearchOptions":
        """The same with some options changed.

        Raises:
            TypeError: an unknown option, or a value of another type.
        """
        for name, value in options.items():
            usual = getattr(SearchOptions, name, None)
            types = (int, float) if isinstance(usual, float) else (type(usual),)
            if usual is not None and type(value) not in types:
                raise TypeError(f"the option {name} is {value!r}, but is of type {types[-1].__name__}")
        return replace(self, **options)

    def check(self) -> None:
        """Raises UserError, naming the option, for values that no search can use.

        This refuses more than fairseq-generate, which replaces impossible values by similar ones,
        whereas our report of a translation states the requested values.
        """
        for name in ("sampling_topk", "sampling_topp"):
            if not (getattr(self, name) < 0 or self.sampling):  # also if it is NaN
                raise UserError(f"{flag(name)} has no effect without --sampling")
        if not math.isfinite(self.lenpen):
            raise UserError(f"--lenpen must be a finite number, not {self.lenpen}")
        if self.length_penalty == "gnmt" and self.lenpen < 0:
            raise UserError(
                f"--lenpen {self.lenpen} is negative, which --length-penalty gnmt cannot be: give "
                "0 or more (0.6 in the paper), or --length-penalty fairseq"
            )
        for name in ("beam", "nbest", "temperature"):
            if getattr(self, name) <= 0:
                raise UserError(f"{flag(name)} must be above 0, not {getattr(self, name)}")
        if not self.max_len_a and self.max_len_b < self.min_len:
            raise UserError(
                f"--max-len-b {self.max_len_b} allows fewer words than --min-len {self.min_len} "
                "asks for: raise the one, lower the other, or give --max-len-a"
            )
        check_nbest(self.nbest, self.beam)

    def generation(self) -> Any:
        """fairseq's section ``generation``; UserError for an option that no search can use."""
        from fairseq.dataclass.configs import GenerationConfig
        from omegaconf import OmegaConf

        self.check()
        given = {name: getattr(self, name) for name in (*BEAM_OPTIONS, *SAMPLING)}
        return OmegaConf.merge(OmegaConf.structured(GenerationConfig), given)


def search_options(table: Dict[str, Any], where: str) -> SearchOptions:
    """The options in the section ``generation`` of a model folder; UserError if it is none."""
    table = dict(table)
    if table.pop("no_repeat_ngram_size", 0):  # folders of earlier versions have it, mostly 0
        raise UserError(f"{where}: generation.no_repeat_ngram_size is not supported: make it 0")
    return read_section(SearchOptions, table, f"{where}: generation")


def as_arguments(names: Sequence[str]) -> Any:
    """A dataclass of these search options for a command line: None, or False, if not given.

    What is not given is as the model was trained, or packed.
    """
    hints = get_type_hints(SearchOptions)
    made: List[Any] = []
    for item in fields(SearchOptions):
        if item.name in names:
            kind, metadata = hints[item.name], dict(item.metadata)
            if get_origin(kind) is Literal:
                kind, metadata["choices"] = str, get_args(kind)
            kind, default = (bool, False) if kind is bool else (Optional[kind], None)
            made.append((item.name, kind, field(default=default, metadata=metadata)))
    return make_dataclass("SearchArguments", made, frozen=True, kw_only=True)


def given(arguments: Any) -> Dict[str, Any]:
    """The search options that were given on a command line, by name."""
    options = {item.name: getattr(arguments, item.name, None) for item in fields(SearchOptions)}
    return {
        name: value for name, value in options.items() if value is not None and value is not False
    }


def check_for_ctranslate2(options: SearchOptions) -> None:
    """Raises UserError for options that CTranslate2 lacks, or that no search can use."""
    sampling = options.sampling or not (options.sampling_topk < 0 and options.sampling_topp < 0)
    lacking = {
        "--length-penalty gnmt": options.length_penalty != "fairseq"
        and "it divides by a power of the length alone; --lenpen is the power",
        "--sampling": sampling
        and "its random numbers depend on the thread, so a seed would not give the same text",
        "--temperature": options.temperature != 1 and "its beam search has none",
        "--unkpen": options.unkpen and "it has no penalty for unknown words",
    }
    for name, reason in lacking.items():
        if reason:
            raise UserError(f"{name} is unavailable for a model exported to CTranslate2: {reason}")
    options.check()


def flag(name: str) -> str:
    """An option as it is given: ``--max-len-a``."""
    return "--" + name.replace("_", "-")


def check_nbest(nbest: int, beam: int) -> None:
    """Raises UserError if more translations are asked for than a beam finds."""
    if nbest > beam:
        raise UserError(
            f"--nbest {nbest} asks for more translations than --beam {beam} finds: "
            f"give --beam {nbest}, or a lower --nbest"
        )


def within_vocabulary(options: SearchOptions, types: int) -> SearchOptions:
    """The options with a beam of at most the words that there are; a warning names the reduced one.

    As in fairseq, whose generator does it by itself.

    Args:
        options: of the search
        types: size of the target dictionary
    """
    most = types - 1
    if options.beam <= most:
        return options
    logger.warning(
        "--beam %d is reduced to %d: the dictionary has no more words", options.beam, most
    )
    return replace(options, beam=most, nbest=min(options.nbest, most))
