"""Section 5.4: label smoothing by hand; and the loss from features, which is the formula's."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.rounding import rounding
from vaswani_transformer.fast import chunked_loss, compiled_loss
from vaswani_transformer.fast.chunked_loss import projected_loss
from vaswani_transformer.fast.compiled_loss import loss_by_graph, loss_of_logits
from vaswani_transformer.fast.processor import OTHER_CPU
from vaswani_transformer.loss import label_smoothed_loss

PAD, NO_PAD = 1, -1
Result = dict[str, Tensor]


@pytest.mark.paper("5.4")
def test_cross_entropy_with_the_smoothed_distribution() -> None:
    """-Σ q(v) log p(v) with q = 0.7 on the right class and 0.3 / 3 on each of the other three."""
    probs = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64)
    loss, nll = label_smoothed_loss(probs.log(), torch.tensor([2]), 0.3, NO_PAD)
    # in bits, -log2 p is 1, 2, 3, 3
    assert loss.item() / math.log(2) == pytest.approx(0.7 * 3 + 0.1 * (1 + 2 + 3), abs=1e-12)
    assert nll.item() / math.log(2) == pytest.approx(3, abs=1e-12)


def test_the_least_loss_is_the_entropy_of_the_target() -> None:
    """At p = q: 1.387 nats for ε = 0.1 and V = 40,960 (what tensor2tensor subtracts)."""
    classes, epsilon = 40960, 0.1
    q = torch.full((1, classes), epsilon / (classes - 1), dtype=torch.float64)
    q[0, 7] = 1 - epsilon
    logits = q.log().requires_grad_()
    loss, _ = label_smoothed_loss(logits.log_softmax(-1), torch.tensor([7]), epsilon, PAD)
    loss.backward()
    entropy = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 40959)
    assert loss.item() == pytest.approx(entropy, abs=1e-9)
    assert loss.item() == pytest.approx(1.387, abs=5e-4)
    assert logits.grad is not None and logits.grad.abs().max() < 1e-9


def test_pads_count_for_nothing() -> None:
    """Whatever stands on a pad, even infinities, changes neither the loss nor the gradient."""
    logits = torch.randn(2, 3, 6)
    target = torch.tensor([[2, 3, PAD], [4, PAD, PAD]])
    real = target.ne(PAD)
    expected, _ = label_smoothed_loss(logits.log_softmax(-1)[real], target[real], 0.1, PAD)
    log_probs = logits.log_softmax(-1)
    log_probs[~real] = -math.inf
    log_probs.requires_grad_()
    loss, nll = label_smoothed_loss(log_probs, target, 0.1, PAD)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert math.isfinite(nll.item())
    assert log_probs.grad is not None and torch.equal(log_probs.grad.ne(0).all(-1), real)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    """220,260 nats over all classes: fp16 ends at 65,504, and bf16 has 8 bits to count with."""
    log_probs = torch.full((500, 22026), -10.0, dtype=dtype)
    loss, nll = label_smoothed_loss(log_probs, torch.full((500,), 5), 0.1, PAD)
    assert loss.item() == pytest.approx(5000, rel=1e-5)
    assert nll.item() == 5000


def inputs(count: int, dtype: torch.dtype, width: int = 12, classes: int = 50) -> tuple[Any, ...]:
    """Return features [N, D], matrix [V, D] and target [N]; logits have a deviation of 3."""
    generator = torch.Generator().manual_seed(count)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64)
    weight = 3 * width**-0.5 * torch.randn(classes, width, generator=generator, dtype=torch.float64)
    target = torch.randint(0, classes, (count,), generator=generator)
    return features.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), target


def by_formula(features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> Result:
    """Compute the loss by formula and autograd, in float64, with a gradient of 0.5 from above."""
    features, weight = (t.detach().double().requires_grad_() for t in (features, weight))
    logits = features @ weight.t()
    loss, nll = label_smoothed_loss(logits.log_softmax(-1), target, epsilon, NO_PAD)
    (loss * 0.5).backward()
    correct = logits.argmax(-1).eq(target).sum()
    return result(loss, nll, correct, features, weight)


def by_rows(features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> Result:
    """Compute the loss by the function under test, with the same gradient from above."""
    sums = projected_loss(features, weight, target, epsilon, count_correct=True)
    (sums.loss * 0.5).backward()
    return result(*sums, features, weight)


def result(loss: Tensor, nll: Tensor, correct: Tensor, features: Tensor, weight: Tensor) -> Result:
    gradients = {"features": features.grad, "weight": weight.grad}
    return {"loss": loss.detach(), "nll": nll.detach(), "correct": correct, **gradients}


def take_at_once(monkeypatch: Any, rows: int) -> None:
    """Let slices be so small that a few tokens fill several."""
    own = OTHER_CPU._replace(product_rows=rows)
    monkeypatch.setattr(chunked_loss, "choices_for", lambda device: own)


def check(given: tuple[Any, ...], epsilon: float) -> None:
    """Check the largest error of each result, relative to its largest element.

    Sums are over the width, the classes and the tokens; an error of a logit is a relative one of
    its probability.
    """
    expected = by_formula(*given, epsilon)
    found = by_rows(*given, epsilon)
    features, weight, target = given
    terms = sum(weight.shape) + len(target)
    tolerance = rounding(weight.dtype, terms, (features @ weight.t()).abs().max().item())
    assert int(found.pop("correct")) == int(expected.pop("correct"))
    for name, right in expected.items():
        error = (found[name].double() - right).abs().max()
        assert error <= tolerance * right.abs().max(), name


@pytest.mark.paper("5.4")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("count", [1, 7, 8, 30])
def test_chunked_is_the_formula(count: int, epsilon: float, dtype: Any, monkeypatch: Any) -> None:
    """Fewer tokens than are taken at once, as many, and more: the loss and both gradients."""
    take_at_once(monkeypatch, 8)
    check(inputs(count, dtype), epsilon)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_products_keep_two_digits_of_the_gradient(half: torch.dtype) -> None:
    """bfloat16 under autocast; float16 throughout, with fairseq's scale of the loss."""
    autocast = half == torch.bfloat16
    scale = 1.0 if half == torch.bfloat16 else 1024.0
    dtype = torch.float32 if autocast else half
    features, weight, target = inputs(600, dtype, width=64, classes=3000)
    expected = by_formula(features, weight, target, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        sums = projected_loss(features, weight, target, 0.1)
    (sums.loss * scale).backward()
    assert sums.loss.dtype == torch.float32
    torch.testing.assert_close(sums.loss.double(), expected["loss"], rtol=1e-3, atol=0)
    for tensor, name in ((features, "features"), (weight, "weight")):
        assert tensor.grad.dtype == dtype
        error = (0.5 * tensor.grad.double() / scale - expected[name]).norm()
        assert error < 0.01 * expected[name].norm(), name


def test_float16_gradients_of_rare_classes_do_not_vanish() -> None:
    """The scale of the loss comes before rounding: on 2⁻²⁶ of 40,000 classes, it must."""
    features = torch.eye(4, 16).half().requires_grad_()
    weight = (0.3 * torch.randn(40000, 16)).half().requires_grad_()
    target = torch.tensor([1, 2, 3, 4])
    expected = by_formula(features, weight, target, 0.0)["weight"] * 2
    (projected_loss(features, weight, target, 0.0).loss * 2.0**14).backward()
    assert weight.grad is not None
    error = (weight.grad.double() / 2.0**14 - expected)[:, :4].abs()
    rare = expected[:, :4].abs() > 1e-8
    assert rare.float().mean() > 0.99
    assert (error <= 2e-3 * expected[:, :4].abs())[rare].float().mean() > 0.99


def test_a_second_derivative_is_refused() -> None:
    """The gradients are computed in the forward pass, and have none: they seemed constant."""
    features = torch.randn(5, 8, requires_grad=True)
    weight = torch.randn(11, 8, requires_grad=True)
    loss = projected_loss(features, weight, torch.tensor([1, 4, 2, 7, 9]), 0.1).loss
    (first,) = torch.autograd.grad(loss**2, features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_no_tokens_have_no_loss() -> None:
    """A batch of nothing but pads: a gradient of zeros."""
    features, weight, target = inputs(0, torch.float32)
    sums = projected_loss(features, weight, target, 0.1, count_correct=True)
    sums.loss.backward()
    assert [float(s.detach()) for s in sums] == [0.0, 0.0, 0.0]
    assert weight.grad.abs().sum() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_loss_may_be_multiplied_by_nothing(dtype: torch.dtype) -> None:
    """fairseq does this in place with a batch that only keeps processes in step."""
    features, weight, target = inputs(5, dtype)
    loss = projected_loss(features, weight, target, 0.1).loss
    loss *= 0
    loss.backward()
    assert features.grad.abs().sum() == weight.grad.abs().sum() == 0


@pytest.mark.parametrize("grad", [True, False])
def test_no_row_of_logits_is_kept(grad: bool, monkeypatch: Any) -> None:
    """For the backward pass there are the two gradients; without one, nothing. Never [N, V]."""
    take_at_once(monkeypatch, 8)
    features, weight, target = inputs(64, torch.float32, width=4, classes=100)
    kept = []
    keep = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, id)
    with torch.set_grad_enabled(grad), keep:
        sums = projected_loss(features, weight, target, 0.1)
    assert sorted(kept) == ([64 * 4, 100 * 4] if grad else [])
    assert sums.loss.requires_grad is grad
    expected = by_formula(features, weight, target, 0.1)
    torch.testing.assert_close(sums.loss.detach().double(), expected["loss"], rtol=1e-6, atol=0)


# ---- by torch.compile, on a GPU ----------------------------------------------------------------


@pytest.fixture
def _not_compiled(monkeypatch: Any) -> None:
    """Run the function that would be compiled without compiling it."""
    monkeypatch.setattr(compiled_loss, "compiled_loss_of_logits", lambda: loss_of_logits)


def graph_sums(features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> Result:
    """Compute the loss as ``by_rows``, without counting the right tokens."""
    sums = loss_by_graph(features, weight, target, epsilon)
    (sums.loss * 0.5).backward()
    assert not sums.nll.requires_grad
    found = result(*sums, features, weight)
    assert int(found.pop("correct")) == 0
    return found


def check_graph(given: tuple[Any, ...], epsilon: float) -> None:
    """Check as :func:`check`; log Z times V is one more term of that size for each class."""
    expected = by_formula(*given, epsilon)
    found = graph_sums(*given, epsilon)
    features, weight, target = given
    terms = sum(weight.shape) + len(target)
    tolerance = 2 * rounding(weight.dtype, terms, (features @ weight.t()).abs().max().item())
    for name, tensor in found.items():
        error = (tensor.double() - expected[name]).abs().max()
        assert error <= tolerance * expected[name].abs().max(), name


@pytest.mark.paper("5.4")
@pytest.mark.usefixtures("_not_compiled")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.9, 0.999])
@pytest.mark.parametrize("count", [1, 7, 8, 30])
def test_the_loss_to_compile_is_the_formula(
    count: int, epsilon: float, dtype: Any, monkeypatch: Any
) -> None:
    """In one part and in several, for an odd number of classes; ε beyond (V-1)/V, too."""
    monkeypatch.setattr(compiled_loss, "ROWS", 8)
    check_graph(inputs(count, dtype, classes=51), epsilon)


