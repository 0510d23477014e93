"""From build and logits alone: a model without layer modules, as in x-transformers, is looked at.

A stack is one list of norms and sub-layers; the loop over it is in the stack's forward.

Shape letters: B batch, S source, T target, L either, D d_model.
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.plain.student import adapter
from transformer_check import Config, check
from transformer_check.findings import NOT_RUN

CONFIG = Config(pad=0, start=1, end=2)


@dataclass(frozen=True)
class Style:
    """What differs from the paper."""

    pre_norm: bool = False
    gelu: bool = False
    learned_positions: bool = False
    scale: bool = True
    biases: bool = True


class Attention(nn.Module):
    """Multi-head attention."""

    def __init__(self, config: Config, style: Style) -> None:
        super().__init__()
        width = config.d_model
        self.heads = config.heads
        self.to_q = nn.Linear(width, width, bias=style.biases)
        self.to_kv = nn.Linear(width, 2 * width, bias=style.biases)
        self.to_out = nn.Linear(width, width, bias=style.biases)

    def forward(self, x: Tensor, context: Tensor | None, mask: Tensor) -> Tensor:
        """Attend from [B, L, D] to [B, S, D] under [B, 1, L, S] → [B, L, D]."""
        context = x if context is None else context
        q = self.to_q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.to_kv(context).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    """The network of equation 2."""

    def __init__(self, config: Config, style: Style) -> None:
        super().__init__(
            nn.Linear(config.d_model, config.d_ff, bias=style.biases),
            nn.GELU() if style.gelu else nn.ReLU(),
            nn.Linear(config.d_ff, config.d_model, bias=style.biases),
        )

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        """Apply the network to each position: [B, L, D] → [B, L, D]."""
        return super().forward(x)


class Stack(nn.Module):
    """Pairs of a norm and a sub-layer, in one list; no module is a layer."""

    def __init__(self, config: Config, style: Style, cross: bool) -> None:
        super().__init__()
        self.style = style
        self.words = nn.Embedding(config.vocabulary, config.d_model)
        nn.init.normal_(self.words.weight, std=config.d_model**-0.5)
        table = torch.randn(config.max_length, config.d_model) / 10
        if not style.learned_positions:
            two_i = torch.arange(0, config.d_model, 2)
            angles = torch.arange(config.max_length)[:, None] / 10000 ** (two_i / config.d_model)
            table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.positions = nn.Parameter(table, requires_grad=style.learned_positions)
        self.dropout = nn.Dropout(config.dropout)
        kinds = [Attention, *([Attention] if cross else []), FeedForward] * config.layers
        self.sublayers = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(config.d_model, eps=1e-6), kind(config, style)])
            for kind in kinds
        )
        self.cross = len(kinds) // config.layers == 3
        self.final = nn.LayerNorm(config.d_model, eps=1e-6) if style.pre_norm else nn.Identity()

    def forward(self, ids: Tensor, mask: Tensor, memory: Any = None, source: Any = None) -> Tensor:
        """Embed and transform ids [B, L] → [B, L, D]."""
        factor = math.sqrt(self.words.embedding_dim) if self.style.scale else 1.0
        x = self.dropout(self.words(ids) * factor + self.positions[: ids.size(1)])
        for number, (norm, sublayer) in enumerate(self.sublayers):
            is_cross = self.cross and number % 3 == 1
            inputs = (memory, source) if is_cross else (None, mask)
            if self.style.pre_norm:
                x = x + self.dropout(sublayer(norm(x), *inputs))
            else:
                x = norm(x + self.dropout(sublayer(x, *inputs)))
        return self.final(x)


class Flat(nn.Module):
    """An encoder, a decoder, and a shared matrix."""

    def __init__(self, config: Config, style: Style) -> None:
        super().__init__()
        self.encoder = Stack(config, style, cross=False)
        self.decoder = Stack(config, style, cross=True)
        self.decoder.words = self.encoder.words

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits [B, T, V] from [B, S] and [B, T]."""
        of_source = source.ne(CONFIG.pad)[:, None, None]
        later = torch.ones(target.size(1), target.size(1), dtype=torch.bool).tril()
        memory = self.encoder(source, of_source)
        x = self.decoder(target, later, memory, of_source)
        return F.linear(x, self.encoder.words.weight)


def card_of(**style: bool) -> Any:
    """Return the card of a flat model, from build and logits."""
    return check(
        SimpleNamespace(
            CONFIG=CONFIG,
            build=lambda config: Flat(config, Style(**style)),
            logits=lambda model, source, target: model(source, target),
        )
    )


STYLES: dict[str, tuple[dict[str, bool], list[str]]] = {
    "the paper's": ({}, []),
    "pre-norm": ({"pre_norm": True}, ["pre-norm"]),
    "GELU": ({"gelu": True}, ["activation"]),
    "learned positions": ({"learned_positions": True}, ["learned-positions"]),
    "no factor": ({"scale": False}, ["embedding-scale"]),
    "no biases": ({"biases": False}, ["attention-biases", "feed-forward-biases"]),
    "all of them": (
        {
            "pre_norm": True,
            "gelu": True,
            "learned_positions": True,
            "scale": False,
            "biases": False,
        },
        [
            "embedding-scale",
            "activation",
            "attention-biases",
            "feed-forward-biases",
            "learned-positions",
            "pre-norm",
        ],
    ),
}


EXTREMES = ("the paper's", "all of them")
"""The others, which differ in one thing each, are with the slow tests."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in EXTREMES else pytest.mark.slow) for name in STYLES],
)
def test_a_model_without_layer_modules_is_looked_at(name: str) -> None:
    style, expected = STYLES[name]
    card = card_of(**style)
    assert sorted(p.check.id for p in card.problems) == sorted(expected), card.text()
    assert "define embedding" not in {r.finding.reason for r in card.results}, card.text()


def test_the_layers_of_a_students_model_are_found_in_its_module_tree() -> None:
    functions = adapter()
    bare = SimpleNamespace(CONFIG=functions.CONFIG, build=functions.build, logits=functions.logits)
    card = check(bare)
    assert not card.problems, card.text()
    reasons = {result.finding.reason for result in card.results}
    derived = ("embedding", "target_embedding", "encoder_layer", "decoder_layer")
    assert not reasons & {f"define {function}" for function in derived}, card.text()
    assert "define attention" in reasons
    faulty = adapter("residual of cross-attention twice")
    bare.build = faulty.build
    card = check(bare)
    assert card.of_side("residual-sums", "decoder").says == (
        "A residual connection adds its input twice."
    )


def test_a_function_that_cannot_be_derived_is_asked_for() -> None:
    def logits(model: Any, source: Tensor, target: Tensor) -> Tensor:
        with torch.no_grad():
            return model(source, target)

    bare = SimpleNamespace(CONFIG=CONFIG, logits=logits)
    bare.build = lambda config: Flat(config, Style())
    card = check(bare)
    assert card["residual-sums"].status == NOT_RUN
    assert card["residual-sums"].reason == "define encoder_layer"
