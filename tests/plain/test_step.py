"""``fast/step.py``: a step of a search as one function equals the layers one by one, to the bit."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from tests import extend
from tests.plain.small import SIZES, TYPES, batch, lively_model
from vaswani_transformer import SearchOptions, Transformer, TransformerConfig
from vaswani_transformer.cache import INITIAL_CAPACITY
from vaswani_transformer.fast import step as step_file
from vaswani_transformer.fast import use_fast_kernels, use_fused_attention
from vaswani_transformer.fast.linear import convert_to_bf16, pack_weights
from vaswani_transformer.search import search
from vaswani_transformer.search.history import Hypotheses

LONG = INITIAL_CAPACITY + 8
"""The cache grows in a search of so many steps."""
OPTIONS = {"beam": 4, "max_len_a": 0, "max_len_b": 12}


def run_search(model: Transformer, sentences: int = 3, **options: Any) -> Hypotheses:
    """Return the hypotheses of a padded batch."""
    source = batch(4)[0][:sentences]
    chosen: Any = SearchOptions(**{**OPTIONS, **options})
    with torch.no_grad():
        return search(model.decoder, model.encoder(source), source, chosen)


@pytest.fixture(name="steps")
def _steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each step that runs as one function."""
    steps: list[int] = []
    run = step_file.DecoderStep.__call__

    def count(self: Any, *arguments: Any) -> Any:
        steps.append(1)
        return run(self, *arguments)

    monkeypatch.setattr(step_file.DecoderStep, "__call__", count)
    return steps


def run_layer_by_layer(model: Transformer, **options: Any) -> Hypotheses:
    """Search as :func:`run_search`, with every step layer by layer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_file, "make_step", lambda decoder: None)
        return run_search(model, **options)


def assert_identical(first: Hypotheses, second: Hypotheses) -> None:
    """Assert equality to the last bit: of tokens, their scores, and the hypotheses' scores."""
    assert first.sentences == second.sentences
    assert torch.equal(first.scores, second.scores)
    for name in ("tokens", "token_scores"):
        pairs = zip(getattr(first, name), getattr(second, name), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), name


def in_bf16(model: Transformer) -> Transformer:
    """Convert the whole model to bfloat16."""
    return use_fast_kernels(model).bfloat16()  # type: ignore[return-value]


def packed(model: Transformer) -> Transformer:
    """Pack the weights, as the engine of ``vaswani translate`` does."""
    pack_weights(use_fast_kernels(model.float()))
    return model


def converted(model: Transformer) -> Transformer:
    """Convert and pack the weights, as for ``--precision bf16`` on a processor with its units."""
    convert_to_bf16(use_fast_kernels(model.float()))
    return packed(model)


