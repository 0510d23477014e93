"""bf16 for training and inference, retained dropout, and layers that are compiled."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.tasks.translation import TranslationConfig
from torch import nn

from tests.models import batch, dictionary, small_model, task
from transformer_plugin.compat.translation_task import CheckedTranslationTask
from transformer_plugin.config import ConfigError
from vaswani.decoding.fairseq_engine import FairseqEngine
from vaswani_transformer.fast import linear
from vaswani_transformer.fast.linear import FastLinear
from vaswani_transformer.fast.malloc import CAPACITY, PROGRAMS
from vaswani_transformer.fast.processor import AMD_AVX512
from vaswani_transformer.precision import autocast, has_bf16_units

ROOT = Path(__file__).resolve().parents[2]


def for_inference(**generation: Any) -> Any:
    """Return what fairseq hands to a model that it prepares for inference."""
    return SimpleNamespace(generation=SimpleNamespace(no_beamable_mm=True, **generation))


@pytest.fixture
def units(monkeypatch: Any) -> Any:
    """Return a function that sets whether the machine has bf16 units."""

    def given(present: bool) -> None:
        for place in ("precision", "fast.linear"):
            name = f"vaswani_transformer.{place}.has_bf16_units"
            monkeypatch.setattr(name, lambda device: present)

    return given


def logits(model: Any) -> torch.Tensor:
    """Return the model's logits of the example batch, at its real positions."""
    source, previous, target = batch()
    return model(source, None, previous)[0][target.ne(1)]


@pytest.mark.parametrize(
    "precision, present, converted",
    [("bf16", True, True), ("bf16", False, False), ("fp32", True, False)],
)
def test_matrices_are_converted_once(
    precision: str, present: bool, converted: bool, units: Any
) -> None:
    """In bf16 only, and where the device has it; the logits are those that autocast gives."""
    units(present)
    model = small_model(precision=precision).eval()
    with torch.no_grad():
        before = logits(model)
        model.prepare_for_inference_(for_inference())
        after = logits(model)
    kinds = [m.weight.dtype for m in model.modules() if isinstance(m, FastLinear)]
    assert len(kinds) > 10 and set(kinds) == {torch.bfloat16 if converted else torch.float32}
    assert model.encoder.embedding.tokens.weight.dtype == torch.float32
    torch.testing.assert_close(after, before, rtol=0, atol=2**-8)


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"), reason="torch without oneDNN"
)
def test_our_engine_packs_every_matrix(monkeypatch: Any) -> None:
    monkeypatch.setattr(linear, "choices_for", lambda device: AMD_AVX512)
    model = small_model().eval()
    with torch.no_grad():
        before = logits(model)
        model.prepare_for_inference_(for_inference())
        FairseqEngine(task(), [model], "a model")
        after = logits(model)
    packed = [m.packed is not None for m in model.modules() if isinstance(m, FastLinear)]
    assert len(packed) > 10 and all(packed)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)


def test_every_write_to_a_prepared_model_counts(units: Any, monkeypatch: Any) -> None:
    """Also through ``data``, which torch does not count: the model belongs to the user."""
    monkeypatch.setattr(linear, "choices_for", lambda device: AMD_AVX512)
    units(True)
    model = small_model(precision="bf16", untie_embeddings=True).eval()
    model.prepare_for_inference_(for_inference())
    weight = model.decoder.output_projection.weight
    with torch.no_grad():
        before = logits(model)
        weight.data.mul_(2)  # exact in every type
        torch.testing.assert_close(logits(model), before * 2, rtol=0, atol=0)
        model.decoder.output_projection.weight.data = -weight
        torch.testing.assert_close(logits(model), before * -2, rtol=0, atol=0)


