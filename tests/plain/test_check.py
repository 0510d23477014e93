"""Each check of transformer_check can fail: a bug is planted for it in our own model.

A test names all checks that a bug concerns, so that none cries without a reason.
"""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.plain.check_styles.faults import FAULTS
from tests.plain.test_check_decoder import OF_FUNCTIONS, OF_LOGITS, SHOWN
from transformer_check import AdapterError, Card, Config, check, template_text
from transformer_check.biases import expected_groups
from transformer_check.card import name_with_side
from transformer_check.findings import DIFFERENCE, ERROR, NOT_RUN, PASSED, VARIANT, Finding
from transformer_check.registry import CHECKS, NOT_COVERED, ids
from transformer_check.subject import SIGNATURES, load
from vaswani_transformer import beam_search
from vaswani_transformer.attention import causal_mask
from vaswani_transformer.decoder import DecoderContext

OURS = load(Path(template_text.__code__.co_filename).with_name("template.py"))
FUNCTIONS = {name: value for name, value in vars(OURS).items() if not name.startswith("_")}


def ours(**changes: Any) -> SimpleNamespace:
    """Return our adapter with other functions; without translate, which is slow, if not given."""
    return SimpleNamespace(**{**FUNCTIONS, "translate": None, **changes})


def built(plant: Callable[[nn.Module], Any]) -> SimpleNamespace:
    """Return our adapter, whose models have a bug."""

    def build(config: Config) -> nn.Module:
        model = OURS.build(config)
        plant(model)
        return model

    return ours(build=build)


def differing(card: Card) -> set[str]:
    """Return the checks that failed, each with its side."""
    return {name_with_side(result) for result in card.results if result.finding.failed}


# ---- the bugs ------------------------------------------------------------------------------------


def no_causal_mask(model: Any) -> None:
    for layer in model.decoder.layers:
        forward = layer.self_attention.forward
        layer.self_attention.forward = lambda x, *_, forward=forward: forward(x)


def decoder_attends_to_itself_twice(model: Any) -> None:
    for layer in model.decoder.layers:
        forward = layer.cross_attention.forward
        layer.cross_attention.forward = lambda x, *_, forward=forward: forward(
            x, x, causal_mask(x.size(1))
        )


def padding_not_masked(model: Any) -> None:
    model.encoder.find_padding = lambda tokens: None


def positions_by_the_batch(model: Any) -> None:
    embedding = model.decoder.embedding
    embedding.forward = lambda ids, skip=0: embedding.embed(
        ids, positions=torch.arange(len(ids))[:, None], length=len(ids)
    )


def positions_missing(model: Any) -> None:
    model.encoder.embedding.positions.forward = lambda positions, length, like: 0.0 * like


def norm_at_the_end(model: Any) -> None:
    model.encoder.norm = nn.LayerNorm(32)


def another_matrix(model: Any) -> None:
    model.encoder.projection = nn.Linear(7, 11)


def one_head(model: Any) -> None:
    for layer in model.encoder.layers:
        layer.self_attention.num_heads = 1


def dropout_in_evaluation(model: Any) -> None:
    dropout = model.decoder.embedding.dropout
    dropout.forward = lambda x: F.dropout(x, dropout.p)


def no_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def dropout_on_attention(model: Any) -> None:
    model.encoder.layers[0].self_attention.dropout.p = model.encoder.embedding.dropout.p


def embedding_not_scaled(model: Any) -> None:
    for side in (model.encoder.embedding, model.decoder.embedding):
        side.forward = lambda ids, skip=0, is_padding=None, side=side: side.dropout(
            side.tokens(ids) + side.positions(torch.arange(ids.size(1))[None], ids.size(1), ids / 1)
        )


def wavelengths(exponent: float) -> Callable[[Any], None]:
    def plant(model: Any) -> None:
        pairs = torch.arange(16) / 16 * exponent
        angles = torch.arange(256)[:, None] / 10000**pairs
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        model.encoder.embedding.positions.forward = lambda positions, length, like: table[positions]

    return plant


