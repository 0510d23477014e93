"""Section 5.4: the loss from features and output matrix is the readable formula's."""

from typing import Any, Dict, Tuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.rounding import rounding
from vaswani_transformer.fast import chunked_loss
from vaswani_transformer.fast.chunked_loss import LossOfLogits, projected_loss
from vaswani_transformer.fast.processor import OTHER_CPU
from vaswani_transformer.loss import label_smoothed_loss

NO_PAD = -1
Result = Dict[str, Tensor]


def inputs(count: int, dtype: torch.dtype, width: int = 12, classes: int = 50) -> Tuple[Any, ...]:
    """Features [N, D], matrix [V, D] and target [N] whose logits have a standard deviation of 3."""
    generator = torch.Generator().manual_seed(count)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64)
    weight = 3 * width**-0.5 * torch.randn(classes, width, generator=generator, dtype=torch.float64)
    target = torch.randint(0, classes, (count,), generator=generator)
    return features.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), target


def by_formula(features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> Result:
    """The formula and autograd, in float64, with a gradient of 0.5 from above."""
    features, weight = (t.detach().double().requires_grad_() for t in (features, weight))
    logits = features @ weight.t()
    loss, nll = label_smoothed_loss(logits.log_softmax(-1), target, epsilon, NO_PAD)
    (loss * 0.5).backward()
    return {
        "loss": loss.detach(),
        "nll": nll.detach(),
        "correct": logits.argmax(-1).eq(target).sum(),
        "features": features.grad,
        "weight": weight.grad,
    }


def by_rows(features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> Result:
    """The function under test, with the same gradient from above."""
    sums = projected_loss(features, weight, target, epsilon, count_correct=True)
    (sums.loss * 0.5).backward()
    return {
        "loss": sums.loss.detach(),
        "nll": sums.nll,
        "correct": sums.correct,
        "features": features.grad,
        "weight": weight.grad,
    }


def take_at_once(monkeypatch: Any, **rows: int) -> None:
    """Let slices be so small that a few tokens fill several."""
    monkeypatch.setattr(chunked_loss, "choices_for", lambda device: OTHER_CPU._replace(**rows))


def check(given: Tuple[Any, ...], epsilon: float) -> None:
    """The largest error of each result, relative to its largest element.

    Sums are over the width, the classes and the tokens; an error of a logit is a relative one of
    its probability.
    """
    expected, found = by_formula(*given, epsilon), by_rows(*given, epsilon)
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
def test_is_the_formula(count: int, epsilon: float, dtype: torch.dtype, monkeypatch: Any) -> None:
    """Fewer tokens than are taken at once, as many, and more."""
    take_at_once(monkeypatch, product_rows=8, softmax_rows=3)
    check(inputs(count, dtype), epsilon)


@pytest.mark.skipif(
    not hasattr(functional, "linear_cross_entropy"),
    reason=f"torch {torch.__version__} has no linear_cross_entropy: it came with 2.13",
)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("chunked", [False, True])
def test_without_smoothing_it_is_torchs(
    chunked: bool, dtype: torch.dtype, tolerance: float
) -> None:
    """ε = 0: torch's own cross entropy of features and matrix, and both gradients.

    It is torch's reference, or its own way of never keeping the logits, which shares no code with
    ours.
    """
    given = inputs(700, dtype, width=16, classes=300)
    copies = [tensor.detach().clone().requires_grad_() for tensor in given[:2]]
    options = torch.nn.LinearCrossEntropyOptions() if chunked else None
    expected = functional.linear_cross_entropy(*copies, given[2], reduction="sum", options=options)
    (expected * 0.5).backward()
    found = by_rows(*given, 0.0)
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(found["loss"], expected.detach(), **close)
    torch.testing.assert_close(found["nll"], expected.detach(), **close)
    torch.testing.assert_close(found["features"], copies[0].grad, **close)
    torch.testing.assert_close(found["weight"], copies[1].grad, **close)


def test_impossible_targets(monkeypatch: Any) -> None:
    """Targets whose probability is 0 in float32, beside others: loss and gradients are right."""
    take_at_once(monkeypatch, softmax_rows=4)
    features, weight, target = inputs(30, torch.float32)
    with torch.no_grad():
        features *= 100
        least_likely = (features @ weight.t()).argmin(1)
        assert torch.softmax(features @ weight.t(), 1).gather(1, least_likely[:, None]).min() == 0
    target[5:20] = least_likely[5:20]
    check((features, weight, target), 0.1)


def test_long_rows() -> None:
    """1,024 tokens, two pieces of the real size, and 5,000 classes."""
    check(inputs(1024, torch.float32, width=16, classes=5000), 0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_logits(dtype: torch.dtype) -> None:
    """Logits of ± 2,000 overflow an exponential that is not shifted."""
    weight = torch.tensor([[1.0], [-1.0], [0.5]], dtype=dtype, requires_grad=True)
    features = torch.tensor([[2000.0], [-2000.0]], dtype=dtype, requires_grad=True)
    sums = projected_loss(features, weight, torch.tensor([0, 0]), 0.0)
    sums.loss.backward()
    assert sums.nll.item() == 4000.0  # 0 where class 0 is certain, 4,000 where class 1 is
    assert features.grad.tolist() == [[0.0], [-2.0]]  # W_1 - W_0


def test_bfloat16_under_autocast() -> None:
    """Products in bfloat16, sums in float32: the loss keeps three digits, the gradient two."""
    features, weight, target = inputs(600, torch.float32, width=64, classes=3000)
    expected = by_formula(features, weight, target, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums = projected_loss(features, weight, target, 0.1)
    assert sums.loss.dtype == torch.float32
    sums.loss.backward()
    logits = rounding(torch.bfloat16, 600, 16)  # one of each token, the right class
    torch.testing.assert_close(sums.loss.double(), expected["loss"], rtol=0, atol=logits)
    for found, name in ((features.grad, "features"), (weight.grad, "weight")):
        error = (0.5 * found.double() - expected[name]).norm()
        assert found.dtype == torch.float32
        assert error < 0.01 * expected[name].norm(), name


def test_no_tokens() -> None:
    """A batch of nothing but pads has no loss, and a gradient of zeros."""
    features, weight, target = inputs(0, torch.float32)
    sums = projected_loss(features, weight, target, 0.1, count_correct=True)
    sums.loss.backward()
    assert [float(s.detach()) for s in sums] == [0.0, 0.0, 0.0]
    assert weight.grad.abs().sum() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_may_be_multiplied_by_nothing(dtype: torch.dtype) -> None:
    """fairseq does this in place with a batch that only keeps processes in step."""
    features, weight, target = inputs(5, dtype)
    loss = projected_loss(features, weight, target, 0.1).loss
    loss *= 0
    loss.backward()
    assert features.grad.abs().sum() == weight.grad.abs().sum() == 0


def test_a_shared_matrix_gets_both_gradients() -> None:
    """The matrix also makes the features (3.4): what the formula gives it, in both places."""
    _, weight, target = inputs(9, torch.float64)
    gradients = []
    for fast in (True, False):
        shared = weight.detach().clone().requires_grad_()
        features = shared[target.flip(0)].tanh()
        if fast:
            loss = projected_loss(features, shared, target, 0.1).loss
        else:
            log_probs = (features @ shared.t()).log_softmax(-1)
            loss = label_smoothed_loss(log_probs, target, 0.1, NO_PAD)[0]
        loss.backward()
        gradients.append(shared.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-12)


def test_without_a_gradient_none_is_formed() -> None:
    """In validation: the same loss, and nothing to go backward from."""
    features, weight, target = inputs(30, torch.float32)
    with torch.no_grad():
        sums = projected_loss(features, weight, target, 0.1, count_correct=True)
    assert not sums.loss.requires_grad
    expected = by_formula(features, weight, target, 0.1)
    torch.testing.assert_close(sums.loss.double(), expected["loss"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("grad", [True, False])
def test_no_row_of_logits_is_kept(grad: bool, monkeypatch: Any) -> None:
    """For the backward pass there are the two gradients; without one, nothing. Never [N, V]."""
    take_at_once(monkeypatch, product_rows=8)
    features, weight, target = inputs(64, torch.float32, width=4, classes=100)
    kept = []
    with (
        torch.set_grad_enabled(grad),
        torch.autograd.graph.saved_tensors_hooks(
            lambda t: kept.append(t.numel()) or t, lambda t: t
        ),
    ):
        projected_loss(features, weight, target, 0.1)
    assert sorted(kept) == ([64 * 4, 100 * 4] if grad else [])


def half_gradient(scale: float) -> Tuple[Tensor, Tensor]:
    """The gradient on float16 logits, V = 40,000, divided by ``scale``; and the formula's."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 40000, generator=generator)
    target = torch.tensor([1, 2, 3, 4])
    half = logits.half().requires_grad_()
    sums = LossOfLogits.apply(half, target, 0.1, False)
    (sums[0] * scale).backward()
    exact = logits.half().double().requires_grad_()
    loss, nll = label_smoothed_loss(exact.log_softmax(-1), target, 0.1, NO_PAD)
    loss.backward()
    torch.testing.assert_close(sums[0].double(), loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(sums[1].double(), nll, rtol=1e-6, atol=0)
    return half.grad.double() / scale, exact.grad


def test_float16_gradients_do_not_vanish() -> None:
    """The scale of the loss comes before rounding and saves three digits, which it must for 99%."""
    found, expected = half_gradient(scale=2.0**14)
    big = expected.abs() > 1e-8  # where softmax and ε_i do not happen to be equal
    assert big.float().mean() > 0.99
    assert ((found - expected).abs() <= 1e-3 * expected.abs())[big].all()
    lost, _ = half_gradient(scale=1.0)
    assert ((lost - expected).abs() > 1e-3 * expected.abs())[big].float().mean() > 0.5


def test_float16_takes_the_scaled_way() -> None:
    """Half features and matrix, as under fairseq's --fp16: gradients of both, scaled by 1,024."""
    features, weight, target = inputs(40, torch.float16, width=32, classes=3000)
    expected = by_formula(features, weight, target, 0.1)
    (projected_loss(features, weight, target, 0.1).loss * 1024).backward()
    for tensor, name in ((features, "features"), (weight, "weight")):
        assert tensor.grad.dtype == torch.float16
        error = (tensor.grad.double() / 2048 - expected[name]).norm()
        assert error < 2e-3 * expected[name].norm(), name
