"""examples/recurrent: what the paper is compared with, held against loops written out."""

import argparse
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.utils import import_user_module
from torch import Tensor

from tests import stock
from tests.models import batch, dictionary, sample, task
from transformer_plugin.config import ConfigError

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "recurrent"
import_user_module(argparse.Namespace(user_dir=str(FOLDER)))  # as fairseq's commands do, once
example = importlib.import_module("recurrent")

SMALL = {"embed_dim": 10, "hidden_size": 12, "dropout": 0.0}
KINDS = [("rnn", "none"), ("gru", "dot"), ("lstm", "additive")]


def model(cell: str = "lstm", attention_score: str = "additive", **sizes: Any) -> Any:
    """A small one with random weights."""
    torch.manual_seed(1)
    cfg = example.RecurrentConfig(cell=cell, attention_score=attention_score, **{**SMALL, **sizes})
    return example.RecurrentModel.build_model(cfg, task()).double().eval()


def step(cells: Any, layer: str, x: Tensor, state: list[Tensor]) -> list[Tensor]:
    """One position of one layer by the formulas: the hidden state, and an LSTM's cell state.

    rnn:  h' = tanh(W x + b + R h + c)
    gru:  r, z = σ(…), n = tanh(W x + b + r (R h + c)), h' = (1 - z) n + z h
    lstm: i, f, g, o = σ, σ, tanh, σ (…), s' = f s + i g, h' = o tanh(s')
    """
    weights = {name: getattr(cells, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh")}
    inner = x @ weights["weight_ih"].t() + getattr(cells, f"bias_ih_l{layer}")
    recurrent = state[0] @ weights["weight_hh"].t() + getattr(cells, f"bias_hh_l{layer}")
    if cells.mode == "LSTM":
        i, f, g, o = (inner + recurrent).chunk(4)
        memory = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return [o.sigmoid() * memory.tanh(), memory]
    if cells.mode == "GRU":
        inner_r, inner_z, inner_n = inner.chunk(3)
        recurrent_r, recurrent_z, recurrent_n = recurrent.chunk(3)
        r, z = (inner_r + recurrent_r).sigmoid(), (inner_z + recurrent_z).sigmoid()
        return [(1 - z) * (inner_n + r * recurrent_n).tanh() + z * state[0]]
    return [(inner + recurrent).tanh()]


def read(cells: Any, layer: str, xs: list[Tensor], state: list[Tensor]) -> Any:
    """The outputs of a layer in one direction, in the order in which it reads, and its state."""
    outputs = []
    for x in xs:
        state = step(cells, layer, x, state)
        outputs.append(state[0])
    return outputs, state


@pytest.mark.parametrize(("cell", "score"), KINDS)
def test_every_position_is_the_formulas(cell: str, score: str) -> None:
    """One sentence of a padded batch, position by position, without torch's cells."""
    ours = model(cell, score)
    source, previous, _ = batch()
    with torch.no_grad():
        logits, extra = ours(source, None, previous)
        for row in range(3):
            words = source[row][source[row].ne(1)]
            tokens = ours.encoder.tokens.weight * SMALL["embed_dim"] ** 0.5
            xs, states = [tokens[word] for word in words], []
            empty = [torch.zeros(6).double()] * (2 if cell == "lstm" else 1)
            for layer in "01":
                ahead, ahead_state = read(ours.encoder.cells, layer, xs, empty)
                back, back_state = read(ours.encoder.cells, f"{layer}_reverse", xs[::-1], empty)
                xs = [torch.cat(both) for both in zip(ahead, back[::-1], strict=True)]
                states.append(
                    [torch.cat(both) for both in zip(ahead_state, back_state, strict=True)]
                )
            memory = torch.stack(xs)
            xs = [tokens[word] for word in previous[row][previous[row].ne(1)]]
            for layer in "01":
                xs, _ = read(ours.decoder.cells, layer, xs, states[int(layer)])
            for place, x in enumerate(xs):
                if score != "none":
                    attention = ours.decoder.attention
                    scores = memory @ x
                    if score == "additive":
                        queried = attention.query.weight @ x + memory @ attention.key.weight.t()
                        scores = queried.tanh() @ attention.score.weight[0]
                    weights = scores.softmax(0)
                    real = source[row].ne(1)
                    torch.testing.assert_close(extra["attn"][0][row, place, real], weights)
                    assert not extra["attn"][0][row, place, ~real].any()
                    x = torch.cat([x, weights @ memory])
                features = (ours.decoder.combine.weight @ x + ours.decoder.combine.bias).tanh()
                expected = ours.decoder.tokens.weight @ features
                torch.testing.assert_close(logits[row, place], expected)


@pytest.mark.parametrize(("cell", "score"), KINDS)
def test_decoding_word_by_word_says_the_same(cell: str, score: str) -> None:
    """In incremental decoding, also after the hypotheses were put in another order."""
    ours = model(cell, score)
    source, previous, _ = batch()
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        whole, _ = ours(source, None, previous)
        encoded, state = ours.encoder(source), {}
        for place in range(previous.size(1)):
            if place == 2:
                encoded = ours.encoder.reorder_encoder_out(encoded, order)
                ours.decoder.reorder_incremental_state(state, order)
                source, previous, whole = source[order], previous[order], whole[order]
            logits, _ = ours.decoder(previous[:, : place + 1], encoded, incremental_state=state)
            torch.testing.assert_close(logits[:, 0], whole[:, place])


@pytest.mark.parametrize(("cell", "score"), KINDS)
def test_gates_begin_by_keeping_the_state(cell: str, score: str) -> None:
    """The gate of the earlier state: f of i, f, g, o; z of r, z, n. An RNN has none."""
    ours = model(cell, score)
    for cells, size in ((ours.encoder.cells, 6), (ours.decoder.cells, 12)):
        biases = [bias for name, bias in cells.named_parameters() if name.startswith("bias_ih")]
        assert biases
        for bias in biases:
            ones = bias.eq(1).nonzero().flatten().tolist()
            assert ones == ([] if cell == "rnn" else list(range(size, 2 * size)))


@pytest.mark.parametrize(("cell", "score"), KINDS)
def test_every_parameter_learns(cell: str, score: str) -> None:
    ours = model(cell, score).train()
    ours.get_normalized_probs(ours(**sample()["net_input"]), log_probs=True)[
        ..., 5
    ].sum().backward()
    assert [n for n, p in ours.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_sizes_that_cannot_work_are_refused() -> None:
    for options, message in (
        ({"hidden_size": 7}, "--hidden-size"),
        ({"layers": 0}, "--layers"),
    ):
        with pytest.raises(ConfigError, match=message):
            model(**options)
    two = task(dictionary(24), dictionary(25))
    with pytest.raises(ConfigError, match="--joined-dictionary"):
        example.RecurrentModel.build_model(example.RecurrentConfig(), two)


def test_it_trains_and_translates(tiny_data_bin: Path, tmp_path: Path) -> None:
    """By fairseq's commands with ``--user-dir`` of the example alone."""
    own = ["--user-dir", str(FOLDER), "--arch", "recurrent_translation", "--cell", "gru"]
    stock.train(
        *(tiny_data_bin, tmp_path, *own, "--attention-score", "dot", "--max-update", "20"),
        *("--no-epoch-checkpoints",),
        model=["--embed-dim", "16", "--hidden-size", "16", "--layers", "1", "--d-model", "16"],
    )
    lines = stock.generate(
        *(tiny_data_bin, str(tmp_path / "checkpoint_last.pt"), "--user-dir", str(FOLDER)),
        *("--task", "vaswani_translation"),
    )
    assert sum(line.startswith("H-") for line in lines) > 10
