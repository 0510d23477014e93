"""Faults that a student makes in a decoder, one at a time: the card names each.

A fault may have other consequences, so a test asks for the check that says best what was done.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.plain import student
from tests.plain.student import CONFIG, adapter
from transformer_check import AdapterError, Card, check, tiny_model
from transformer_check.findings import DIFFERENCE, ERROR, NOT_RUN, PASSED, VARIANT

#: fault → the check that names it, from build and logits alone
OF_LOGITS = {
    "cross-attention before self-attention": "sublayer-order",
    "encoder: feed-forward first": "sublayer-order",
    "queries from the layer's input": "cross-attention-queries",
    "ladder": "encoder-output",
    "ladder from the top": "encoder-output",
    "the first layer reads another memory": "encoder-output",
    "memory is the embeddings": "encoder-output",
    "memory is the last layer but one": "encoder-output",
    "memory without gradient": "gradients",
    "memory normed again": "attention-inputs",
    "last norm of each decoder layer left out": "residual-sums",
    "norms of the decoder before the sub-layers": "final-norm",
    "norm of cross-attention left out": "gradients",  # it names the norm that is never called
    "feed-forward reads the layer's input": "feed-forward-input",
    "feed-forward reads what self-attention gives": "feed-forward-input",
    "encoder: feed-forward reads the layer's input": "feed-forward-input",
    "residual of self-attention missing": "residual-connections",
    "residual of cross-attention missing": "residual-connections",
    "residual of feed-forward missing": "residual-connections",
    "encoder: residual of attention missing": "residual-connections",
    "encoder: residual of feed-forward missing": "residual-connections",
    "residual of cross-attention from the layer's input": "sublayer-output-used",
    "residual of feed-forward from the layer's input": "sublayer-output-used",
    "residual of feed-forward from before cross-attention": "sublayer-output-used",
    "encoder: residual of feed-forward from the layer's input": "sublayer-output-used",
    "encoder: second layer reads the embeddings": "sublayer-output-used",
    "decoder: second layer reads the embeddings": "sublayer-output-used",
    "encoder: one layer again and again": "gradients",
    "encoder: queries normed, keys not": "self-attention-inputs",
    "encoder: keys normed, queries not": "self-attention-inputs",
    "source added to the target's embeddings": "decoder-input",
    "mask shows three words": "target-visible",
    "mask shows eight words": "target-visible",
    "mask hides the first word": "target-visible",
    "mask hides the word before": "target-visible",
    "mask hides the last row's own word": "target-visible",
    "mask hides a word from itself": "target-visible",
    "mask one too far": "causal-mask",
    "one head sees the future": "causal-mask",
    "padding seen by cross-attention": "source-padding",
    "scale of √d_model": "attention-scale",
    "scores not divided": "attention-scale",
    "scores divided twice": "attention-scale",
    "logits multiplied": "output-scale",
    "logits divided": "output-scale",
    "ReLU before the output": "output-scale",
    "heads alike": "heads",
    "decoder: heads alike": "heads",
    "dropout of a fixed rate": "dropout-rate",
    "target: no positions": "target-order",
    "values of cross-attention from the embeddings": "encoder-output",
    "one norm for all three sums": "final-norm",
    "softmax over queries": "softmax-dimension",
    "mask behind the softmax": "causal-mask",
    "causal mask in cross-attention": "source-visible",
    "second layer sees the future": "causal-mask",
    "second layer sees three words": "target-visible",
    "dropout of cross-attention missing": "sublayer-dropout",
    "decoder: GELU": "activation",
}


#: fault → a function and the check of it that names the fault
OF_FUNCTIONS = {
    "residual of self-attention twice": ("decoder_layer", "residual-sums"),
    "residual of cross-attention twice": ("decoder_layer", "residual-sums"),
    "residual of cross-attention halved": ("decoder_layer", "residual-sums"),
    "residual of feed-forward twice": ("decoder_layer", "feed-forward-place"),
    "residual of cross-attention from the layer's input": ("decoder_layer", "residual-sums"),
    "residual of feed-forward from the layer's input": ("decoder_layer", "feed-forward-place"),
    "residual of feed-forward from before cross-attention": ("decoder_layer", "residual-sums"),
    "norm of cross-attention left out": ("decoder_layer", "residual-sums"),
    "last norm of each decoder layer left out": ("decoder_layer", "residual-sums"),
    "feed-forward reads the layer's input": ("decoder_layer", "feed-forward-place"),
    "cross-attention before self-attention": ("decoder_layer", "attention-inputs"),
    "decoder: keys normed, queries not": ("decoder_layer", "attention-inputs"),
    "memory normed again": ("decoder_layer", "attention-inputs"),
    "heads joined wrongly": ("decoder_layer", "head-concatenation"),
    "memory normed again for values": ("decoder_layer", "attention-inputs"),
    "one norm for all three sums": ("decoder_layer", "residual-sums"),
    "layer's input in each sum": ("decoder_layer", "residual-sums"),
    "dropout of cross-attention missing": (
        "decoder_layer",
        "sublayer-dropout",
    ),
    "decoder: ε of torch": ("decoder_layer", "norm-epsilon"),
    "encoder: values normed, keys not": ("encoder_layer", "attention-inputs"),
    "encoder: residual of attention twice": ("encoder_layer", "residual-sums"),
    "encoder: residual of feed-forward from the layer's input": (
        "encoder_layer",
        "feed-forward-place",
    ),
    "encoder: feed-forward reads the layer's input": ("encoder_layer", "feed-forward-place"),
    "encoder: feed-forward first": ("encoder_layer", "feed-forward-place"),
    "encoder: queries normed, keys not": ("encoder_layer", "attention-inputs"),
    "heads split wrongly": ("encoder_layer", "head-concatenation"),
    "target: not multiplied by √d_model": ("target_embedding", "embedding-scale"),
    "target: multiplied by d_model": ("target_embedding", "embedding-scale"),
    "target: no positions": ("target_embedding", "sinusoids"),
    "target: positions from 1": ("target_embedding", "sinusoids"),
    "target: positions from 2": ("target_embedding", "sinusoids"),
    "target: positions turned round": ("target_embedding", "sinusoids"),
    "target: no dropout": (
        "target_embedding",
        "embedding-dropout",
    ),
    "loss divided by sentences": ("loss", "loss-average"),
    "loss a mean of sentences' means": ("loss", "loss-average"),
    "ends of sentences left out of the loss": ("loss", "loss-average"),
    "training loss divided by sentences": (
        "training_loss",
        "training-loss",
    ),
}
SHOWN = {
    "encoder": "adapter-encoder",
    "decoder": "adapter-decoder",
}
SIDES = {
    "encoder_layer": "encoder",
    "decoder_layer": "decoder",
    "target_embedding": "target",
}


def tried(faults: dict[str, Any]) -> list[Any]:
    """Mark two thirds of the faults as slow: each takes part of a card."""
    return [
        pytest.param(fault, marks=[] if number % 3 == 0 else pytest.mark.slow)
        for number, fault in enumerate(faults)
    ]


@pytest.mark.parametrize("fault", tried(OF_FUNCTIONS))
def test_a_function_shows_a_fault(fault: str) -> None:
    function, check_id = OF_FUNCTIONS[fault]
    card = check(only(adapter(fault), "embedding", "loss", function), chosen=[check_id])
    assert card.of_side(check_id, SIDES.get(function, "")).failed, card.text()


def only(functions: Any, *names: str) -> Any:
    """Return an adapter with ``build``, ``logits`` and these functions."""
    names = ("build", "logits", "CONFIG", *names)
    return type(functions)(**{name: getattr(functions, name) for name in names})


def differing(card: Card) -> list[str]:
    return card.ids(DIFFERENCE, VARIANT, ERROR)


@pytest.mark.parametrize("fault", tried(OF_LOGITS))
def test_build_and_logits_show_a_fault(fault: str) -> None:
    check_id = OF_LOGITS[fault]
    card = check(only(adapter(fault)), chosen=[check_id])
    assert card[check_id].failed, card.text()


SIZES: dict[str, dict[str, int]] = {
    "the template's": {},
    "one layer": {"layers": 1},
    "three layers": {"layers": 3},
    "one head": {"heads": 1},
    "narrow heads": {"d_k": 4, "d_v": 6},
    "wide": {"d_model": 64, "d_ff": 256, "heads": 8},
    "few types": {"vocabulary": 24},
    "networks as wide as three projections": {"d_model": 32, "d_ff": 96},
}
RARE_SIZES = ("few types", "networks as wide as three projections")


def test_every_fault_of_the_student_is_tried() -> None:
    """Dropout in evaluation has no card: logits() returned two results for one input."""
    source = Path(student.__file__).read_text(encoding="utf-8")
    faults = set(re.findall(r'has\(\s*"([^"]+)"', source))
    faults |= set(re.findall(r'"([^"]+)" in faults', source))
    assert faults - {"three matrices", "dropout in evaluation"} == {*OF_LOGITS, *OF_FUNCTIONS}
    with pytest.raises(AdapterError, match="two results for one input"):
        check(adapter("dropout in evaluation"))


def assert_differs_in_nothing(sizes: dict[str, int]) -> None:
    card = check(adapter(), replace(CONFIG, **sizes))
    assert not differing(card), card.text()
    unchecked = [result for result in card.results if result.finding.status == NOT_RUN]
    assert all("translate" in result.check.needs for result in unchecked), card.text()


@pytest.mark.parametrize(
    "size",
    [pytest.param(size, marks=pytest.mark.slow if size in RARE_SIZES else []) for size in SIZES],
)
def test_the_clean_model_differs_in_nothing(size: str) -> None:
    assert_differs_in_nothing(SIZES[size])


@pytest.mark.slow
def test_six_clean_layers_differ_in_nothing() -> None:
    """As many as the paper's; three show the same in a tenth of the time."""
    assert_differs_in_nothing({"layers": 6})


