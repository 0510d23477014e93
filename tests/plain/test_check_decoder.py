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
from transformer_check import AdapterError, Card, check, searching
from transformer_check.card import DIFFERS, ERROR, NOT_CHECKED, ON_PURPOSE, PAPER

ADDED = "each sub-layer's input is added to what it gives"
CARRIED = "what each sub-layer gives is carried on to the next layer"
ORDER = "sub-layers come in the order of Figure 1"
ENDS = "each stack ends with a norm"
GRADIENTS = "every parameter has a gradient"
QUERIES = "queries of cross-attention come from the decoder's self-attention"
LAST = "every decoder layer reads the encoder's last layer"
FFN_READS = "the feed-forward network reads what attention gives"
SAME_NUMBERS = "queries and keys of self-attention come from the same numbers"
EARLIER = "a target word sees itself and all words before it"
SCALE = "scores are divided by √d_k in every layer of the model"
LOGITS = "logits are the matrix times what the decoder gives, and nothing more"
ALONE = "the decoder's first self-attention sees the target alone"
TARGET_ORDER = "the order of the target matters"
HEADS = "each layer has h heads, and no two are alike"
OVER_KEYS = "every softmax of the model is over keys"
ALL_SOURCE = "all words of the source are seen"
CAUSAL = "later target words change nothing"
SOURCE_PADDING = "source padding changes nothing"

#: fault → the check that names it, from build and logits alone
OF_LOGITS = {
    "cross-attention before self-attention": ORDER,
    "encoder: feed-forward first": ORDER,
    "queries from the layer's input": QUERIES,
    "ladder": LAST,
    "ladder from the top": LAST,
    "the first layer reads another memory": LAST,
    "memory is the embeddings": LAST,
    "memory is the last layer but one": LAST,
    "memory without gradient": GRADIENTS,
    "memory normed again": ENDS,
    "last norm of each decoder layer left out": ENDS,
    "norms of the decoder before the sub-layers": ENDS,
    "norm of cross-attention left out": GRADIENTS,
    "feed-forward reads the layer's input": FFN_READS,
    "feed-forward reads what self-attention gives": FFN_READS,
    "encoder: feed-forward reads the layer's input": FFN_READS,
    "residual of self-attention missing": ADDED,
    "residual of cross-attention missing": ADDED,
    "residual of feed-forward missing": ADDED,
    "encoder: residual of attention missing": ADDED,
    "encoder: residual of feed-forward missing": ADDED,
    "residual of cross-attention from the layer's input": CARRIED,
    "residual of feed-forward from the layer's input": CARRIED,
    "residual of feed-forward from before cross-attention": CARRIED,
    "encoder: residual of feed-forward from the layer's input": CARRIED,
    "encoder: second layer reads the embeddings": CARRIED,
    "decoder: second layer reads the embeddings": CARRIED,
    "encoder: one layer again and again": GRADIENTS,
    "encoder: queries normed, keys not": SAME_NUMBERS,
    "encoder: keys normed, queries not": SAME_NUMBERS,
    "source added to the target's embeddings": ALONE,
    "mask shows three words": EARLIER,
    "mask shows eight words": EARLIER,
    "mask hides the first word": EARLIER,
    "mask hides the word before": EARLIER,
    "mask hides the last row's own word": EARLIER,
    "mask hides a word from itself": EARLIER,
    "mask one too far": CAUSAL,
    "one head sees the future": CAUSAL,
    "padding seen by cross-attention": SOURCE_PADDING,
    "scale of √d_model": SCALE,
    "scores not divided": SCALE,
    "scores divided twice": SCALE,
    "logits multiplied": LOGITS,
    "logits divided": LOGITS,
    "ReLU before the output": LOGITS,
    "heads alike": HEADS,
    "decoder: heads alike": HEADS,
    "dropout of a fixed rate": "dropout is active only in training",
    "target: no positions": TARGET_ORDER,
    "values of cross-attention from the embeddings": LAST,
    "one norm for all three sums": ENDS,
    "softmax over queries": OVER_KEYS,
    "mask behind the softmax": CAUSAL,
    "causal mask in cross-attention": ALL_SOURCE,
    "second layer sees the future": CAUSAL,
    "second layer sees three words": EARLIER,
    "dropout of cross-attention missing": "dropout is in the paper's places",
}


