"""fairseq's generator with our beam search: quick, and with the paper's scoring.

Other searches (sampling, constraints, prefixes, alignments, …) are left to fairseq's generator.
"""

import logging
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ..cache import DecoderCache
from ..config import ConfigError
from ..decoder import VaswaniDecoder
from ..loss import accumulation_dtype
from ..precision import autocast
from .beam_search import beam_search
from .scoring_rules import FairseqRule, GnmtRule, Rule

logger = logging.getLogger(__name__)

Result = Dict[str, Tensor]
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

    Raises:
        ConfigError: ``gnmt`` with a negative ``len_penalty``.
    """

    def __init__(
        self,
        models: List[Any],
        tgt_dict: Any,
        length_penalty: str = "fairseq",
        nbest: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(models, tgt_dict, **options)
        self.length_penalty = length_penalty
        self.nbest = min(nbest, self.beam_size)
        if length_penalty == "gnmt" and self.len_penalty < 0:
            raise ConfigError(
                f"--lenpen {self.len_penalty} is negative, which --length-penalty gnmt cannot be: "
                "give 0 or more (0.6 in the paper), or --length-penalty fairseq"
            )
        self._reason = self.reason_for_fairseqs_search()
        self._logged: Set[str] = set()

    def reason_for_fairseqs_search(self) -> Optional[str]:
        """The first reason why our search cannot be used, or None."""
        if self.model.models_size > 1:
            return "an ensemble"
        if not isinstance(getattr(self.model.single_model, "decoder", None), VaswaniDecoder):
            return "a model that is not of this plugin"
        if type(self.search) is not BeamSearch:
            return f"another search ({type(self.search).__name__})"
        if 2 * self.beam_size > self.vocab_size - 4:
            return f"a beam of {self.beam_size} for {self.vocab_size} types"
        unknown = {
            "match_source_len": self.match_source_len,
            "no_repeat_ngram_size": self.repeat_ngram_blocker,
            "lm_model": self.lm_model,
            "tokens_to_suppress": self.token_indices_to_suppress is not None,
            "eos": self.eos != self.tgt_dict.eos(),
        }
        return next((f"the option {name}" for name, given in unknown.items() if given), None)

    def _generate(
        self,
        sample: Dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
        bos_token: Optional[int] = None,
    ) -> List[List[Result]]:
        """The results of each sentence of a batch, best first; every public method calls this."""
        given = {"a prefix": prefix_tokens, "constraints": constraints, "a first token": bos_token}
        reason = self._reason
        for name, value in given.items():
            reason = reason or (None if value is None else name)
        if "src_tokens" not in sample["net_input"]:
            reason = reason or "an input that is not tokens"
        if reason is None:
            return self.search_batch(sample["net_input"])
        self.log_once(reason)
        return super()._generate(sample, prefix_tokens, constraints, bos_token)

    def log_once(self, reason: str) -> None:
        """Log that fairseq's search is used, and what that means for the scores."""
        if reason in self._logged:
            return
        self._logged.add(reason)
        if self.length_penalty == "gnmt":
            logger.warning(
                "%s: decoding with fairseq's own search, with its length penalty, not "
                "--length-penalty gnmt",
                reason,
            )
        else:  # it gives the same results, only more slowly
            logger.info("%s: decoding with fairseq's own search", reason)

    def search_batch(self, net_input: Dict[str, Tensor]) -> List[List[Result]]:
        """Our search.

        Raises:
            ConfigError: the greatest length allowed is below the least length required.
            FloatingPointError: the model's output is not a number.
        """
        source = net_input["src_tokens"]
        sentences, beam = len(source), self.beam_size
        model = self.model.single_model
        rule, limit = self.rule_and_limit(source)
        with autocast(model.decoder.precision, source.device):
            encoder_out = model.encoder.forward_torchscript(net_input)
            decoding = IncrementalModel(self, model, encoder_out, limit)
            history = beam_search(decoding, rule, sentences, beam, self.eos, limit, source.device)
        hypotheses = history.hypotheses(rule.penalty, beam)
        if hypotheses.scores.isnan().any() or len(set(hypotheses.sentences)) < sentences:
            raise FloatingPointError(
                "the model's scores are not numbers (NaN): its training has diverged, or the "
                "checkpoint is damaged; decode an earlier one"
            )
        results: List[List[Result]] = [[] for _ in range(sentences)]
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

    def rule_and_limit(self, source: Tensor) -> Tuple[Rule, int]:
        """The rule for this batch, and its greatest length in tokens."""
        power = self.len_penalty if self.normalize_scores else 0.0
        longest = int(self.max_len_a * source.size(1) + self.max_len_b)
        # fairseq's bound leaves the end of sentence out and counts pads; tensor2tensor's includes
        # the end, and pads are left out below, so that a sentence's neighbours do not matter
        limit = min(longest + (self.length_penalty == "fairseq"), self.max_len)
        if limit <= self.min_len:
            raise ConfigError(
                f"--max-len-a {self.max_len_a} and --max-len-b {self.max_len_b} allow {limit} "
                f"tokens with the end of sentence, but --min-len {self.min_len} asks for more"
            )
        if self.length_penalty == "fairseq":
            return FairseqRule(power, len(source), self.beam_size, source.device), limit
        lengths = source.ne(self.pad).sum(1)
        limits = (lengths.double() * self.max_len_a + self.max_len_b).floor()
        limits = limits.clamp(min=self.min_len + 1, max=limit)
        return GnmtRule(power, limits, self.nbest), limit


class IncrementalModel:
    """A model during a search: its caches, and the options that change its probabilities.

    It is the :class:`transformer_plugin.search.beam_search.NextTokenModel` of that search.

    Args:
        options: the generator
        model: this plugin's
        encoder_out: of the batch
        limit: the greatest length in tokens
    """

    def __init__(
        self, options: VaswaniSequenceGenerator, model: Any, encoder_out: Any, limit: int
    ) -> None:
        self.options = options
        self.model = model
        self.encoder_out = encoder_out
        self.cache = DecoderCache(len(model.decoder.layers))
        self.limit = limit

    def log_probs(self, tokens: Tensor, length: int) -> Tensor:
        """[R] → [R, V], for rows R and vocabulary V; what an option forbids is -inf."""
        options = self.options
        logits = self.model.decoder.step(tokens, self.encoder_out, self.cache)
        if options.temperature != 1:
            logits = logits / options.temperature
        log_probs = torch.log_softmax(logits, dim=-1, dtype=accumulation_dtype(logits.dtype))
        log_probs[:, options.pad] = float("-inf")
        log_probs[:, options.unk] -= options.unk_penalty
        if length <= options.min_len:
            log_probs[:, options.eos] = float("-inf")
        if length == self.limit and options.length_penalty == "fairseq":  # only an end
            ends = log_probs[:, options.eos].clone()
            log_probs.fill_(float("-inf"))[:, options.eos] = ends
        return log_probs

    def reorder(self, rows: Tensor) -> None:
        """Row i continues what was row ``rows[i]``."""
        self.cache.reorder(rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop all sentences except these."""
        self.cache.select_sentences(sentences)
        self.encoder_out = self.model.encoder.reorder_encoder_out(self.encoder_out, sentences)
