"""experiments/systems: each change computes its formula, at once and step by step."""

import importlib
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.harness import HERE
from tests import extend
from tests.plain.small import PAD, SIZES, TYPES, batch, small_model, updates_to_learn
from vaswani.configuration.plugin import load_user_dir
from vaswani_transformer import Transformer, TransformerConfig, base
from vaswani_transformer.cache import DecoderCache
from vaswani_transformer.fast import use_fast_kernels

load_user_dir(str(HERE / "systems"))  # as fairseq does: its models are registered once
systems = importlib.import_module("systems")
Config = systems.relative_positions.RelativeConfig  # the paper's options, and one variant's
VARIANTS = [
    systems.AllThatPayTransformer,
    systems.NoBiasTransformer,
    systems.PreNormTransformer,
    systems.RmsNormTransformer,
    systems.RotaryTransformer,
    systems.SwigluTransformer,
]


def model_of(variant: type[Transformer], seed: int = 0) -> Transformer:
    """Build a variant as small as ``small_model``, in float64."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = SIZES
    return variant(Config(**sizes), TYPES, TYPES).double().eval()


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_what_extend_md_explains_is_what_is_trained() -> None:
    """The page has the same classes, without types and docstrings."""
    torch.manual_seed(0)
    config = TransformerConfig(**SIZES)
    of_the_page = extend.variant("pre_norm")(config, TYPES, TYPES).double().eval()
    source, previous, _ = batch()
    trained = model_of(systems.PreNormTransformer)
    assert_close(trained(source, previous), of_the_page(source, previous))


def test_swiglu_by_formula() -> None:
    """Equation 6 of Shazeer, with our biases, two thirds as wide."""
    model = model_of(systems.SwigluTransformer)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    for side in (model.encoder, model.decoder):
        ffn: Any = side.layers[1].feed_forward
        assert ffn.fc1.out_features == round(2 * SIZES["encoder_ffn_embed_dim"] / 3)
        inner = x @ ffn.fc1.weight.t() + ffn.fc1.bias
        gate = x @ ffn.gate.weight.t() + ffn.gate.bias
        product = inner / (1 + torch.exp(-inner)) * gate
        assert_close(ffn(x), product @ ffn.fc2.weight.t() + ffn.fc2.bias)


def test_rms_norm_by_formula() -> None:
    """Each vector divided by the root of its mean square; nothing is subtracted."""
    model = model_of(systems.RmsNormTransformer)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    part: Any = model.encoder.layers[0].after_self_attention
    torch.nn.init.normal_(part.norm.weight)
    y = torch.randn_like(x)
    for sentence in range(2):
        for place in range(5):
            total = x[sentence, place] + y[sentence, place]
            root = (sum(number**2 for number in total.tolist()) / 16 + 1e-6) ** 0.5
            expected = total / root * part.norm.weight
            assert_close(part(x, lambda _: y)[sentence, place], expected)


def test_no_bias_is_left() -> None:
    """And all else is the paper's: the same model with biases of zero gives the same."""
    model = model_of(systems.NoBiasTransformer)
    names = dict(model.named_parameters())
    assert not any(name.endswith("bias") for name in names)
    paper = small_model().double().eval()
    with torch.no_grad():
        for name, parameter in paper.named_parameters():
            parameter.copy_(names[name] if name in names else torch.zeros_like(parameter))
    source, previous, _ = batch()
    assert_close(model(source, previous), paper(source, previous))


def test_all_that_pay_are_in_one_model() -> None:
    """Each layer's parts are those of the two variants."""
    model: Any = model_of(systems.AllThatPayTransformer)
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        assert type(layer.feed_forward).__name__ == "SwigluFeedForward"
        assert type(layer.self_attention).__name__ == "RelativeSelfAttention"


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_step_by_step_is_all_at_once(variant: type[Transformer], fast: bool) -> None:
    """With padding on both sides, and with the fast forms of the parts that are the paper's."""
    model = model_of(variant)
    source, previous, target = batch()
    logits = model(source, previous)
    if fast:
        use_fast_kernels(model)
        assert_close(model(source, previous), logits)
    memory = model.encoder(source)
    cache = DecoderCache(layers=2)
    for place in range(previous.size(1)):
        real = target[:, place].ne(PAD)
        step = model.decoder.step(previous[:, place], memory, cache)
        assert_close(step[real], logits[real, place])


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_has_as_many_parameters_as_the_paper(variant: type[Transformer]) -> None:
    """Within 2 % at the size that is trained, so that none learns more for being larger."""
    config = Config(**asdict(base(layers=3, d_model=128, d_ff=512, heads=4)))
    paper, changed = (kind(config, 4184, 4184) for kind in (Transformer, variant))
    sizes = [sum(p.numel() for p in model.parameters()) for model in (paper, changed)]
    assert abs(sizes[1] / sizes[0] - 1) < 0.02


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_trains(variant: type[Transformer]) -> None:
    """Every parameter gets a gradient, and the loss of one batch falls to a tenth.

    After 23 to 43 updates with five seeds, on each of three instruction sets.
    """
    assert updates_to_learn(model_of(variant).float(), most=200) > 1
