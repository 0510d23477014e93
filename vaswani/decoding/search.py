"""How a packed model searches: fairseq's options, by fairseq's names."""

import contextlib
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, Literal, Optional, get_type_hints

from vaswani.common.errors import UserError, nearest
from vaswani.experiment.check_config import check_types, check_values
from vaswani.experiment.option_rules import SEED
from vaswani.model_folder.schema import read_section
from vaswani.model_folder.search_options import BEAM_OPTIONS, check_search

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
    length_penalty: Literal["fairseq", "gnmt"] = "fairseq"
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
        """The same with some options changed.

        Raises:
            TypeError: an unknown option, or a value of another type.
        """
        declared = get_type_hints(SearchOptions)
        for name in options:
            if name not in declared:
                raise TypeError(f"there is no option '{name}'{nearest(name, list(declared))}")
        try:
            check_types(options, declared, "the option ", strict=True)
        except UserError as error:
            raise TypeError(str(error)) from None
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

        for name in ("sampling_topk", "sampling_topp"):
            if getattr(self, name) >= 0 and not self.sampling:
                raise UserError(f"--{name.replace('_', '-')} has no effect without --sampling")
        check_values(vars(self), {"seed": SEED}, "--")
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
    """The options in the section ``generation`` of a model folder; UserError if it is none."""
    return read_section(SearchOptions, table, f"{where}: generation")


@contextlib.contextmanager
def seeded(options: SearchOptions, sample: Dict[str, Any]) -> Iterator[None]:
    """While a batch is searched, make random numbers depend only on the seed and the batch."""
    if not options.sampling:
        yield
        return
    import torch

    source = sample["net_input"]["src_tokens"]
    devices = [source.device] if source.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(options.seed * 1_000_003 + int(sample["id"].min()))
        yield
