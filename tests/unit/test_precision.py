"""bf16 for inference, and layers that torch.compile has made one program of."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.models import batch, small_model, task
from transformer_plugin import inference as module
from transformer_plugin.model import compile_layers
from vaswani.decoding.fairseq_engine import FairseqEngine
from vaswani_transformer.fast.linear import Linear
from vaswani_transformer.fast.processor import AMD_AVX512
from vaswani_transformer.precision import autocast, has_bf16_units, tf32, warn_without_units

ROOT = Path(__file__).resolve().parents[2]
FOR_INFERENCE = SimpleNamespace(generation=SimpleNamespace(no_beamable_mm=True))


def logits(model):
    """What the model says of the example batch, at its real positions."""
    source, previous, target = batch()
    return model(source, None, previous)[0][target.ne(1)]


@pytest.mark.parametrize("precision,converted", [("bf16", True), ("fp32", False)])
def test_matrices_are_converted_once(precision, converted, monkeypatch):
    """In bf16 only, and where the device has it; the logits are those that autocast gives."""
    monkeypatch.setattr(module, "has_bf16_units", lambda device: True)
    monkeypatch.setattr("vaswani_transformer.precision.has_bf16_units", lambda device: True)
    model = small_model(precision=precision).eval()
    with torch.no_grad():
        before = logits(model)
        model.prepare_for_inference_(FOR_INFERENCE)
        after = logits(model)
    matrices = [m.weight.dtype == torch.bfloat16 for m in model.modules() if isinstance(m, Linear)]
    assert len(matrices) > 10 and set(matrices) == {converted}
    assert model.encoder.embedding.tokens.weight.dtype == torch.float32
    torch.testing.assert_close(after, before, rtol=0, atol=2**-8)


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"), reason="torch without oneDNN"
)
@pytest.mark.parametrize("compiled", [False, True])
def test_matrices_are_packed(compiled, monkeypatch):
    """By our engine, every one, where oneDNN multiplies and no compiler has to understand it."""
    monkeypatch.setattr("vaswani_transformer.fast.linear.choices_for", lambda device: AMD_AVX512)
    model = small_model().eval()
    with torch.no_grad():
        before = logits(model)
        model.cfg.compile = compiled
        model.prepare_for_inference_(FOR_INFERENCE)
        FairseqEngine(task(), [model], "a model")
        after = logits(model)
    packed = [m.packed is not None for m in model.modules() if isinstance(m, Linear)]
    assert len(packed) > 10 and set(packed) == {not compiled}
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_write_to_a_prepared_model_counts(precision, monkeypatch):
    """Also through ``data``, which torch does not count: the model belongs to the user."""
    monkeypatch.setattr("vaswani_transformer.fast.linear.choices_for", lambda device: AMD_AVX512)
    monkeypatch.setattr("vaswani_transformer.precision.has_bf16_units", lambda device: True)
    monkeypatch.setattr(module, "has_bf16_units", lambda device: True)
    model = small_model(precision=precision, untie_embeddings=True).eval()
    model.prepare_for_inference_(FOR_INFERENCE)
    weight = model.decoder.output_projection.weight
    with torch.no_grad():
        before = logits(model)
        weight.data.mul_(2)  # exact in every type
        torch.testing.assert_close(logits(model), before * 2, rtol=0, atol=0)
        model.decoder.output_projection.weight.data = -weight
        torch.testing.assert_close(logits(model), before * -2, rtol=0, atol=0)


@pytest.mark.parametrize("precision, units", [("bf16", True), ("bf16", False), ("fp32", True)])
def test_products_are_in_bfloat16(precision, units, monkeypatch):
    """Where that is asked for and the device has it; in float32 otherwise."""
    monkeypatch.setattr("vaswani_transformer.precision.has_bf16_units", lambda device: units)
    x = torch.ones(4, 4)
    with autocast(precision, x.device):
        found = (x @ x).dtype
    assert found == (torch.bfloat16 if precision == "bf16" and units else torch.float32)


def test_a_torch_that_cannot_tell_is_not_said_to_lack_the_units(monkeypatch, caplog):
    """torch 2.2 has no such question."""
    monkeypatch.delattr("torch.cpu._is_avx512_bf16_supported", raising=False)
    for function in (has_bf16_units, warn_without_units):
        function.cache_clear()
    try:
        for _ in range(2):
            autocast("bf16", torch.device("cpu"))
    finally:
        for function in (has_bf16_units, warn_without_units):
            function.cache_clear()
    assert len(caplog.messages) == 1
    assert "cannot tell whether this cpu has bf16 units; using fp32" in caplog.text


@pytest.mark.parametrize("capability, present", [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_that_would_emulate_them_lacks_the_units(monkeypatch, capability, present):
    """A T4 has none, but torch answers that bfloat16 is supported."""
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda *_: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *_: capability)
    module.has_bf16_units.cache_clear()
    try:
        assert module.has_bf16_units("cuda") == present
    finally:
        module.has_bf16_units.cache_clear()


@pytest.mark.parametrize(
    "switch, on", [({}, False), ({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}, True)]
)
def test_tf32_follows_torchs_switch_from_outside(switch, on):
    """The variable that docs/training.md names works with both versions of torch."""
    code = "import torch; from vaswani_transformer.precision import tf32; print(tf32())"
    environment = {**os.environ, **switch, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(on)


def test_tf32_follows_either_of_torchs_switches_in_a_program():
    """A user-dir may set the newer one, after which torch refuses to read the older."""
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert tf32()
    finally:
        torch.set_float32_matmul_precision(before)
    assert not tf32()


def test_matrices_stay_without_the_units(monkeypatch):
    """A device without bf16 keeps float32."""
    monkeypatch.setattr(module, "has_bf16_units", lambda device: False)
    model = small_model(precision="bf16").eval()
    model.prepare_for_inference_(FOR_INFERENCE)
    assert model.decoder.output_projection.weight.dtype == torch.float32


COMPILED = """
import torch
from tests.models import batch, small_model, task
results = []
for chosen in (False, True):
    model = small_model(compile=chosen).train()
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
def test_a_compiler_that_fails_without_a_word_is_named_by_its_error(monkeypatch, caplog):
    def fail(*_, **__):
        raise AssertionError

    monkeypatch.setattr(torch, "compile", fail)
    compile_layers(small_model())
    assert "torch.compile fails here (AssertionError); going on without it" in caplog.text


@pytest.mark.parametrize("compiler", [pytest.param("as it is", marks=pytest.mark.slow), "missing"])
def test_compiled_layers(compiler, tmp_path):
    """The same logits and gradients for several shapes; without a C++ compiler, uncompiled."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    if compiler == "missing":
        environment["CXX"] = "/no/such/compiler"
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "equal", done.stderr[-3000:]
    if compiler == "missing":
        assert done.stderr.count("--compile: torch.compile fails here") == 1