SUMS = "a sum has its sub-layer's input once, and its output"
READ = "queries, keys and values read what they should, unchanged"
PLACE = "its input is the last sum, to which it is added"
JOINED = "heads are joined word by word"
FACTOR = "embeddings are multiplied by √d_model"
SINUSOIDS = "sinusoids have the paper's values"
OVER_WORDS = "the loss is a sum or a mean over words"

#: fault → a function and the check of it that names the fault
OF_FUNCTIONS = {
    "residual of self-attention twice": ("decoder_layer", SUMS),
    "residual of cross-attention twice": ("decoder_layer", SUMS),
    "residual of cross-attention halved": ("decoder_layer", SUMS),
    "residual of feed-forward twice": ("decoder_layer", PLACE),
    "residual of cross-attention from the layer's input": ("decoder_layer", SUMS),
    "residual of feed-forward from the layer's input": ("decoder_layer", PLACE),
    "residual of feed-forward from before cross-attention": ("decoder_layer", SUMS),
    "norm of cross-attention left out": ("decoder_layer", SUMS),
    "last norm of each decoder layer left out": ("decoder_layer", SUMS),
    "feed-forward reads the layer's input": ("decoder_layer", PLACE),
    "cross-attention before self-attention": ("decoder_layer", READ),
    "decoder: keys normed, queries not": ("decoder_layer", READ),
    "memory normed again": ("decoder_layer", READ),
    "heads joined wrongly": ("decoder_layer", JOINED),
    "memory normed again for values": ("decoder_layer", READ),
    "one norm for all three sums": ("decoder_layer", SUMS),
    "layer's input in each sum": ("decoder_layer", SUMS),
    "dropout of cross-attention missing": (
        "decoder_layer",
        "dropout is on each sub-layer's output, before the sum",
    ),
    "decoder: GELU": ("decoder_layer", "between its matrices is a ReLU"),
    "decoder: ε of torch": ("decoder_layer", "the norm divides by √(variance + 1e-6)"),
    "encoder: values normed, keys not": ("encoder_layer", READ),
    "encoder: residual of attention twice": ("encoder_layer", SUMS),
    "encoder: residual of feed-forward from the layer's input": ("encoder_layer", PLACE),
    "encoder: feed-forward reads the layer's input": ("encoder_layer", PLACE),
    "encoder: feed-forward first": ("encoder_layer", PLACE),
    "encoder: queries normed, keys not": ("encoder_layer", READ),
    "heads split wrongly": ("encoder_layer", JOINED),
    "target: not multiplied by √d_model": ("target_embedding", FACTOR),
    "target: multiplied by d_model": ("target_embedding", FACTOR),
    "target: no positions": ("target_embedding", SINUSOIDS),
    "target: positions from 1": ("target_embedding", SINUSOIDS),
    "target: positions from 2": ("target_embedding", SINUSOIDS),
    "target: positions turned round": ("target_embedding", SINUSOIDS),
    "target: no dropout": (
        "target_embedding",
        "dropout is on the sum of embedding and position",
    ),
    "loss divided by sentences": ("loss", OVER_WORDS),
    "loss a mean of sentences' means": ("loss", OVER_WORDS),
    "ends of sentences left out of the loss": ("loss", OVER_WORDS),
    "training loss divided by sentences": (
        "training_loss",
        "training_loss is a sum or a mean over words",
    ),
}
SHOWN = {
    "encoder": "embedding and encoder_layer are the model's own",
    "decoder": "target_embedding and decoder_layer are the model's own",
}
SIDES = {"decoder_layer": "decoder: ", "target_embedding": "target: "}


def tried(faults: dict[str, Any]) -> list[Any]:
    """All faults; those whose check another has shown to fail are tried with the slow tests."""
    first: dict[Any, str] = {}
    for fault, check_of_it in faults.items():
        first.setdefault(check_of_it, fault)
    return [
        pytest.param(fault, marks=[] if first[faults[fault]] == fault else pytest.mark.slow)
        for fault in faults
    ]


@pytest.mark.parametrize("fault", tried(OF_FUNCTIONS))
def test_a_function_shows_a_fault(fault: str) -> None:
    function, title = OF_FUNCTIONS[fault]
    card = check(only(adapter(fault), "embedding", "loss", function))
    assert SIDES.get(function, "") + title in differing(card), card.text()


def only(functions: Any, *names: str) -> Any:
    """An adapter with ``build``, ``logits`` and these functions."""
    names = ("build", "logits", "CONFIG", *names)
    return type(functions)(**{name: getattr(functions, name) for name in names})


def differing(card: Card) -> list[str]:
    return card.titles(DIFFERS, ON_PURPOSE, ERROR)


