"""fairseq's generator with our beam search: faster, and with the paper's scoring.

Other searches (sampling, constraints, prefixes, alignments, …) are left to fairseq's generator.
"""

import logging
from typing import Any

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from vaswani_transformer.precision import autocast
from vaswani_transformer.search import SearchOptions, search
from vaswani_transformer.vocabulary import SpecialIds

from .config import ConfigError
from .decoder import VaswaniDecoder
from .encoder import memory_of

logger = logging.getLogger(__name__)

Result = dict[str, Tensor]
"""A hypothesis in fairseq's form: ``tokens``, ``score``, ``positional_scores``, and ``attention``
and ``alignment``, which are empty here. All on the CPU."""


class VaswaniSequenceGenerator(SequenceGenerator):
    """fairseq's generator with a search of our own.

    Args:
        models: as in fairseq; our search is used for a single model of this plugin
        tgt_dict: the target dictionary
        length_penalty: ``fairseq`` (``--lenpen`` is a power of the length, results equal those of
            fairseq's search) or ``gnmt`` (``--lenpen`` is α of section 6.1, tensor2tensor's search)
        nbest: results per sentence; ``gnmt`` stops when it has that many
        options: fairseq's, see its SequenceGenerator
    """

    def __init__(
        self,
        models: list[Any],
        tgt_dict: Any,
        length_penalty: str = "fairseq",
        nbest: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(models, tgt_dict, **options)
        self.length_penalty = length_penalty
        self.ids = SpecialIds(tgt_dict.pad(), tgt_dict.eos(), tgt_dict.unk())
        self.options = SearchOptions(
            beam=self.beam_size,
            nbest=min(nbest, self.beam_size),
            lenpen=self.len_penalty if self.normalize_scores else 0.0,
            unkpen=self.unk_penalty,
            max_len_a=self.max_len_a,
            max_len_b=self.max_len_b,
            min_len=self.min_len,
            temperature=self.temperature,
            length_penalty=length_penalty,
            no_repeat_ngram_size=options.get("no_repeat_ngram_size", 0),
        )
        self._reason = self.reason_for_fairseqs_search()
        self._logged: set[str] = set()
        if self._reason:  # here, since processes forked for the search do not warn again
            self.warn_once(self._reason)

    def reason_for_fairseqs_search(self) -> str | None:
        """Return the first reason why our search cannot be used, or None."""
        if self.model.models_size > 1:
            return "an ensemble"
        if not isinstance(getattr(self.model.single_model, "decoder", None), VaswaniDecoder):
            return "a model that is not of this plugin"
        if type(self.search) is not BeamSearch:
            return f"another search ({type(self.search).__name__})"
        if 2 * self.beam_size > self.vocab_size - 4:
            return f"a beam of {self.beam_size} for a vocabulary of {self.vocab_size}"
        unknown = {
            "match_source_len": self.match_source_len,
            "lm_model": self.lm_model,
            "tokens_to_suppress": self.token_indices_to_suppress is not None,
            "eos": self.eos != self.tgt_dict.eos(),
        }
        return next((f"the option {name}" for name, is_set in unknown.items() if is_set), None)

    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[Result]]:
        """Return the results of each sentence of a batch, best first.

        Every public method calls this.
        """
        demands = {
            "a prefix": prefix_tokens,
            "constraints": constraints,
            "a first token": bos_token,
        }
        names = (name for name, value in demands.items() if value is not None)
        reason = self._reason or next(names, None)
        if reason is None:
            return self.search_batch(sample["net_input"])
        self.warn_once(reason)
        return super()._generate(sample, prefix_tokens, constraints, bos_token)

    def warn_once(self, reason: str) -> None:
        """Log that fairseq's search is used; warn if it has another length penalty.

        Raises:
            ConfigError: an option was given that does nothing in fairseq's search.
        """
        if self.options.no_repeat_ngram_size:
            raise ConfigError(
                f"--no-repeat-ngram-size cannot be used with {reason}: fairseq's own search, which "
                f"decodes with {reason}, ignores this option on a CPU, so leave out one of the two"
            )
        if reason in self._logged:
            return
        self._logged.add(reason)
        if self.length_penalty == "gnmt":
            logger.warning(
                "%s: decoding with fairseq's own search and its length penalty instead of "
                "--length-penalty gnmt",
                reason,
            )
        else:
            logger.info("%s: decoding with fairseq's own search", reason)

    def search_batch(self, net_input: dict[str, Tensor]) -> list[list[Result]]:
        """Return the results of our search for a batch.

        Raises:
            ConfigError: the greatest length allowed is below the least length required.
            FloatingPointError: the model's output is not a number.
        """
        source = net_input["src_tokens"]
        model = self.model.single_model
        with autocast(model.decoder.precision, source.device):
            memory = memory_of(model.encoder.forward_torchscript(net_input))
            try:
                hypotheses = search(
                    model.decoder, memory, source, self.options, self.max_len, self.ids
                )
            except ValueError as error:
                raise ConfigError(str(error)) from None
        results: list[list[Result]] = [[] for _ in range(len(source))]
        empty = torch.empty(0)
        for number, sentence in enumerate(hypotheses.sentences):
            results[sentence].append(
                {
                    "tokens": hypotheses.tokens[number],
                    "score": hypotheses.scores[number],
                    "positional_scores": hypotheses.token_scores[number],
                    "attention": empty,
                    "alignment": empty,
                }
            )
        return results
