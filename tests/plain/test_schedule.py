"""Section 5.3: equation 3 as decimals."""

from decimal import Decimal, getcontext

import pytest

from vaswani_transformer.schedule import learning_rate


def equation_3(n: int, d_model: int, warmup: int) -> float:
    """Compute the paper's formula in 50 digits."""
    getcontext().prec = 50
    root = Decimal(n).sqrt()
    growing = Decimal(n) / (Decimal(warmup) * Decimal(warmup).sqrt())
    return float(min(1 / root, growing) / Decimal(d_model).sqrt())


@pytest.mark.paper("5.3")
@pytest.mark.parametrize("d_model, warmup", [(512, 4000), (1024, 4000), (64, 7)])
def test_equation_3(d_model: int, warmup: int) -> None:
    for n in (1, 2, 6, 7, 8, 3999, 4000, 4001, 100_000, 300_000):
        expected = pytest.approx(equation_3(n, d_model, warmup), rel=1e-13)
        assert learning_rate(n, d_model, warmup) == expected


def test_known_values() -> None:
    """Worked out by hand for the base model: n = 1, the peak, 100,000; and the big one's peak."""
    assert learning_rate(1, 512) == pytest.approx(1.746928e-7, rel=1e-6)
    assert learning_rate(4000, 512) == pytest.approx(6.988e-4, abs=5e-8)
    assert learning_rate(100_000, 512) == pytest.approx(1.397542e-4, rel=1e-6)
    assert learning_rate(4000, 1024, factor=2.0) == pytest.approx(9.882e-4, abs=1e-7)