def tensor2tensors_sinusoids(model: Any) -> None:
    model.encoder.embedding.positions = type(model.encoder.embedding.positions)(32, "t2t")


def trained_sinusoids(model: Any) -> None:
    positions = model.encoder.embedding.positions
    positions.rows = nn.Parameter(positions.table.float())
    positions.forward = lambda numbers, length, like: positions.rows[numbers]


def pre_norm(model: Any) -> None:
    for layer in model.encoder.layers:

        def forward(x: Any, mask: Any, weights: Any = None, layer: Any = layer) -> Any:
            first, second = layer.after_self_attention, layer.after_feed_forward
            x = x + first.dropout(layer.self_attention(first.norm(x), mask))
            return x + second.dropout(layer.feed_forward(second.norm(x)))

        layer.forward = forward


def with_norms(function: Callable[[Any, Any, Any], Any]) -> Callable[[Any], None]:
    """Return a planter of another add & norm: (its parts, x, the sub-layer's output)."""

    def add_and_norm(part: Any, x: Any, sublayer: Any) -> Any:
        return function(part, x, sublayer(x))

    def plant(model: Any) -> None:
        for layer in model.encoder.layers:
            for part in (layer.after_self_attention, layer.after_feed_forward):
                part.forward = partial(add_and_norm, part)

    return plant


def norm_of_a_sample(part: Any, x: Any, y: Any) -> Any:
    x = x + part.dropout(y)
    normalised = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)
    return part.norm.weight * normalised + part.norm.bias


def with_ffn(function: Callable[[Any, Any], Any]) -> Callable[[Any], None]:
    """Return a planter of another feed-forward network: (its parts, x)."""

    def plant(model: Any) -> None:
        ffn = model.encoder.layers[0].feed_forward
        ffn.forward = lambda x: function(ffn, x)

    return plant


def relu(ffn: Any, x: Any) -> Any:
    return ffn.fc2(F.relu(ffn.fc1(x)))


def encoder_with_causal_mask(model: Any) -> None:
    attention = model.encoder.layers[0].self_attention
    forward = attention.forward
    attention.forward = lambda x, mask=None, weights=None: forward(x, None, None, weights, True)


def with_sizes(**sizes: Any) -> SimpleNamespace:
    """Return our adapter with models of other sizes than those asked for."""
    return ours(build=lambda config: OURS.build(replace(config, **sizes)))


def untied(config: Config) -> nn.Module:
    model = OURS.build(config)
    model.decoder.output_projection.weight = nn.Parameter(torch.randn(50, 32))
    return model


def output_with_bias(config: Config) -> nn.Module:
    model = OURS.build(config)
    model.decoder.output_projection.bias = nn.Parameter(torch.zeros(50))
    return model


def no_biases_in(part: str) -> Callable[[Any], None]:
    """Remove the biases of attention or of feed-forward networks."""

    def plant(model: Any) -> None:
        for name, module in model.named_modules():
            if part in name and isinstance(module, nn.Linear):
                module.bias = None

    return plant


def softmax_attention(
    weigh: Callable[[Any], Any] = lambda scores: scores.softmax(-1), scale: float = 8**-0.5
) -> SimpleNamespace:
    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = q @ k.transpose(-2, -1) * scale
        return weigh(scores if mask is None else scores.masked_fill(~mask, float("-inf"))) @ v

    return ours(attention=attention)


def without_maximum(scores: Any) -> Any:
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


def cross_entropy(**options: Any) -> SimpleNamespace:
    return ours(
        loss=lambda logits, target: F.cross_entropy(
            logits.flatten(0, 1), target.flatten(), **options
        )
    )


def adam_of(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.0, betas=(0.9, 0.98), eps=1e-9)


def two_groups(model: Any) -> torch.optim.Optimizer:
    first, *rest = model.parameters()
    return adam_of([{"params": rest}, {"params": [first], "weight_decay": 0.1}])


