"""The beam search options that verbs take, and their valid values."""

from dataclasses import dataclass, fields
from typing import Any, Dict, Optional

from vaswani.common.errors import UserError
from vaswani.common.options import option

#: tokens per batch; on a CPU, more gain nothing and leave cores without a batch
CPU_BATCH, GPU_BATCH = 2000, 8000
#: the same on a CPU for a model exported to CTranslate2
EXPORT_CPU_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """fairseq's beam search options, by fairseq's names; None: as the model was trained."""

    beam: Optional[int] = option(metavar="N", help="beam size")
    nbest: Optional[int] = option(metavar="N", help="translations per sentence")
    lenpen: Optional[float] = option(metavar="N", help="larger favours longer translations")
    unkpen: Optional[float] = option(metavar="N", help="larger means fewer unknown words")
    max_len_a: Optional[float] = option(metavar="A", help="at most A · source length + B tokens")
    max_len_b: Optional[int] = option(metavar="B", help="see --max-len-a")
    min_len: Optional[int] = option(metavar="N", help="at least N tokens")
    no_repeat_ngram_size: Optional[int] = option(
        metavar="N", help="never repeat N consecutive tokens"
    )


BEAM_OPTIONS = tuple(item.name for item in fields(BeamOptions))
NOT_NEGATIVE = ("max_len_a", "max_len_b", "min_len")


def given(options: BeamOptions) -> Dict[str, Any]:
    """The beam search options that are not None, by name."""
    found = {name: getattr(options, name) for name in BEAM_OPTIONS}
    return {name: value for name, value in found.items() if value is not None}


def check_search(generation: Any, length_penalty: str = "fairseq") -> None:
    """Raises UserError or ConfigError, naming the option, for values that no search can use.

    This refuses more than fairseq-generate, which replaces impossible values by similar ones,
    whereas our report of a translation states the requested values.
    """
    from transformer_plugin.compat import generation_options

    generation_options.check(generation)
    if length_penalty == "gnmt" and generation.no_repeat_ngram_size > 0:
        raise UserError(
            "--no-repeat-ngram-size needs fairseq's search, which does not have "
            "--length-penalty gnmt: give --length-penalty fairseq, or --no-repeat-ngram-size 0"
        )
    for name in NOT_NEGATIVE:
        if generation[name] < 0:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} must not be negative, but is {generation[name]}")
    check_nbest(generation.nbest, generation.beam)


def check_nbest(nbest: int, beam: int) -> None:
    """Raises UserError if more translations are asked for than a beam finds."""
    if nbest > beam:
        raise UserError(
            f"--nbest {nbest} asks for more translations than --beam {beam} finds: "
            f"give --beam {nbest}, or a lower --nbest"
        )
