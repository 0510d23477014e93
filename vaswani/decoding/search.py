"""How a packed model searches: fairseq's options, by fairseq's names."""

from dataclasses import dataclass, fields, replace
from typing import Any, Dict, Optional

from vaswani.errors import UserError
from vaswani.search_options import BEAM_OPTIONS, check_search

#: fairseq's options that only apply to sampling
SAMPLING = ("sampling", "sampling_topk", "sampling_topp", "temperature")


@dataclass(frozen=True)
class SearchOptions:
    """fairseq's generation options, with fairseq's defaults, and a few more."""

    beam: int = 5
    nbest: int = 1
    lenpen: float = 1.0
    unkpen: float = 0.0
    max_len_a: float = 0.0
    max_len_b: int = 200
    min_len: int = 1
    no_repeat_ngram_size: int = 0
    #: what lenpen means: "fairseq", a power of the length, or "gnmt", the paper's formula
    length_penalty: str = "fairseq"
    #: draw words by their probability, instead of beam search
    sampling: bool = False
    sampling_topk: int = -1
    sampling_topp: float = -1.0
    temperature: float = 1.0
    #: for sampling
    seed: int = 1
    #: which words look at which
    print_alignment: bool = False
    #: copy the source word where the model outputs an unknown word
    replace_unk: bool = False
    #: tokens per batch; None: what suits the device
    max_tokens: Optional[int] = None

    def changed(self, **options: Any) -> "SearchOptions":
        """The same with some options changed; raises TypeError for an unknown option."""
        return replace(self, **options)

    def generation(self, types: int) -> Any:
        """fairseq's section ``generation``.

        Args:
            types: size of the target dictionary

        Raises:
            UserError, ConfigError: an invalid option.
        """
        from fairseq.dataclass.configs import GenerationConfig
        from omegaconf import OmegaConf

        if self.length_penalty not in ("fairseq", "gnmt"):
            raise UserError(
                f"--length-penalty is {self.length_penalty!r}; it may be fairseq or gnmt"
            )
        for name in ("sampling_topk", "sampling_topp"):
            if getattr(self, name) > 0 and not self.sampling:
                raise UserError(f"--{name.replace('_', '-')} has no effect without --sampling")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UserError(f"--max-tokens is {self.max_tokens}, but must be at least 1")
        given = {name: getattr(self, name) for name in (*BEAM_OPTIONS, *SAMPLING)}
        generation = OmegaConf.merge(OmegaConf.structured(GenerationConfig), given)
        check_search(generation, self.length_penalty)
        if self.beam > types:
            raise UserError(
                f"--beam {self.beam} is more than the {types:,} types of the target dictionary: "
                "give a lower one"
            )
        return generation


def search_options(table: Dict[str, Any], where: str) -> SearchOptions:
    """The options in the section ``generation`` of a model folder."""
    known = {item.name for item in fields(SearchOptions)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise UserError(f"{where}: section 'generation' was altered: it has '{unknown[0]}'")
    return SearchOptions(**table)