def trained_to_repeat(model: Any, source: Any, target: Any) -> Any:
    previous = target.roll(1, dims=1)
    previous[:, 0] = 2
    return OURS.loss(model(source, previous), previous)


#: bug → the checks that fail, the cause first
BUGS: dict[str, tuple[SimpleNamespace, list[str]]] = {
    "no causal mask": (built(no_causal_mask), ["causal-mask", "target-padding"]),
    "the decoder attends to itself twice": (
        built(decoder_attends_to_itself_twice),
        [
            "source-dependence",
            "layer-count",
            "source-order",
            "gradients",
            "heads",
            "attention-inputs (decoder)",
        ],
    ),
    "padding not masked": (built(padding_not_masked), ["source-padding"]),
    "positions by the batch": (
        built(positions_by_the_batch),
        [
            "batch-independence",
            "source-padding",
            "target-padding",
            "target-order",
            "embedding-scale (target)",
        ],
    ),
    "a bias before the softmax": (ours(build=output_with_bias), ["output-bias", "parameter-count"]),
    "no biases in attention": (
        built(no_biases_in("attention")),
        ["attention-biases", "parameter-count"],
    ),
    "no biases in networks": (
        built(no_biases_in("feed_forward")),
        ["feed-forward-biases", "parameter-count"],
    ),
    "positions missing": (built(positions_missing), ["sinusoids (source)", "source-order"]),
    "three matrices": (ours(build=untied), ["shared-matrix", "parameter-count"]),
    "a norm at the end": (built(norm_at_the_end), ["gradients", "parameter-count"]),
    "another matrix": (built(another_matrix), ["gradients", "parameter-count"]),
    "one head": (built(one_head), ["heads", "attention-scale"]),
    "dropout in evaluation": (
        built(dropout_in_evaluation),
        ["evaluation-dropout", "embedding-dropout (target)"],
    ),
    "no dropout": (
        built(no_dropout),
        [
            "training-dropout",
            "embedding-dropout (source)",
            "embedding-dropout (target)",
        ],
    ),
    "dropout on attention": (built(dropout_on_attention), ["extra-dropout"]),
    "embedding not scaled": (
        built(embedding_not_scaled),
        [
            "embedding-scale (source)",
            "embedding-scale (target)",
        ],
    ),
    "exponents doubled": (built(wavelengths(2)), ["sinusoids (source)"]),
    "tensor2tensor's sinusoids": (built(tensor2tensors_sinusoids), ["sinusoids (source)"]),
    "trained sinusoids": (
        built(trained_sinusoids),
        ["learned-positions", "parameter-count"],
    ),
    "norm before the sub-layer": (built(pre_norm), ["final-norm", "pre-norm (encoder)"]),
    "a second group of Adam": (
        ours(optimizer=two_groups),
        ["adam"],
    ),
    "half of the parameters": (
        ours(optimizer=lambda model: adam_of(list(model.parameters())[::2])),
        ["optimizer-parameters"],
    ),
    "another model's parameters": (
        ours(optimizer=lambda model: adam_of(OURS.build(OURS.CONFIG).parameters())),
        ["optimizer-parameters"],
    ),
    "a rate that is no number": (
        ours(learning_rate=lambda step: float("nan")),
        ["learning-rate"],
    ),
    "residual missing": (
        built(with_norms(lambda part, x, y: part.norm(part.dropout(y)))),
        ["residual-connections", "post-norm (encoder)", "sublayer-output-used"],
    ),
    "the ε of torch": (
        built(
            with_norms(
                lambda part, x, y: F.layer_norm(
                    x + part.dropout(y), (32,), part.norm.weight, part.norm.bias
                )
            )
        ),
        ["norm-epsilon (encoder)"],
    ),
    "the deviation of a sample": (built(with_norms(norm_of_a_sample)), ["norm-variance (encoder)"]),
    "another d_ff": (
        with_sizes(d_ff=72),
        [
            "feed-forward-size (encoder)",
            "feed-forward-size (decoder)",
            "stray-activation",
            "parameter-count",
        ],
    ),
    "a network that mixes positions": (
        built(with_ffn(lambda ffn, x: relu(ffn, x + x.roll(1, 1)))),
        [
            "position-wise (encoder)",
            "permutation (encoder)",
            "source-padding",
        ],
    ),
    "ReLU missing": (built(with_ffn(lambda ffn, x: ffn.fc2(ffn.fc1(x)))), ["activation"]),
    "GELU": (built(with_ffn(lambda ffn, x: ffn.fc2(F.gelu(ffn.fc1(x))))), ["activation"]),
    "another d_k": (
        with_sizes(d_k=4),
        [
            "head-size (encoder)",
            "head-size (decoder)",
            "parameter-count",
            "attention-scale",
        ],
    ),
    "the encoder has a causal mask": (
        built(encoder_with_causal_mask),
        ["source-visible", "permutation (encoder)"],
    ),
    "dropout after the sum": (
        built(with_norms(lambda part, x, y: part.norm(part.dropout(x + y)))),
        ["sublayer-dropout (encoder)"],
    ),
    "softmax over queries": (
        softmax_attention(lambda scores: scores.softmax(-2).nan_to_num()),
        [
            "equation-1-softmax",
            "equation-1-mask",
        ],
    ),
    "not divided by √d_k": (softmax_attention(scale=1.0), ["equation-1-scale"]),
    "no mask in attention": (
        ours(attention=lambda q, k, v, mask: OURS.attention(q, k, v, None)),
        ["equation-1-mask"],
    ),
    "softmax without the maximum": (
        softmax_attention(without_maximum),
        ["equation-1-overflow"],
    ),
    "a step late": (
        ours(learning_rate=lambda step: OURS.learning_rate(step + 1)),
        ["learning-rate"],
    ),
    "Adam's defaults": (
        ours(optimizer=lambda model: torch.optim.Adam(model.parameters())),
        ["adam"],
    ),
    "torch's smoothing": (
        cross_entropy(ignore_index=1, label_smoothing=0.1),
        ["label-smoothing"],
    ),
    "pads have a loss": (
        cross_entropy(label_smoothing=0.1 * 50 / 49),
        ["loss-padding"],
    ),
    "labels not shifted": (
        ours(training_loss=trained_to_repeat),
        ["target-shift"],
    ),
}


