"""Table 1: what is counted and measured on the layers is what their formulas say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vaswani import cli
from vaswani.reproduction import table1
from vaswani.reproduction.layers import LAYERS, K, Layer, R
from vaswani.reproduction.table1 import (
    cost,
    count_multiplications,
    crossing,
    longest_path,
    sequential_steps,
)

ROOT = Path(__file__).resolve().parents[2]
BY_NAME: dict[str, Layer] = {layer.name: layer for layer in LAYERS}
RECURRENT = ("RNN", "GRU", "LSTM")
RECORD = "amd-epyc-family-25-model-1-2cpu_2026-11-24_table1.md"
pytestmark = pytest.mark.paper("table 1")


@pytest.mark.parametrize("n, d", [(24, 16), (40, 16), (24, 256)])
def test_multiplications_are_those_of_the_formula(n: int, d: int) -> None:
    """The paper's entry leaves out the projections, and that a cell has several matrices."""
    assert {layer.name: count_multiplications(layer, n, d) for layer in LAYERS} == {
        "self-attention": 4 * n * d * d + 2 * n * n * d,
        "RNN": 2 * n * d * d,
        "GRU": 6 * n * d * d,
        "LSTM": 8 * n * d * d,
        "convolution": K * n * d * d,
        "convolution, dilated": K * n * d * d,
        "self-attention (restricted)": 4 * n * d * d + 2 * R * n * d,
    }
    for layer in LAYERS:
        assert layer.formula.multiplications(n, d) <= count_multiplications(layer, n, d)


def test_the_papers_term_is_its_entry_without_a_factor() -> None:
    """n²d is n · n · d, of which attention takes two; the record's table says so, too."""
    n, d = 64, 32
    terms = {layer.name: layer.formula.multiplications(n, d) for layer in LAYERS}
    assert terms["self-attention"] == n * n * d
    assert terms["self-attention (restricted)"] == R * n * d
    assert terms["LSTM"] == n * d * d and terms["convolution"] == K * n * d * d
    page = (ROOT / "benchmarks" / "results" / RECORD).read_text(encoding="utf-8")
    assert f"| O(n² · d) | {64 * 64 * 64:,}, 1,572,864 |" in page
    assert "| O(n/k), section 4 |" in page


@pytest.mark.parametrize("countable", [False, True])
def test_a_layer_maps_a_sentence_to_one_of_its_shape(countable: bool) -> None:
    sentence = torch.randn(1, 24, 16)
    shapes = {layer.name: layer.make(16, countable)(sentence).shape for layer in LAYERS}
    assert shapes == {layer.name: sentence.shape for layer in LAYERS}


def test_only_recurrence_waits_for_each_word() -> None:
    for layer in LAYERS:
        short, long = (sequential_steps(layer, n) for n in (16, 32))
        if layer.name in RECURRENT:
            assert long - short == (short - sequential_steps(layer, 8)) * 2 > 0
        else:
            assert short == long < 40


def test_the_way_from_the_first_word_to_the_last() -> None:
    """One layer of attention; n cells; a stack of convolutions or of restricted attention."""
    n = 40
    found = {layer.name: longest_path(layer, n) for layer in LAYERS}
    assert found["self-attention"] == 1
    assert {found[name] for name in RECURRENT} == {n}
    assert found["convolution"] == -(-(n - 1) // (K // 2))
    assert found["self-attention (restricted)"] == -(-(n - 1) // ((R - 1) // 2))
    # logarithmic: twice as many words cost a few layers more, not twice as many
    dilated = BY_NAME["convolution, dilated"]
    assert found[dilated.name] < 10 and longest_path(dilated, 2 * n) <= found[dilated.name] + 4


def test_where_attention_begins_to_cost_more() -> None:
    """With the projections: 4nd² + 2n²d against 6nd² for a GRU and 8nd² for an LSTM."""
    attention = BY_NAME["self-attention"]
    for d in (16, 32):
        assert crossing(attention, BY_NAME["LSTM"], d) == pytest.approx(2 * d)
        assert crossing(attention, BY_NAME["GRU"], d) == pytest.approx(d)
        assert crossing(attention, BY_NAME["RNN"], d) == 0
        assert crossing(BY_NAME["RNN"], attention, d) == float("inf")


def test_memory_grows_as_the_weights_do() -> None:
    """Restricted attention holds r weights for each word, not n."""
    restricted = BY_NAME["self-attention (restricted)"]
    short, long = (cost(restricted, n, 16, repeats=1)["held_bytes"] for n in (256, 512))
    assert long < 2.1 * short


def test_the_command_leaves_table_and_record(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table1, "LENGTHS", (16, 32))
    monkeypatch.setattr(table1, "WIDTHS", (16, 32))
    assert cli.main(["reproduce", "table1"]) == 0
    out = tmp_path / "runs" / "table1"
    assert sorted(path.name for path in out.iterdir()) == ["table1.json", "table1.md"]
    text = (out / "table1.md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    for layer in LAYERS:
        assert f"| {layer.name} | {layer.formula.complexity} |" in text
    assert json.loads((out / "table1.json").read_text(encoding="utf-8"))["threads"] >= 1
