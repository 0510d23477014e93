"""examples/: a user-dir of one's own that varies the model, without a fork."""

import argparse
import copy
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.utils import import_user_module

from tests.models import batch, config, small_model, task
from vaswani_transformer.embedding import sinusoids

RELATIVE = Path(__file__).resolve().parents[2] / "examples" / "user_dirs" / "relative_positions"
import_user_module(argparse.Namespace(user_dir=str(RELATIVE)))  # as fairseq's commands do, once
example = importlib.import_module("relative_positions")


@pytest.fixture
def model() -> Any:
    """Build a small model whose distances matter."""
    torch.manual_seed(1)
    return example.RelativeTransformerModel.build_model(
        config(example.RelativeConfig, max_distance=2), task()
    ).eval()


def test_distances_are_added_by_formula() -> None:
    """Their equation 4 in plain loops: (x_i W^Q)(x_j W^K + a_r)ᵀ / √d_k, r = j - i within ±k."""
    torch.manual_seed(1)
    attention = example.RelativeSelfAttention(6, 2, max_distance=2).double()
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    collected: list = []
    attention(x, weights=collected)
    (weights,) = collected
    query, key, _ = attention.qkv_proj(x)[0].split([6, 6, 6], dim=-1)
    for head in range(2):
        own = slice(3 * head, 3 * head + 3)
        for i in range(5):
            distances = [attention.distances.weight[max(-2, min(2, j - i)) + 2] for j in range(5)]
            scores = [query[i, own] @ (key[j, own] + distances[j]) / 3**0.5 for j in range(5)]
            expected = torch.softmax(torch.stack(scores), 0)
            torch.testing.assert_close(weights[0, head, i], expected, rtol=1e-10, atol=1e-12)


def test_positions_are_relative_only_where_asked() -> None:
    """And neither there nor otherwise varied it is the paper's model, to the bit."""
    made = {}
    for side in ("both", "encoder", "decoder", "none"):
        torch.manual_seed(1)
        cfg = config(example.RelativeConfig, relative_in=side)
        made[side] = example.RelativeTransformerModel.build_model(cfg, task()).eval()
        names = {name.split(".")[0] for name in made[side].state_dict() if "distances" in name}
        assert names == set(example.SIDES[side])
    source, previous, _ = batch()
    paper = small_model(1).eval()
    assert torch.equal(made["none"](source, None, previous)[0], paper(source, None, previous)[0])


def test_sinusoids_are_scaled_and_spread() -> None:
    """Each option by itself; the table grows for positions beyond it."""
    for options, expected in (
        ({"sinusoid_scale": 3.0}, 3 * sinusoids(300, 16)),
        ({"position_step": 8}, sinusoids(2400, 16)[::8]),
    ):
        cfg = config(example.RelativeConfig, **options)
        model = example.RelativeTransformerModel.build_model(cfg, task())
        for side in (model.encoder, model.decoder):
            found = side.embedding.positions(torch.arange(300), 300, like=torch.zeros(1))
            torch.testing.assert_close(found, expected.float())


def test_the_decoder_stays_causal_and_incremental(model: Any) -> None:
    """Word by word it says what it says of the whole, and distances change what it says."""
    source, previous, _ = batch()
    with torch.no_grad():
        whole, _ = model(source, None, previous)
        encoded = model.encoder(source)
        state = {}
        for step in range(previous.size(1)):
            logits, _ = model.decoder(previous[:, : step + 1], encoded, incremental_state=state)
            real = previous[:, step].ne(1)
            torch.testing.assert_close(logits[real, -1], whole[real, step], rtol=1e-4, atol=1e-5)
        other = copy.deepcopy(model)
        other.encoder.layers[0].self_attention.distances.weight.zero_()
        assert not torch.allclose(other(source, None, previous)[0], whole, atol=1e-4)
