"""The same model written in other ways: the card has nothing to say of any.

Shape letters: B batch, L length, H heads, K d_k.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.plain import student
from transformer_check import check
from transformer_check.findings import DIFFERENCE, ERROR, NOT_RUN, VARIANT

pytestmark = pytest.mark.slow

Forward = Callable[[Any, Tensor, Tensor, Tensor, Tensor | None], Tensor]


def projected(self: Any, x: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
    """Return queries, keys and values: [B, H, L, K]."""
    return [self.split(self.q(x)), self.split(self.k(keys)), self.split(self.v(values))]


def fused(self: Any, x: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
    """Attend with one kernel of torch's."""
    y = F.scaled_dot_product_attention(*projected(self, x, keys, values), attn_mask=mask)
    return self.out(y.transpose(1, 2).flatten(2))


def one_head_after_another(self: Any, x: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
    """Attend with a softmax for each head."""
    heads = []
    for q, k, v in zip(*(p.unbind(1) for p in projected(self, x, keys, values)), strict=True):
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores + torch.where(mask[:, 0], 0.0, -1e9)
        heads.append(torch.softmax(scores, dim=-1) @ v)
    return self.out(torch.cat(heads, dim=-1))


def by_einsum(self: Any, x: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
    """Attend with heads behind the length, and scores scaled in place."""
    q, k, v = (p.transpose(1, 2) for p in projected(self, x, keys, values))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k)
    scores *= q.size(-1) ** -0.5
    if mask is not None:
        scores.masked_fill_(mask.logical_not(), -1e9)
    return self.out(torch.einsum("bhqk,bkhd->bqhd", F.softmax(scores, -1), v).flatten(2))


def both_scaled(self: Any, x: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
    """Attend with queries and keys scaled by the fourth root, and sentences and heads merged."""
    root = torch.tensor(self.q.out_features / self.heads) ** 0.25
    q, k, v = (p.flatten(0, 1) for p in projected(self, x, keys, values))
    scores = torch.bmm(q / root, (k / root).transpose(1, 2)).unflatten(0, (-1, self.heads))
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    heads = scores.softmax(-1) @ v.unflatten(0, (-1, self.heads))
    return self.out(heads.transpose(1, 2).reshape(*x.shape[:2], -1))


def of_torchs_function(self: Any, x: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
    """Attend with torch's function, sequence first; its masks are True where they hide."""
    hidden = None
    if mask is not None:
        size = (x.size(0), self.heads, x.size(1), keys.size(1))
        hidden = mask.logical_not().expand(size).flatten(0, 1)
    y, _ = F.multi_head_attention_forward(
        *(each.transpose(0, 1) for each in (x, keys, values)),
        embed_dim_to_check=x.size(-1),
        num_heads=self.heads,
        in_proj_weight=None,
        in_proj_bias=torch.cat([self.q.bias, self.k.bias, self.v.bias]),
        bias_k=None,
        bias_v=None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=self.out.weight,
        out_proj_bias=self.out.bias,
        need_weights=True,
        attn_mask=hidden,
        use_separate_proj_weight=True,
        q_proj_weight=self.q.weight,
        k_proj_weight=self.k.weight,
        v_proj_weight=self.v.weight,
    )
    return y.transpose(0, 1)


def heads_in_the_batch(self: Any, x: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
    """Attend with scaled queries, cut by heads and stacked in the batch."""

    def stacked(y: Tensor) -> Tensor:
        return torch.cat(y.chunk(self.heads, dim=-1), dim=0)

    q = stacked(self.q(x) * (self.q.out_features // self.heads) ** -0.5)
    scores = q @ stacked(self.k(keys)).mT
    if mask is not None:
        shape = (self.heads, x.size(0), x.size(1), keys.size(1))
        hidden = mask[:, 0].logical_not().expand(shape).flatten(0, 1)
        scores = scores.masked_fill(hidden, float("-inf"))
    heads = torch.softmax(scores, -1) @ stacked(self.v(values))
    return self.out(torch.cat(heads.chunk(self.heads, dim=0), dim=-1))


ATTENTIONS: dict[str, Forward] = {
    "one kernel": fused,
    "one head after another": one_head_after_another,
    "einsum": by_einsum,
    "both scaled": both_scaled,
    "torch's function": of_torchs_function,
    "heads in the batch": heads_in_the_batch,
}


def quiet(adapter: Any) -> None:
    card = check(adapter)
    assert not card.ids(DIFFERENCE, VARIANT, ERROR), card.text()
    unchecked = card.ids(NOT_RUN)
    assert all(card[check_id].reason == "define translate" for check_id in unchecked), card.text()


@pytest.mark.parametrize("style", ATTENTIONS)
def test_attention_in_other_words(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student.MultiHead, "forward", ATTENTIONS[style])
    quiet(student.adapter())


def convolutions(self: Any, x: Tensor) -> Tensor:
    """Apply convolutions of width one, with the length in the last dimension."""
    hidden = F.conv1d(x.transpose(1, 2), self.first.weight[..., None], self.first.bias)
    hidden = F.relu(hidden, inplace=True)
    return F.conv1d(hidden, self.second.weight[..., None], self.second.bias).transpose(1, 2)


def matmul(self: Any, x: Tensor) -> Tensor:
    """Apply the feed-forward network by products of its parameters."""
    hidden = x.matmul(self.first.weight.T).add_(self.first.bias).clamp_(min=0)
    return hidden.matmul(self.second.weight.T) + self.second.bias


FEED_FORWARDS: dict[str, Any] = {"convolutions": convolutions, "matmul": matmul}


@pytest.mark.parametrize("style", FEED_FORWARDS)
def test_the_feed_forward_network_in_other_words(
    style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(student.FeedForward, "forward", FEED_FORWARDS[style])
    quiet(student.adapter())


class WrittenNorm(nn.Module):
    """LayerNorm, written out."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [B, L, D] → the same shape."""
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return self.weight * centred * torch.rsqrt(variance + self.eps) + self.bias


def test_a_norm_in_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student.nn, "LayerNorm", WrittenNorm)
    quiet(student.adapter())


def test_log_probabilities_in_place_of_logits() -> None:
    functions = student.adapter()
    logits = functions.logits
    functions.logits = lambda *arguments: logits(*arguments).log_softmax(-1)
    quiet(functions)


@pytest.mark.slow
def test_the_base_models_sizes() -> None:
    sizes = {"layers": 6, "d_model": 512, "d_ff": 2048, "heads": 8, "vocabulary": 1000}
    functions = student.adapter()
    functions.CONFIG = replace(functions.CONFIG, **sizes)
    quiet(functions)
