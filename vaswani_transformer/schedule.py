"""The learning rate (section 5.3, equation 3)."""


def learning_rate(step: int, d_model: int, warmup_steps: int = 4000, factor: float = 1.0) -> float:
    """Return factor · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5) (equation 3).

    It grows linearly for ``warmup_steps`` updates up to factor · (d_model · warmup_steps)^-0.5,
    then decays with the inverse square root of the step. ``step`` counts from 1, the first update;
    the factor is 1 in the paper.
    """
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