@lru_cache(maxsize=None)
def card_of(bug: str) -> Card:
    """Return the card of our model with a bug; for a bug outside the model, a layer is enough."""
    adapter = BUGS[bug][0]
    layers = 1 if adapter.build is OURS.build else OURS.CONFIG.layers
    return check(adapter, replace(OURS.CONFIG, layers=layers))


PLANTED = [
    pytest.param(name, marks=[] if number % 6 == 0 else pytest.mark.slow)
    for number, name in enumerate(BUGS)
]
"""A sixth of them by default: each takes a card, which is a second or two."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    _, expected = BUGS[name]
    card = card_of(name)
    assert differing(card) == set(expected), card.text()


#: bugs with two causes: a pre-norm encoder, and the final norm that it lacks
TWO_CAUSES = ("norm before the sub-layer",)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_one_problem_and_the_rest_are_its_consequences(name: str) -> None:
    card = card_of(name)
    cause = BUGS[name][1][0].partition(" ")[0]
    assert card.problems[0].check.id == cause, card.text()
    assert len(card.problems) == 1 + (name in TWO_CAUSES), card.text()


def test_positions_in_a_parameter_without_gradient_are_not_trained() -> None:
    def plant(model: Any) -> None:
        trained_sinusoids(model)
        model.encoder.embedding.positions.rows.requires_grad_(False)

    assert not differing(check(built(plant)))


def later_step(model: Any) -> None:
    decoder = model.decoder

    def step(tokens: Any, memory: Any, cache: Any) -> Any:
        position = torch.full((1, 1), cache.length + 1)
        embed = decoder.embedding.embed
        x = embed(tokens[:, None], positions=position, length=cache.length + 2)
        x, _ = decoder.run_layers(x, memory, context=DecoderContext(cache=cache))
        return decoder.output_layer(x[:, 0])

    decoder.step = step


SEARCH_BUGS = {
    "no length penalty": (
        lambda model, source: beam_search(model, source, beam=4, alpha=0.0),
        ["length-penalty"],
    ),
    "a limit of 100": (
        lambda model, source: beam_search(model, source, extra=100),
        ["length-limit"],
    ),
}


@pytest.mark.slow  # each teaches a model, for seconds
@pytest.mark.parametrize("name", SEARCH_BUGS)
def test_a_bug_in_the_search_is_found(name: str) -> None:
    translate, expected = SEARCH_BUGS[name]
    card = check(ours(translate=translate))
    assert differing(card) == set(expected), card.text()


def test_decoding_with_other_positions_than_training_is_found() -> None:
    adapter = built(later_step)
    adapter.translate = OURS.translate
    card = check(adapter, chosen=["decoding", "beam-search"])
    assert differing(card) & {"decoding", "beam-search"}, card.text()


def test_every_check_has_its_bug() -> None:
    planted = {"decoding", "beam-search"}  # by the test above
    for _, expected in [*BUGS.values(), *SEARCH_BUGS.values()]:
        planted |= {name.partition(" ")[0] for name in expected}
    planted |= {*OF_LOGITS.values(), *SHOWN.values()}  # of test_check_decoder.py
    planted |= {check_id for _, check_id in OF_FUNCTIONS.values()}
    for fault in FAULTS:  # of test_check_faults.py
        planted |= set(fault.id.split("|"))
    assert set(ids()) - planted == set()


def test_causes_and_consequences_form_no_circle() -> None:
    explains: dict[str, set[str]] = {}
    for each in CHECKS:
        explains.setdefault(each.id, set()).update(each.explains)
    assert set().union(*explains.values()) <= set(ids())
    remaining = dict(explains)
    while remaining:
        last = [name for name, own in remaining.items() if not own & set(remaining)]
        assert last, f"each explains another: {sorted(remaining)}"
        for name in last:
            del remaining[name]


# ---- ours ----------------------------------------------------------------------------------------

ROWS = {
    "A: one head": {"heads": 1},
    "B: narrow keys": {"d_k": 4},
    "C: one layer": {"layers": 1},
    "C: d_model, d_k, d_v": {"d_model": 48, "heads": 4, "d_k": 6, "d_v": 6},
    "C: d_ff": {"d_ff": 40},
    "D: no dropout": {"dropout": 0.0},
    "E: learned positions": {"learned_positions": True},
    "big": {"d_model": 64, "d_ff": 256, "heads": 16, "dropout": 0.3},
    "tiny": {"d_model": 32, "d_ff": 128, "heads": 4},
}


LIKE_THE_STUDENTS = ("A: one head", "B: narrow keys", "C: d_model, d_k, d_v", "C: d_ff", "tiny")
"""Sizes that test_check_decoder.py tries on another model; here with the slow tests."""
SEARCH = ("length-penalty", "length-limit", "beam-search", "decoding")


@lru_cache(maxsize=None)
def card_of_row(row: str) -> Card:
    return check(ours(), replace(OURS.CONFIG, **ROWS[row]))


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.slow if row in LIKE_THE_STUDENTS else []) for row in ROWS],
)
def test_ours_passes_with_every_option_of_table_3(row: str) -> None:
    card = card_of_row(row)
    assert not differing(card), card.text()
    assert set(card.ids(NOT_RUN)) <= {*SEARCH, "sinusoids"}  # learned positions have none


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_ours_passes_with_row_d_of_label_smoothing(epsilon: float) -> None:
    def loss(logits: Any, target: Any) -> Any:
        log_probs = logits.log_softmax(-1)
        return OURS.label_smoothed_loss(log_probs, target, epsilon, 1)[0]

    card = check(ours(loss=loss, training_loss=None), Config(start=2, label_smoothing=epsilon))
    assert not differing(card), card.text()


def test_ours_passes_every_check() -> None:
    """But for those of the search, which teach a model: test_check_command.py has them, too."""
    chosen = [each for each in ids() if each not in SEARCH]
    template = template_text.__code__.co_filename.replace("__init__", "template")
    card = check(template, chosen=chosen)
    listed = [item["id"] for item in json.loads(card.json())["checks"]]
    assert card.ids(PASSED) == list(dict.fromkeys(listed)) == chosen, card.text()


def test_the_formula_of_the_parameters_gives_the_papers_counts() -> None:
    """In millions, for the 40,960 types of the authors' data (docs/fidelity.md)."""
    counts = {
        65: {},
        58: {"d_k": 16},
        60: {"d_k": 32},
        36: {"layers": 2},
        50: {"layers": 4},
        80: {"layers": 8},
        28: {"d_model": 256, "d_k": 32, "d_v": 32},
        168: {"d_model": 1024, "d_k": 128, "d_v": 128},
        53: {"d_ff": 1024},
        90: {"d_ff": 4096},
    }
    base = Config(layers=6, d_model=512, d_ff=2048, heads=8, vocabulary=40_960)
    seen = {
        n: sum(expected_groups(replace(base, **row)).values()) / 1e6 for n, row in counts.items()
    }
    assert {n: round(value) for n, value in seen.items()} == {n: n for n in counts}, seen


