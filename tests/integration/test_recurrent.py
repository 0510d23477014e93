"""examples/user_dirs/recurrent: what the paper is compared with, held against its formulas."""

import argparse
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.utils import import_user_module

from tests import stock
from tests.models import batch, dictionary, sample, task
from transformer_plugin.config import ConfigError

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "user_dirs" / "recurrent"
import_user_module(argparse.Namespace(user_dir=str(FOLDER)))  # as fairseq's commands do, once
example = importlib.import_module("recurrent")

SMALL = {"embed_dim": 10, "hidden_size": 12, "dropout": 0.0}
KINDS = [("rnn", "none"), ("gru", "dot"), ("lstm", "additive")]


def model(cell: str = "lstm", attention_score: str = "additive", **sizes: Any) -> Any:
    """Build a small model with random weights."""
    torch.manual_seed(1)
    cfg = example.RecurrentConfig(cell=cell, attention_score=attention_score, **{**SMALL, **sizes})
    return example.RecurrentModel.build_model(cfg, task()).double().eval()


@pytest.mark.parametrize(("cell", "score"), KINDS)
def test_a_sentence_of_a_padded_batch_is_as_alone(cell: str, score: str) -> None:
    """Torch's cells over its words; attention and output by their formulas."""
    ours = model(cell, score)
    source, previous, _ = batch()
    with torch.no_grad():
        logits, extra = ours(source, None, previous)
        tokens = ours.encoder.tokens.weight * SMALL["embed_dim"] ** 0.5
        for row in range(3):
            real, written = source[row].ne(1), previous[row].ne(1)
            memory, last = ours.encoder.cells(tokens[source[row, real]])
            states = last if cell == "lstm" else (last,)
            states = tuple(torch.cat([state[0::2], state[1::2]], -1) for state in states)
            start = states if cell == "lstm" else states[0]
            x, _ = ours.decoder.cells(tokens[previous[row, written]], start)
            if score != "none":
                scores = x @ memory.T
                if score == "additive":
                    attention = ours.decoder.attention
                    queried = attention.query(x)[:, None] + attention.key(memory)
                    scores = queried.tanh() @ attention.score.weight[0]
                weights = scores.softmax(-1)
                found = extra["attn"][0][row, written]
                torch.testing.assert_close(found[:, real], weights)
                assert not found[:, ~real].any()
                x = torch.cat([x, weights @ memory], -1)
            expected = ours.decoder.combine(x).tanh() @ ours.decoder.tokens.weight.T
            torch.testing.assert_close(logits[row, written], expected)


@pytest.mark.parametrize(("cell", "score"), KINDS)
def test_decoding_word_by_word_says_the_same(cell: str, score: str) -> None:
    """In incremental decoding, also after the hypotheses were put in another order."""
    ours = model(cell, score)
    source, previous, _ = batch()
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        whole, _ = ours(source, None, previous)
        encoded = ours.encoder(source)
        state = {}
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