@pytest.mark.parametrize("choice", ["auto", "readable"])
def test_retained_dropout_drops_in_decoding(choice: str) -> None:
    """In the parts that are named, whatever computes them; else in all."""
    for names, places in ((None, 12 + 4), (["FeedForward"], 4), ("[EncoderLayer]", 4 + 2)):
        model = small_model(dropout=0.5, activation_dropout=0.5, attention_impl=choice).eval()
        plain = logits(model)
        options = {"retain_dropout": True, "retain_dropout_modules": names}
        model.prepare_for_inference_(for_inference(**options))
        model.eval()
        active = [m for m in model.modules() if isinstance(m, nn.Dropout) and m.training and m.p]
        assert len(active) == places, names
        assert not torch.allclose(logits(model), plain)


@pytest.mark.parametrize("choice", ["auto", "readable"])
def test_a_refused_module_of_retained_dropout_lists_the_parts_of_the_paper(choice: str) -> None:
    """Not the classes that make them quick, nor torch's lists."""
    model = small_model(dropout=0.5, attention_dropout=0.5, attention_impl=choice).eval()
    options = {"retain_dropout": True, "retain_dropout_modules": ["FusedHeads"]}
    with pytest.raises(ConfigError) as refused:
        model.prepare_for_inference_(for_inference(**options))
    listed = str(refused.value).partition("so give modules that have it: ")[2]
    assert listed == (
        "AddAndNorm, CrossAttention, Decoder, DecoderLayer, Encoder, EncoderLayer, InputEmbedding, "
        "MultiHeadAttention, SelfAttention"
    )


@pytest.mark.parametrize("precision, present", [("bf16", True), ("bf16", False), ("fp32", True)])
def test_products_are_in_bfloat16(precision: str, present: bool, units: Any) -> None:
    """Where that is asked for and the device has it; in float32 otherwise."""
    units(present)
    x = torch.ones(4, 4)
    with autocast(precision, x.device):
        found = (x @ x).dtype
    assert found == (torch.bfloat16 if precision == "bf16" and present else torch.float32)


@pytest.mark.parametrize("capability, present", [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_that_would_emulate_them_lacks_the_units(monkeypatch, capability, present):
    """A T4 has none, but torch answers that bfloat16 is supported."""
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda *_: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *_: capability)
    has_bf16_units.cache_clear()
    try:
        assert has_bf16_units("cuda") == present
    finally:
        has_bf16_units.cache_clear()


@pytest.mark.parametrize("precision, set_to", [("bf16", PROGRAMS), ("fp32", None)])
def test_training_in_bf16_on_a_cpu_keeps_fewer_programs(
    precision: str, set_to: Any, monkeypatch: Any
) -> None:
    """Set before the first product; in fp32 there are few shapes (linear.py)."""
    monkeypatch.setenv(CAPACITY, "1")  # so that it is restored
    monkeypatch.delenv(CAPACITY)
    words = dictionary()
    task = CheckedTranslationTask(TranslationConfig(), words, words)
    task.begin_epoch(1, small_model(precision=precision))
    assert os.environ.get(CAPACITY) == set_to


COMPILED = """
import torch
from tests.models import batch, small_model, task
results = []
for chosen in (False, True):
    model = small_model(compile=chosen).train()
    if chosen:
        print(model.decoder.projected_loss.__name__)
    source, previous, target = batch()
    for cut in (0, 1, 2):
        logits = model(source, None, previous[:, : previous.size(1) - cut])[0]
        logits.square().mean().backward()
    results.append((logits.detach(), model.encoder.layers[0].feed_forward.fc1.weight.grad))
for plain, compiled in zip(*results):
    torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-5)
print("equal")
"""


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["as it is", "missing"])
def test_compiled_layers(compiler, tmp_path):
    """The same logits and gradients for several shapes; without a C++ compiler, uncompiled."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    if compiler == "missing":
        environment["CXX"] = "/no/such/compiler"
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True
    )
    loss = "projected_loss" if compiler == "missing" else "compiled_loss"
    assert done.stdout.split() == [loss, "equal"], done.stderr[-3000:]
    if compiler == "missing":
        assert done.stderr.count("--compile: torch.compile fails here") == 1
