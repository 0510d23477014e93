"""Dropout's masks: their distribution, that they come from torch's seed, and what they do."""

import pytest
import torch

from vaswani_transformer.fast.dropout import FastDropout, keep_mask


@pytest.mark.paper("5.4")
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_zeros_come_singly_and_with_their_probability(p):
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


def test_a_probability_of_one_drops_everything():
    """As torch's dropout: 1 / (1 - p) has no value there."""
    assert FastDropout(1.0)(torch.ones(1000)).eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_mask_holds_only_0_and_the_factor(dtype):
    """A mask holds 0 and 1 / (1 - p), and nothing else; any shape, any type."""
    mask = keep_mask(torch.empty(7, 5, 3, dtype=dtype), 0.2)
    assert mask.shape == (7, 5, 3) and mask.dtype == dtype
    kept = torch.tensor(1 / 0.8).to(dtype)
    assert set(mask.unique().tolist()) <= {0.0, kept.item()}
    assert keep_mask(torch.empty(0, 4), 0.5).shape == (0, 4)


def test_a_seed_decides_the_mask():
    """The same seed, the same mask; another seed, another."""
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(keep_mask(torch.empty(1000), 0.5))
    assert masks[0].equal(masks[1]) and not masks[0].equal(masks[2])


def test_dropout_multiplies_by_the_mask_in_training_alone():
    """x · mask in training, x itself in evaluation and at p = 0; the gradient is masked too."""
    dropout = FastDropout(0.4)
    x = torch.randn(50, 8, requires_grad=True)
    torch.manual_seed(3)
    out = dropout(x)
    torch.manual_seed(3)
    mask = keep_mask(x, 0.4)
    assert out.equal(x * mask)
    out.sum().backward()
    assert x.grad.equal(mask)
    assert dropout.eval()(x) is x
    assert FastDropout(0.0)(x) is x