# ---- what the card says --------------------------------------------------------------------------


def finding_of(bug: str, check_id: str) -> Finding:
    return check(BUGS[bug][0], chosen=[check_id])[check_id]


def test_only_leaks_and_masks_are_errors_and_usual_choices_are_marked() -> None:
    assert finding_of("no causal mask", "causal-mask").status == ERROR
    assert finding_of("padding not masked", "source-padding").status == ERROR
    assert finding_of("norm before the sub-layer", "pre-norm").status == VARIANT
    assert finding_of("GELU", "activation").status == VARIANT
    assert finding_of("ReLU missing", "activation").status == DIFFERENCE
    assert finding_of("tensor2tensor's sinusoids", "sinusoids").status == VARIANT
    assert finding_of("exponents doubled", "sinusoids").status == DIFFERENCE
    assert finding_of("a norm at the end", "parameter-count").status == VARIANT
    assert finding_of("another matrix", "parameter-count").status == DIFFERENCE


def test_the_card_names_a_cause_once_with_its_place_and_its_consequences() -> None:
    lines = card_of("dropout in evaluation").text().splitlines()
    (start,) = [n for n, line in enumerate(lines) if line.startswith("E1  ERROR: Dropout is act")]
    labels = [line.split()[0] for line in lines[start + 1 : start + 5]]
    assert labels == ["found", "expected", "fix", "leads"]
    assert "embedding-dropout (target)" in lines[start + 4]
    assert "[embedding-dropout" not in "\n".join(lines)


