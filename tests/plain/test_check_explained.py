"""vaswani check --explain: every check has a statement, code that runs, and a place that exists.

The code of all explanations uses the same names, which are defined here.
"""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vaswani_transformer
from transformer_check import AdapterError
from transformer_check.explain import explain, explanations, object_at
from transformer_check.registry import ADAPTER, ids

B, S, T, D, H, V = 2, 6, 5, 32, 4, 50


class Model(nn.Module):
    """One attention layer with residual connection, over a shared matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(V, D)
        self.query = nn.Linear(D, D)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits [B, T, V] from [B, S] and [B, T]."""
        x, memory = self.tokens(target), self.tokens(source)
        weights = (self.query(x) @ memory.mT / math.sqrt(D)).softmax(-1)
        return (x + weights @ memory) @ self.tokens.weight.T


def attend(x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
    """Attend with one head, and a mask [B, 1, T, S] or [T, S]."""
    scores = x @ memory.mT / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~(mask[:, 0] if mask.dim() == 4 else mask), -math.inf)
    return scores.softmax(-1) @ memory


def mask_of(x: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return a mask that fits: examples use one x for the source and for the target."""
    return mask if mask is not None and mask.size(-1) == x.size(1) else None


def names() -> dict[str, Any]:
    """Return the names that explanations use: shapes are those of the file's first lines."""
    torch.manual_seed(0)
    source, target = torch.randint(3, V, (B, S)), torch.randint(3, V, (B, T))
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    source_mask = torch.ones(B, 1, 1, S, dtype=torch.bool)
    causal_mask = torch.ones(T, T, dtype=torch.bool).tril()
    return {
        **{"math": math, "torch": torch, "nn": nn, "F": F},
        **{"d_model": D, "d_ff": 80, "heads": H, "d_k": D // H, "d_v": D // H, "vocabulary": V},
        **{"pad": 1, "start": 0, "P_drop": 0.1, "epsilon": 0.1, "length": T},
        "config": SimpleNamespace(dropout=0.1),
        **{"source": source, "target": target, "x": x, "y": x.clone(), "memory": memory},
        **{"source_mask": source_mask, "causal_mask": causal_mask, "mask": causal_mask},
        "q": torch.randn(B, H, T, D // H),
        "k": torch.randn(B, H, T, D // H),
        "v": torch.randn(B, H, T, D // H),
        "scores": torch.randn(B, H, T, T),
        "logits": torch.randn(B, T, V),
        "positions": torch.randn(S, D),
        **{name: nn.Linear(D, D) for name in ("project_q", "project_k", "project_v")},
        **{"linear1": nn.Linear(D, 80), "linear2": nn.Linear(80, D), "output": nn.Linear(D, V)},
        **{"norm1": nn.LayerNorm(D), "norm2": nn.LayerNorm(D), "norm3": nn.LayerNorm(D)},
        **{"gain": torch.ones(D), "bias": torch.zeros(D), "dropout": nn.Dropout(0.1)},
        "embedding": nn.Embedding(V, D),
        "feed_forward": nn.Linear(D, D),
        "self_attention": lambda x, mask: attend(x, x, mask_of(x, mask)),
        "cross_attention": attend,
        "encoder": lambda source, mask=None: memory,
        "encoder_layers": [lambda memory, mask: memory],
        "decoder_layers": [lambda y, memory, causal_mask, source_mask: y],
        "model": Model(),
        "training_loss": lambda model, source, target: model(source, target).square().mean(),
    }


def test_every_check_is_explained_and_nothing_else() -> None:
    assert set(explanations()) == {*ids(), ADAPTER.id}


@pytest.mark.parametrize("check_id", [*ids(), ADAPTER.id])
def test_an_explanation_has_code_that_runs_and_a_place_that_exists(check_id: str) -> None:
    statement, code, place = explanations()[check_id]
    assert statement.endswith("."), statement
    assert 2 <= len(code.splitlines()) <= 6
    assert object_at(place)
    space = names()
    exec(compile(code, check_id, "exec"), space)
    for name in ("x", "y", "logits", "weights", "loss"):
        value = space.get(name)
        assert not isinstance(value, Tensor) or bool(value.isfinite().all()), name


def test_an_explanation_has_both_sentences_the_code_and_the_place() -> None:
    text = explain("sinusoids")
    assert text.startswith("sinusoids (3.5, source and target)\n  passes  The positional")
    assert "    two_i = torch.arange(0, d_model, 2)" in text
    file, _, line = text.splitlines()[-1].split()[3].rstrip(",").partition(":")
    source = Path(vaswani_transformer.__file__).resolve().parents[1] / file
    assert (
        source.read_text(encoding="utf-8").splitlines()[int(line) - 1].startswith("def sinusoids(")
    )
    with pytest.raises(AdapterError, match="--explain sinusoid: there is no check"):
        explain("sinusoid")