@pytest.mark.usefixtures("_not_compiled")
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_the_loss_to_compile_keeps_two_digits_in_half_precision(half: torch.dtype) -> None:
    """bfloat16 under autocast; float16 throughout, with fairseq's scale of the loss."""
    autocast = half == torch.bfloat16
    scale = 1.0 if half == torch.bfloat16 else 1024.0
    dtype = torch.float32 if autocast else half
    features, weight, target = inputs(600, dtype, width=64, classes=3001)
    expected = by_formula(features, weight, target, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = loss_by_graph(features, weight, target, 0.1).loss
    (loss * scale).backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected["loss"], rtol=1e-3, atol=0)
    for tensor, name in ((features, "features"), (weight, "weight")):
        assert tensor.grad.dtype == dtype
        error = (0.5 * tensor.grad.double() / scale - expected[name]).norm()
        assert error < 0.01 * expected[name].norm(), name


class OnGpu(Tensor):
    """Says that it is on a GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda")


def test_only_training_on_a_gpu_takes_the_compiled_loss(monkeypatch: Any) -> None:
    """Not a CPU, no validation, and no batch of one token, which would be compiled for itself."""
    monkeypatch.setattr(compiled_loss, "loss_by_graph", lambda *_: "compiled")
    monkeypatch.setattr(compiled_loss, "projected_loss", lambda *_: "in chunks")
    features, weight, target = inputs(5, torch.float32)
    on_gpu = features.detach().as_subclass(OnGpu)

    def form(features: Tensor, count: int = 5, count_correct: bool = False) -> Any:
        return compiled_loss.compiled_loss(features, weight, target[:count], 0.1, count_correct)

    assert form(on_gpu) == form(on_gpu, count=2) == "compiled"
    assert form(features) == form(on_gpu, count_correct=True) == "in chunks"
    assert form(on_gpu, count=1) == form(on_gpu, count=0) == "in chunks"
    with torch.no_grad():
        assert form(on_gpu) == "in chunks"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_compiled_loss_is_the_formula_for_any_number_of_tokens() -> None:
    """One graph for all of them, in which V and D are constants."""
    torch._dynamo.reset()
    compiled_loss.compiled_loss_of_logits.cache_clear()
    _, weight, _ = inputs(1, torch.float32, classes=51)
    parameter = torch.nn.Parameter(weight.detach())
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for count in (7, 30, 64):
        features, _, target = inputs(count, torch.float32, classes=51)
        parameter.grad = None
        check_graph((features, parameter, target), 0.1)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 1