def test_a_selection_runs_these_checks_alone() -> None:
    card = check(ours(), chosen=["3.2", "adam"])
    assert set(card.ids(PASSED)) == {
        each.id for each in CHECKS if each.section.startswith("3.2") or each.id == "adam"
    }
    with pytest.raises(AdapterError, match="--select causal: there is no check"):
        check(ours(), chosen=["causal"])


def test_learned_positions_are_named_as_what_they_are() -> None:
    card = card_of_row("E: learned positions")
    text = " ".join(card.text(verbose=True).split())
    assert "The positional encodings are learned, as CONFIG.learned_positions says." in text
    assert "have the paper's values" not in text
    assert "are not trained" not in text


def test_what_a_file_accepts_is_no_difference() -> None:
    card = check(ours(build=untied, ACCEPT=["shared-matrix"]), chosen=["3.4", "Table 3"])
    assert card.ids(VARIANT) == ["shared-matrix", "parameter-count"]
    assert not card.differs
    assert "do not share one matrix [shared-matrix]" in " ".join(card.text().split())
    assert check(ours(build=untied), chosen=["shared-matrix"]).differs
    with pytest.raises(AdapterError, match="ACCEPT has prenorm, but there is no check"):
        check(ours(ACCEPT=["prenorm"]))
    leaking = ours(build=built(padding_not_masked).build, ACCEPT=["source-padding"])
    padded = check(leaking, chosen=["source-padding"])
    assert padded.differs and padded.has_errors  # an error is never accepted


