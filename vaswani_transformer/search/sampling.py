"""Translations drawn by their probability, where beam search looks for the likeliest.

Shape letters: N sentences, S source, R = N·k rows, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..encoder import Memory
from ..vocabulary import EOS
from .incremental import IncrementalModel, SearchOptions


class Sampled(NamedTuple):
    """One translation that was drawn."""

    tokens: list[int]
    token_scores: list[float]
    """the log-probability of each token, before the others were cut off"""


def truncate(log_probs: Tensor, topk: int = 0, topp: float = 0.0) -> Tensor:
    """[R, V], -inf for all but the ``topk`` likeliest, or the fewest with ``topp`` together."""
    if topk > 0:
        worst = log_probs.topk(min(topk, log_probs.size(1))).values[:, -1:]
        return log_probs.masked_fill(log_probs < worst, float("-inf"))
    if topp > 0:
        ordered, places = log_probs.sort(descending=True)
        before = ordered.exp().cumsum(1) - ordered.exp()  # of all that are likelier
        ordered = ordered.masked_fill(before >= topp, float("-inf"))
        return torch.empty_like(log_probs).scatter_(1, places, ordered)
    return log_probs


@torch.no_grad()
def sample(
    decoder: Any,
    memory: Memory,
    source: Tensor,
    options: SearchOptions,
    topk: int = 0,
    topp: float = 0.0,
) -> list[list[Sampled]]:
    """``options.beam`` independent draws for each sentence of a batch [N, S]."""
    _, limit = options.rule_and_limit(source)
    model = IncrementalModel(options, decoder, memory, limit)
    rows = torch.arange(len(source), device=source.device).repeat_interleave(options.beam)
    tokens, drawn, scores = source.new_full((len(source),), EOS), [], []
    ended = torch.zeros(len(rows), dtype=torch.bool, device=source.device)
    for length in range(1, limit + 1):
        log_probs = model.log_probs(tokens, length)
        if length == 1 and options.beam > 1:
            model.reorder(rows)
            log_probs = log_probs[rows]
        tokens = truncate(log_probs, topk, topp).exp().multinomial(1)[:, 0]  # [R]
        drawn.append(tokens)
        scores.append(log_probs.gather(1, tokens[:, None])[:, 0])
        ended |= tokens.eq(EOS)
        if ended.all():
            break
    found = []
    for row, of_row in zip(torch.stack(drawn, 1).tolist(), torch.stack(scores, 1).tolist()):  # noqa: B905
        length = row.index(EOS) + 1 if EOS in row else len(row)
        found.append(Sampled(row[:length], of_row[:length]))
    return [found[n : n + options.beam] for n in range(0, len(found), options.beam)]