@pytest.mark.parametrize("layers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_three_matrices_differ_on_purpose(layers: int) -> None:
    card = check(adapter("three matrices"), replace(CONFIG, layers=layers))
    assert not card.ids(DIFFERENCE, ERROR), card.text()
    assert {p.check.id for p in card.problems} == {"shared-matrix", "output-bias"}, card.text()


def test_a_card_of_build_and_logits_has_no_other_check() -> None:
    card = check(only(adapter()))
    assert not differing(card), card.text()
    assert {
        "encoder-output",
        "residual-connections",
        "sublayer-output-used",
        "target-visible",
        "attention-scale",
        "output-scale",
    } <= set(card.ids(PASSED))


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_file_that_shows_something_else_than_its_model_is_found(side: str) -> None:
    functions = adapter()
    name = {"encoder": "embedding", "decoder": "target_embedding"}[side]
    embed = getattr(functions, name)
    setattr(functions, name, lambda model, ids: embed(model, ids).flip(1))
    card = check(functions, chosen=[SHOWN[side]])
    assert SHOWN[side] in card.ids(DIFFERENCE), card.text()


# ---- explanations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", ["encoder: feed-forward first", "encoder: feed-forward reads the layer's input"]
)
def test_a_network_in_another_place_still_has_its_relu(fault: str) -> None:
    chosen = ["activation", "feed-forward-place"]
    card = check(only(adapter(fault), "encoder_layer"), chosen=chosen)
    assert card["activation"].status == PASSED
    place = "comes before attention" if "first" in fault else "reads the layer's input"
    assert card["feed-forward-place"].found == f"the network {place}"