def test_a_difference_says_by_how_much() -> None:
    scale = finding_of("not divided by √d_k", "equation-1-scale")
    assert (scale.found, scale.expected) == ("factor 1.0000", "1/√8 = 0.3536")
    late = finding_of("a step late", "learning-rate")
    assert late.found.startswith("3.494e-07 at step 1,")
    matrices = finding_of("three matrices", "parameter-count")
    assert matrices.found == "50,112 parameters: +1,600 in embedding matrices"


def test_the_epsilon_of_a_norm_is_measured_over_many_magnitudes() -> None:
    for eps in (1e-12, 1e-8, 1e-5):
        norm = with_norms(
            lambda part, x, y, eps=eps: F.layer_norm(
                x + part.dropout(y), (32,), part.norm.weight, part.norm.bias, eps
            )
        )
        card = check(built(norm), chosen=["norm-epsilon"])
        assert card.of_side("norm-epsilon", "encoder").found == f"ε about {eps:.0e}"


@lru_cache(maxsize=None)
def card_of_two_functions() -> Card:
    return check(SimpleNamespace(build=OURS.build, logits=OURS.logits, CONFIG=OURS.CONFIG))


def test_what_is_not_defined_is_not_checked_and_named() -> None:
    card = card_of_two_functions()
    assert not differing(card)
    assert card["equation-1-scale"].reason == "define attention"
    assert not set(card.ids(NOT_RUN)) & {each.id for each in CHECKS if not each.needs}


def test_the_page_names_all_functions_and_sizes() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    assert f": {len(CHECKS)} checks, by section" in page
    for function in SIGNATURES:
        assert f"| `{function}(" in page
    for field in fields(Config):
        assert f"`{field.name}`" in page
    for what in NOT_COVERED:
        assert what in " ".join(page.split())


# ---- bad input -----------------------------------------------------------------------------------


def raising(*_: Any) -> None:
    raise KeyError("masks")


def left_in_training(model: Any, source: Any, target: Any) -> Any:
    return model.train()(source, target)


