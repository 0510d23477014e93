"""Beam search (section 6.1) with a cache: each step computes only the newest token.

Shape letters: N sentences, S source, k beam, R = N·k rows (hypotheses), V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..cache import DecoderCache
from ..encoder import Memory
from ..loss import accumulation_dtype
from ..search_options import SearchOptions
from ..vocabulary import FAIRSEQ_IDS, SpecialIds
from .history import Hypotheses
from .loop import search_loop
from .repeats import WithoutRepeats
from .scoring_rules import FairseqRule, GnmtRule, Rule


def rule_and_limit(
    options: SearchOptions,
    source: Tensor,
    max_len: int = 10**6,
    ids: SpecialIds = FAIRSEQ_IDS,
) -> tuple[Rule, int]:
    """Return the rule for a batch [N, S], and its greatest length in tokens.

    Args:
        options: of the search
        source: the batch
        max_len: the greatest length that the model can give
        ids: of padding

    Raises:
        ValueError: the greatest length allowed is below the least length required.
    """
    longest = int(options.max_len_a * source.size(1) + options.max_len_b)
    # fairseq's bound excludes the end of sentence and counts pads; tensor2tensor's includes the
    # end, and pads are subtracted below, so that a result does not depend on the batch
    limit = min(longest + (options.length_penalty == "fairseq"), max_len)
    if limit <= options.min_len:
        raise ValueError(
            f"--max-len-a {options.max_len_a} and --max-len-b {options.max_len_b} allow {limit} "
            f"tokens including the end of sentence, but --min-len {options.min_len} asks for more: "
            "raise --max-len-b, or lower --min-len"
        )
    if options.length_penalty == "fairseq":
        return FairseqRule(options.lenpen, len(source), options.beam, source.device), limit
    lengths = source.ne(ids.pad).sum(1)
    limits = (lengths.double() * options.max_len_a + options.max_len_b).floor()
    limits = limits.clamp(min=options.min_len + 1, max=limit)
    return GnmtRule(options.lenpen, limits, min(options.nbest, options.beam)), limit


class IncrementalModel:
    """A model during a search: its cache, and the options that change its probabilities.

    The search asks it for log-probabilities, and tells it which hypotheses continue.

    Args:
        options: of the search
        decoder: the decoder of the model
        memory: of the batch
        limit: the greatest length in tokens
        ids: of the special types
    """

    def __init__(
        self, options: SearchOptions, decoder: Any, memory: Memory, limit: int, ids: SpecialIds
    ) -> None:
        self.options = options
        self.decoder = decoder
        self.memory = memory
        self.limit = limit
        self.ids = ids
        self.cache = DecoderCache(len(decoder.layers))
        #: whether the k hypotheses of a sentence use one copy of its keys and values
        self.shared = shares_keys(decoder)

    def log_probs(self, tokens: Tensor, length: int) -> Tensor:
        """Return log-probabilities [R, V] of token ``length`` after the tokens [R].

        A token that is forbidden has -inf.
        """
        options = self.options
        ids = self.ids
        logits = self.decoder.step(tokens, self.memory, self.cache)
        if options.temperature != 1:
            logits = logits / options.temperature
        log_probs = torch.log_softmax(logits, dim=-1, dtype=accumulation_dtype(logits.dtype))
        log_probs[:, ids.pad] = float("-inf")
        log_probs[:, ids.unk] -= options.unkpen
        if length <= options.min_len:
            log_probs[:, ids.eos] = float("-inf")
        if length == self.limit and options.length_penalty == "fairseq":  # only an end
            ends = log_probs[:, ids.eos].clone()
            log_probs.fill_(float("-inf"))[:, ids.eos] = ends
        return log_probs

    def reorder(self, rows: Tensor) -> None:
        """Replace the cache of row i by that of row ``rows[i]``."""
        self.cache.reorder(rows)
        if not self.shared:
            self.select(rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop all sentences except these, int64 [N'].

        A call of :meth:`reorder` follows for their rows.
        """
        if self.shared:  # otherwise the next call of reorder drops their rows
            self.select(sentences)

    def select(self, order: Tensor) -> None:
        """Replace entry i of the source's memory and cache by entry ``order[i]``."""
        self.cache.select_sentences(order)
        self.memory = self.memory.select(order)


def shares_keys(decoder: nn.Module) -> bool:
    """Return whether k hypotheses can share their sentence's keys and values in every layer."""
    return all(getattr(layer.cross_attention, "shares_keys", False) for layer in decoder.layers)


@torch.no_grad()
def search(
    decoder: Any,
    memory: Memory,
    source: Tensor,
    options: SearchOptions,
    max_len: int = 10**6,
    ids: SpecialIds = FAIRSEQ_IDS,
) -> Hypotheses:
    """Return the ``beam`` best hypotheses of each sentence of a batch [N, S], best first.

    Raises:
        ValueError: the options are invalid.
        FloatingPointError: the model's output is not a number.
    """
    options.check()
    rule, limit = rule_and_limit(options, source, max_len, ids)
    model: Any = IncrementalModel(options, decoder, memory, limit, ids)
    if options.no_repeat_ngram_size:
        model = WithoutRepeats(model, options.no_repeat_ngram_size, ids.eos)
    history = search_loop(model, rule, len(source), options.beam, ids.eos, limit, source.device)
    hypotheses = history.hypotheses(rule.penalty, options.beam)
    if hypotheses.scores.isnan().any() or len(set(hypotheses.sentences)) < len(source):
        raise FloatingPointError(
            "the model's scores are not numbers (NaN), because its training has diverged or the "
            "checkpoint is damaged: use an earlier checkpoint"
        )
    return hypotheses


@torch.no_grad()
def beam_search(
    model: nn.Module,
    source: Tensor,
    beam: int = 4,
    alpha: float = 0.6,
    extra: int = 50,
    ids: SpecialIds = FAIRSEQ_IDS,
) -> list[list[int]]:
    """Return the best translation of each sentence, by the beam search of section 6.1.

    Args:
        model: a trained Transformer, in evaluation mode
        source: ids [N, S], padded on either side
        beam: k
        alpha: of the length penalty ((5 + length) / 6)^alpha
        extra: the greatest length is the source's plus this
        ids: of padding and of the end of a sentence

    Returns:
        The ids of each translation with its end token; only the end token for a row of padding.
    """
    lengths = {"max_len_a": 1, "max_len_b": extra, "min_len": 0}
    options = SearchOptions(beam=beam, lenpen=alpha, length_penalty="gnmt", **lengths)
    translations = [[ids.eos] for _ in source]
    rows = source.ne(ids.pad).any(dim=1).nonzero()[:, 0]  # those with a sentence
    if not len(rows):
        return translations
    source = source[rows]
    hypotheses = search(model.decoder, model.encoder(source), source, options, ids=ids)
    for n in reversed(range(len(hypotheses.sentences))):  # the best of a sentence comes first
        row = int(rows[hypotheses.sentences[n]])
        translations[row] = hypotheses.tokens[n].tolist()
    return translations
