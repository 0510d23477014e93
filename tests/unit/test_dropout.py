"""Dropout's masks: their distribution, that they come from torch's seed, and what they do."""

import pytest
import torch
import torch.nn.functional as F

from vaswani_transformer.attention import SelfAttention
from vaswani_transformer.fast.dropout import LEVELS, Dropout, keep_mask


@pytest.mark.paper("5.4")
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_distribution(p):
    """Zeros come with probability p (within 5 standard deviations), and singly: neighbours do not
    tell of each other, though four elements share one random number."""
    count = 400_000
    zeros = keep_mask(torch.empty(count), p).eq(0).double()
    deviation = (p * (1 - p) / count) ** 0.5
    assert abs(zeros.mean().item() - p) < 5 * deviation
    for distance in range(1, 9):
        both = (zeros[:-distance] * zeros[distance:]).mean().item()
        spread = (p * p * (1 - p * p) / count) ** 0.5
        # neighbouring products overlap, which widens their mean by at most sqrt(3)
        assert abs(both - p * p) < 5 * spread * 3**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values(dtype):
    """A mask holds 0 and 1 / (1 - p), and nothing else; any shape, any type."""
    mask = keep_mask(torch.empty(7, 5, 3, dtype=dtype), 0.2)
    assert mask.shape == (7, 5, 3) and mask.dtype == dtype
    kept = torch.tensor(1 / 0.8).to(dtype)
    assert set(mask.unique().tolist()) <= {0.0, kept.item()}
    assert keep_mask(torch.empty(0, 4), 0.5).shape == (0, 4)


def test_every_level_counts():
    """p = 1 / LEVELS drops exactly the lowest level, and 1 - 1 / LEVELS keeps the highest."""
    torch.manual_seed(0)
    rare = keep_mask(torch.empty(40 * LEVELS), 1 / LEVELS).eq(0).sum().item()
    assert 10 < rare < 80  # 40 expected
    torch.manual_seed(0)
    kept = keep_mask(torch.empty(40 * LEVELS), 1 - 1 / LEVELS).ne(0).sum().item()
    assert 10 < kept < 80


def test_seed_decides():
    """The same seed, the same mask; another seed, another."""
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(keep_mask(torch.empty(1000), 0.5))
    assert masks[0].equal(masks[1]) and not masks[0].equal(masks[2])


def test_module():
    """x · mask in training, x itself in evaluation and at p = 0; the gradient is masked too."""
    dropout = Dropout(0.4)
    x = torch.randn(50, 8, requires_grad=True)
    torch.manual_seed(3)
    out = dropout(x)
    torch.manual_seed(3)
    mask = keep_mask(x, 0.4)
    assert out.equal(x * mask)
    out.sum().backward()
    assert x.grad.equal(mask)
    assert dropout.eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_readable_is_torchs():
    """``readable``: torch's dropout with torch's random numbers, in a sum with a residual too."""
    dropout = Dropout(0.4)
    dropout.readable = True
    x, residual = torch.randn(2, 50, 8)
    for of_torch, ours in (
        (lambda: F.dropout(x, 0.4), lambda: dropout(x)),
        (lambda: residual + F.dropout(x, 0.4), lambda: dropout.add_to(residual, x)),
    ):
        torch.manual_seed(4)
        expected = of_torch()
        torch.manual_seed(4)
        assert ours().equal(expected)


def test_added_to_a_residual():
    """``added`` is the sum it stands for, in value and in both gradients."""
    dropout = Dropout(0.3)
    parts = [torch.randn(20, 8, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    torch.manual_seed(5)
    dropout.add_to(*parts).square().sum().backward()
    grads = [part.grad for part in parts]
    copies = [part.detach().requires_grad_() for part in parts]
    torch.manual_seed(5)
    (copies[0] + dropout(copies[1])).square().sum().backward()
    for grad, copy in zip(grads, copies, strict=True):
        torch.testing.assert_close(grad, copy.grad, rtol=0, atol=1e-12)
    assert dropout.eval().add_to(*parts).equal(parts[0] + parts[1])


def test_kept_in_inference():
    """``in_inference`` drops in evaluation too; in attention, the weights by either way."""
    dropout = Dropout(0.5).eval()
    x = torch.ones(100)
    assert dropout(x).equal(x) and dropout.rate == 0
    dropout.in_inference = True
    assert set(dropout(x).tolist()) == {0.0, 2.0}
    assert set(dropout.add_to(x, x).tolist()) == {1.0, 3.0}
    for implementation in ("readable", "fast"):
        attention = SelfAttention(8, 2, dropout=0.5, implementation=implementation).eval()
        source = torch.randn(1, 9, 8)
        plain, _ = attention(source)
        assert torch.equal(attention(source)[0], plain)
        attention.dropout.in_inference = True
        assert not torch.allclose(attention(source)[0], plain)