BAD = {
    "raises": ({"logits": raising}, r"logits\(model, .*\) raised KeyError at test_check.py:\d+"),
    "shape": (
        {"logits": lambda model, s, t: model(s, t).transpose(0, 1)},
        r"logits\(\) returned a tensor \[5, 2, 50\]: expected a tensor of floats \[2, 5, 50\]",
    ),
    "training": ({"logits": left_in_training}, "left the model in training mode: remove"),
    "not finite": ({"logits": lambda model, s, t: model(s, t) / 0}, "returned NaN or infinity"),
    "random": (
        {"logits": lambda model, s, t: model(s, t) + torch.randn(2, 5, 50)},
        r"logits\(\) returned two results for one input",
    ),
    "probabilities": (
        {"logits": lambda model, s, t: model(s, t).softmax(-1)},
        r"logits\(\) returned probabilities",
    ),
    "build": (
        {"build": lambda config: None},
        r"build\(\) returned NoneType: expected a torch.nn.Module",
    ),
    "missing": ({"build": None}, r"does not define build\(\)"),
    "ends": ({"logits": lambda *_: sys.exit(0)}, "logits.* raised SystemExit"),
    "CONFIG": ({"CONFIG": {"layers": 2}}, "CONFIG is dict: expected transformer_check.Con"),
    "type": (
        {"build": lambda config: OURS.build(config).double()},
        "made .* with type float64: expected float32",
    ),
    "default type": (
        {"build": lambda config: torch.set_default_dtype(torch.float64)},
        r"build\(\) set torch's default type to float64: remove set_default_dtype",
    ),
    "inference": (
        {"logits": torch.inference_mode()(OURS.logits)},
        r"logits\(\) ran in torch.inference_mode\(\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_a_sentence_that_names_the_function(name: str) -> None:
    functions, message = BAD[name]
    with pytest.raises(AdapterError, match=message):
        check(ours(**functions))


FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "loss": (
        {"loss": lambda logits, target: 0.0},
        r"loss\(\) returned 0.0: expected one number",
    ),
    "encoder_layer": (
        {"encoder_layer": lambda model, x: OURS.encoder_layer(model, x).detach()},
        r"encoder_layer\(\) returned a tensor without gradient",
    ),
    "decoder_layer": ({"decoder_layer": raising}, r"decoder_layer\(model, .*\) raised KeyError"),
    "target_embedding": ({"target_embedding": raising}, r"target_embedding\(model, .*\) raised"),
    "training_loss": (
        {"training_loss": lambda *_: torch.tensor(float("nan"))},
        "training_loss returned NaN",
    ),
    "optimizer": (
        {"optimizer": lambda model: sys.exit(0)},
        r"optimizer\(model\) raised SystemExit",
    ),
    "attention": ({"attention": lambda q, k, v, mask: q}, r"attention\(\) returned a tensor"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_function_that_fails_is_its_own_error_and_no_other(name: str) -> None:
    functions, message = FAILING[name]
    card = check(ours(**functions), replace(OURS.CONFIG, layers=1))
    assert differing(card) == {"adapter"}, card.text()
    assert re.search(message, card["adapter"].found), card["adapter"].found
    assert card.problems[0].sentence == f"{name}() fails."
    for each, finding in card.results[1:]:
        if name not in each.needs and "translate" not in each.needs:
            assert finding.status == PASSED, each.id


WRONG_SIZES: list[tuple[dict[str, int], str]] = [
    ({"layers": 0}, "layers is 0: expected 1 or more"),
    ({"vocabulary": 5}, "vocabulary is 5: expected 18 or more"),
    ({"max_length": 20}, "max_length is 20: expected 48 or more"),
    ({"d_ff": 32}, "d_ff and d_model are equal"),
    ({"pad": 2}, "pad is also start or end"),
    ({"start": 50}, "start is 50: expected an id below 50"),
]


@pytest.mark.parametrize(("sizes", "message"), WRONG_SIZES)
def test_sizes_that_cannot_be_checked_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        Config(**sizes)


def test_a_loss_of_zero_is_a_difference() -> None:
    functions = ours(training_loss=lambda *_: torch.tensor(0.0))
    card = check(functions, chosen=["target-shift"])
    assert card["target-shift"].status == NOT_RUN


def test_a_card_says_what_it_did_not_look_at() -> None:
    text = " ".join(card_of_two_functions().text().split())
    assert "4 checks need attention(q, k, v, mask) " in text
    assert re.search(r"\d+ checks need translate\(model, source\) ", text)
    assert "the training itself, averaged checkpoints" in text


def test_a_file_may_change_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moving.py").write_text(
        "import os\nos.chdir('/')\nfrom transformer_check.template import *"
    )
    assert load(Path("moving.py")).CONFIG == OURS.CONFIG
    assert Path.cwd() == tmp_path


def test_a_file_that_ends_on_import_is_named(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("raise SystemExit(0)")
    with pytest.raises(AdapterError, match=r"ends\.py raised SystemExit on import"):
        check(tmp_path / "ends.py")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"none\.py does not exist"):
        check(tmp_path / "none.py")
    (tmp_path / "bad.py").write_text("import nothing_of_that_name")
    with pytest.raises(AdapterError, match=r"bad\.py raised ModuleNotFoundError on import"):
        check(tmp_path / "bad.py")