FORMS: dict[str, Callable[[Transformer], Any]] = {
    "float64": use_fast_kernels,
    "float32": lambda model: use_fast_kernels(model.float()),
    "bfloat16": in_bf16,
    "packed": packed,
    "packed bf16": converted,
    "sdpa": use_fused_attention,
}
SEARCHES: dict[str, dict[str, Any]] = {
    "beam 4": {},
    "gnmt": {"length_penalty": "gnmt", "lenpen": 0.6, "nbest": 4},
    "beam 1": {"beam": 1},
    "one sentence": {"sentences": 1, "min_len": 8},
    "no repeats": {"no_repeat_ngram_size": 2},
    "long": {"min_len": LONG - 1, "max_len_b": LONG},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("dims", [{}, {"head_key_dim": 3, "head_value_dim": 5}])
def test_the_one_function_equals_the_layers(
    form: str, name: str, dims: dict[str, int], steps: list[int]
) -> None:
    model = lively_model(5, **dims)
    model = FORMS[form](model)
    units = torch.autocast("cpu", dtype=torch.bfloat16)
    with units if form == "packed bf16" else contextlib.nullcontext():
        expected = run_layer_by_layer(model, **SEARCHES[name])
        assert not steps
        assert_identical(run_search(model, **SEARCHES[name]), expected)
    assert len(steps) > 3


def test_gradients_and_weights_are_computed_by_the_layers(steps: list[int]) -> None:
    """The function has neither: a step with gradients, and one whose weights are wanted."""
    model: Any = use_fast_kernels(lively_model(5))
    source, previous, _ = batch(5)
    memory = model.encoder(source)
    cache = step_file.DecoderCache(2)
    for length in (1, 2):
        logits = model.decoder.step(previous[:, length - 1], memory, cache)
    assert logits.requires_grad
    with torch.no_grad():
        _, weights = model.decoder.features(previous[:, :3], memory, cache, need_alignment=True)
    assert len(weights.cross_attention) == 1
    assert not steps
    with torch.no_grad():
        model.decoder.step(previous[:, 3], memory, cache)
    assert len(steps) == 1


def test_written_and_replaced_weights_are_seen(steps: list[int]) -> None:
    """Nothing of a weight is kept from one search to the next."""
    model = use_fast_kernels(lively_model(5))
    run_search(model)  # type: ignore[arg-type]
    other = lively_model(6)
    model.load_state_dict(other.state_dict(), assign=True)
    found = run_search(model)  # type: ignore[arg-type]
    assert_identical(found, run_layer_by_layer(model))  # type: ignore[arg-type]
    assert steps


def hook(model: Any, called: list[int]) -> Any:
    last = model.decoder.layers[-1].feed_forward.fc2
    return last.register_forward_hook(lambda *_: called.append(1))


def hook_before(model: Any, called: list[int]) -> Any:
    return model.decoder.layers[0].register_forward_pre_hook(lambda *_: called.append(1))


def hook_everywhere(model: Any, called: list[int]) -> Any:
    return register_module_forward_hook(lambda *_: called.append(1))


@pytest.mark.parametrize("register", [hook, hook_before, hook_everywhere])
def test_a_hook_is_called_in_every_step(register: Any, steps: list[int]) -> None:
    model: Any = use_fast_kernels(lively_model(5))
    expected = run_search(model, min_len=9)
    assert steps
    steps.clear()
    called: list[int] = []
    handle = register(model, called)
    assert_identical(run_search(model, min_len=9), expected)
    handle.remove()
    assert len(called) >= 9 and not steps
    run_search(model)
    assert steps


class OwnLinear(nn.Linear):
    """Somebody's own: an adapter, say."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def own_linear(model: Any) -> None:
    model.decoder.layers[1].cross_attention.q_proj.__class__ = OwnLinear


def own_method(model: Any) -> None:
    feed_forward = model.decoder.layers[0].feed_forward
    feed_forward.forward = lambda x: feed_forward.fc2(torch.tanh(feed_forward.fc1(x)))


def no_feed_forward(model: Any) -> None:
    model.decoder.layers[1].feed_forward = nn.Linear(16, 16).double()


def dropout_on(model: Any) -> None:
    model.decoder.layers[0].feed_forward.dropout.train()


CHANGES = [own_linear, own_method, no_feed_forward, dropout_on]


@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_was_changed_runs_as_it_is(change: Any, steps: list[int]) -> None:
    model: Any = lively_model(5)
    use_fast_kernels(model)
    before = run_search(model)
    steps.clear()
    change(model)
    model.decoder.layers.to(torch.float64)
    found = run_search(model)
    assert not steps
    assert_identical(found, run_layer_by_layer(model))
    if change is not dropout_on:  # its rate is 0
        assert not torch.equal(found.scores[:1], before.scores[:1])


@pytest.mark.parametrize("name", extend.VARIANTS)
def test_a_variant_runs_as_it_is(name: str, steps: list[int]) -> None:
    torch.manual_seed(5)
    model = extend.variant(name)(TransformerConfig(**SIZES), TYPES, TYPES).double().eval()
    use_fast_kernels(model)
    assert_identical(run_search(model), run_layer_by_layer(model))
    assert not steps


@pytest.mark.parametrize(
    "options", [{"decoder_normalize_before": True}, {"activation_fn": "gelu"}], ids=str
)
def test_alternatives_run_as_they_are(options: dict[str, Any], steps: list[int]) -> None:
    model: Any = use_fast_kernels(lively_model(5, **options))
    assert_identical(run_search(model), run_layer_by_layer(model))
    assert not steps


def test_the_readable_attention_has_no_one_function(steps: list[int]) -> None:
    run_search(lively_model(5))
    assert not steps