@pytest.mark.parametrize("fault", tried(OF_LOGITS))
def test_build_and_logits_show_a_fault(fault: str) -> None:
    card = check(only(adapter(fault)))
    assert OF_LOGITS[fault] in card.titles(DIFFERS, ERROR), card.text()


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


def test_every_fault_of_the_student_is_tried() -> None:
    """Dropout in evaluation has no card: logits gave two results for one input."""
    source = Path(student.__file__).read_text(encoding="utf-8")
    faults = set(re.findall(r'has\(\s*"([^"]+)"', source))
    faults |= set(re.findall(r'"([^"]+)" in faults', source))
    assert faults - {"three matrices", "dropout in evaluation"} == {*OF_LOGITS, *OF_FUNCTIONS}
    with pytest.raises(AdapterError, match="two results for one input"):
        check(adapter("dropout in evaluation"))


def assert_differs_in_nothing(sizes: dict[str, int]) -> None:
    card = check(adapter(), replace(CONFIG, **sizes))
    assert not differing(card), card.text()
    assert len(card.titles(NOT_CHECKED)) == 3, card.text()  # the search


@pytest.mark.parametrize("size", SIZES)
def test_the_clean_model_differs_in_nothing(size: str) -> None:
    assert_differs_in_nothing(SIZES[size])


@pytest.mark.slow
def test_six_clean_layers_differ_in_nothing() -> None:
    """As many as the paper's; three show the same in a tenth of the time."""
    assert_differs_in_nothing({"layers": 6})


@pytest.mark.parametrize("layers", [1, 3])
def test_three_matrices_differ_on_purpose(layers: int) -> None:
    card = check(adapter("three matrices"), replace(CONFIG, layers=layers))
    assert not card.titles(DIFFERS, ERROR), card.text()
    assert len(card.titles(ON_PURPOSE)) == 2, card.text()


def test_a_card_of_build_and_logits_has_no_other_check() -> None:
    card = check(only(adapter()))
    assert not differing(card), card.text()
    assert {LAST, ADDED, CARRIED, EARLIER, SCALE, LOGITS} <= set(card.titles(PAPER))


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_file_that_shows_something_else_than_its_model_is_found(side: str) -> None:
    functions = adapter()
    name = {"encoder": "embedding", "decoder": "target_embedding"}[side]
    embed = getattr(functions, name)
    setattr(functions, name, lambda model, ids: embed(model, ids).flip(1))
    card = check(functions)
    assert SHOWN[side] in card.titles(DIFFERS), card.text()


# ---- explanations --------------------------------------------------------------------------------

RELU = "between its matrices is a ReLU"
EQUIVARIANT = "words know their order only through positions"


@pytest.mark.parametrize(
    "fault", ["encoder: feed-forward first", "encoder: feed-forward reads the layer's input"]
)
def test_a_network_in_another_place_still_has_its_relu(fault: str) -> None:
    card = check(only(adapter(fault), "encoder_layer"))
    assert card[RELU].status == PAPER
    place = "stands before attention" if "first" in fault else "reads the layer's input"
    assert card[PLACE].seen == f"it {place}"


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
    assert differing(card) == [EQUIVARIANT], card.text()
    assert card[EQUIVARIANT].meaning.startswith("Likely positions within attention, such as rotary")
    assert card[JOINED].status == PAPER


def test_heads_joined_wrongly_are_named_before_their_consequences() -> None:
    card = check(only(adapter("heads joined wrongly"), "encoder_layer"))
    assert differing(card)[0] == JOINED, card.text()
    assert "3.2.2" in card[EQUIVARIANT].meaning


def test_a_last_row_that_is_blind_is_no_matter_of_padding() -> None:
    card = check(only(adapter("mask hides the last row's own word")))
    assert differing(card) == [EARLIER], card.text()
    assert card["target padding changes nothing"].meaning == f"see '{EARLIER}'"
    assert card[EARLIER].meaning.startswith("The last row does not see itself")


def test_multiplied_logits_are_named_where_a_model_does_not_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(searching, "UPDATES", 0)
    functions = adapter("logits multiplied")
    functions.translate = lambda model, source: source.tolist()
    card = check(only(functions, "translate"))
    penalty = card["beam search divides log P by ((5 + length) / 6)^0.6"]
    assert penalty.status == NOT_CHECKED
    assert penalty.meaning.endswith("its logits are multiplied by 5.66, see 3.4")
    assert card[LOGITS].seen == "times 5.66 = √d_model"
