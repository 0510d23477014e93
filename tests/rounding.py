"""How far apart rounding may leave two computations of the same number."""

import torch


def rounding(dtype: torch.dtype, operations: float, size: float = 1.0) -> float:
    """Return 10 · √n · u · size: what n roundings, of up to u each, may do to a result.

    Rounding errors have either sign: that n of them reach λ · √n · u is about as improbable as
    2 · exp(-λ² / 2), in whatever order a processor adds (Higham and Mary, 2019, "A new approach to
    probabilistic rounding error analysis"). λ is 10.

    Args:
        dtype: in which results are rounded; u is half of its eps
        operations: n, those on the way to the result: of a sum, its terms
        size: of the largest number on that way: where terms cancel, their errors stay
    """
    return 10 * operations**0.5 * torch.finfo(dtype).eps / 2 * size


def rounding_of_small_model(dtype: torch.dtype) -> float:
    """Return what rounding may do to the logits, loss and gradients of the tests' small model.

    Ten sub-layers of two to four sums of up to 32 terms each, and as many sums backward; the
    logits, and what the norms put out, are below 5.
    """
    return rounding(dtype, 2 * 10 * 4 * 32, 5)