def test_rotary_positions_are_not_taken_for_heads_split_wrongly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attention = student.attention

    def rotated(x: Tensor) -> Tensor:
        angles = torch.arange(x.size(-2))[:, None] / 10 ** torch.arange(x.size(-1) // 2)
        first, second = x.chunk(2, dim=-1)
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)

    def rotary(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return attention(rotated(q), rotated(k), v, mask)

    monkeypatch.setattr(student, "attention", rotary)
    card = check(only(adapter(), "encoder_layer"))
    assert differing(card) == ["permutation"], card.text()
    assert "rotary" in card["permutation"].expected
    assert card["head-concatenation"].status == PASSED


def test_heads_joined_wrongly_are_named_before_their_consequences() -> None:
    card = check(only(adapter("heads joined wrongly"), "encoder_layer"))
    assert card.problems[0].check.id == "head-concatenation", card.text()
    assert "permutation" in [each.check.id for each in card.problems[0].consequences]


def test_a_last_row_that_is_blind_is_no_matter_of_padding() -> None:
    card = check(only(adapter("mask hides the last row's own word")))
    assert differing(card) == ["target-visible"], card.text()
    assert card["target-padding"].reason == "target-visible has to pass first"
    assert "hides the last target token from itself" in card["target-visible"].says


def test_multiplied_logits_are_named_where_a_model_does_not_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiny_model, "UPDATES", 0)
    functions = adapter("logits multiplied")
    functions.translate = lambda model, source: source.tolist()
    card = check(only(functions, "translate"), chosen=["length-penalty", "output-scale"])
    penalty = card["length-penalty"]
    assert penalty.status == NOT_RUN
    assert penalty.reason.endswith("its logits are multiplied by 5.66, see output-scale")
    assert card["output-scale"].found == "factor 5.66 = √d_model"
