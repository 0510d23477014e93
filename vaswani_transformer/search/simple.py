"""The shortest forms of the search (section 6.1): without a cache, a few lines each.

They call the model on the whole prefix in each step, so a translation of T tokens takes T times as
long as with a cache. :mod:`.incremental` has the same results.

Shape letters: B sentences, S source, k beam, T tokens so far, V vocabulary.
"""

import torch
from torch import Tensor, nn

from ..vocabulary import FAIRSEQ_IDS, SpecialIds


@torch.no_grad()
def greedy_decode(
    model: nn.Module, source: Tensor, max_len: int = 200, ids: SpecialIds = FAIRSEQ_IDS
) -> list[list[int]]:
    """Return translations that take the most probable token in each step: ids of each sentence.

    Args:
        model: a trained Transformer, in evaluation mode
        source: ids [B, S], padded on either side
        max_len: the greatest length in tokens
        ids: of padding and of the end of a sentence

    Returns:
        The ids of each translation, with its end token if it has ended.
    """
    target = source.new_full((len(source), 1), ids.eos)
    is_empty = source.eq(ids.pad).all(dim=1)  # [B], rows without a sentence, which end at once
    source = source.masked_fill(is_empty[:, None], ids.eos)  # attention over nothing would be NaN
    for _ in range(max_len):
        logits = model(source, target)[:, -1]  # [B, V]
        logits[:, ids.pad] = float("-inf")
        tokens = logits.argmax(-1).masked_fill(is_empty, ids.eos)
        target = torch.cat([target, tokens[:, None]], dim=1)  # [B, 1 + T]
        if target[:, 1:].eq(ids.eos).any(1).all():
            break
    rows = target[:, 1:].tolist()
    return [row[: row.index(ids.eos) + 1] if ids.eos in row else row for row in rows]


@torch.no_grad()
def simple_beam_search(
    model: nn.Module,
    source: Tensor,
    beam: int = 4,
    alpha: float = 0.6,
    extra: int = 50,
    ids: SpecialIds = FAIRSEQ_IDS,
) -> list[int]:
    """Return the best of k hypotheses by log P / ((5 + length) / 6)^alpha, as in the paper (6.1).

    Args:
        model: a trained Transformer, in evaluation mode
        source: the ids of one sentence [1, S]
        beam: k
        alpha: of the length penalty
        extra: the greatest length is the source's plus this
        ids: of padding and of the end of a sentence
    """
    limit = source.size(1) + extra
    rows = source.new_full((1, 1), ids.eos)
    scores = torch.zeros(1, device=source.device)
    best = rows[0]
    best_score = float("-inf")
    for length in range(1, limit + 1):
        log_probs = torch.log_softmax(model(source.expand(len(rows), -1), rows)[:, -1], dim=-1)
        log_probs[:, ids.pad] = float("-inf")
        totals = (scores[:, None] + log_probs).flatten()  # [k·V]
        scores, places = totals.topk(2 * beam)  # at most k of these 2k are ends: k can go on
        parents, tokens = places // log_probs.size(1), places % log_probs.size(1)
        rows = torch.cat([rows[parents], tokens[:, None]], dim=1)  # [2k, 1 + length]
        ended = tokens.eq(ids.eos)
        for row, score in zip(rows[ended], scores[ended] / ((5 + length) / 6) ** alpha):  # noqa: B905
            if score > best_score:
                best = row
                best_score = float(score)
        rows, scores = rows[~ended][:beam], scores[~ended][:beam]
        if best_score > scores[0] / ((5 + limit) / 6) ** alpha:
            break  # log P only falls, and its divisor is greatest at the limit
    return (rows[0] if best_score == float("-inf") else best)[1:].tolist()
