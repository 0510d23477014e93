"""How high an experiment's learning rate rises, beside the paper's."""

from typing import Any, List

#: equation 3's warm-up, with which the rate rises to d_model^-0.5 × 4000^-0.5
PAPER_WARMUP = 4000
#: times that; the published settings in configs/ stay below 4
FAR_ABOVE = 5


def warn_of_high_rate(config: Any) -> List[str]:
    """A sentence if a Transformer's peak rate is far above the paper's for its width (5.3).

    A shorter warm-up raises equation 3's peak: with d_model 128, 100 updates give 0.0088.
    """
    name = str(config.model.get("_name"))
    width = config.model.get("encoder_embed_dim")
    if not width or "transformer" not in name or "adam" not in str(config.optimizer.get("_name")):
        return []
    warmup = config.lr_scheduler.get("warmup_updates")
    by_equation_3 = str(config.lr_scheduler.get("_name")) == "vaswani_inverse_sqrt"
    if by_equation_3:
        width = config.lr_scheduler.get("d_model") or width
        peak = config.lr_scheduler.lr_factor * (width * warmup) ** -0.5
    else:
        peak = max(config.optimization.lr)
    papers = (width * PAPER_WARMUP) ** -0.5
    if peak <= FAR_ABOVE * papers:
        return []
    lower = "lr_scheduler.lr_factor" if by_equation_3 else "optimization.lr"
    return [
        f"the learning rate rises to {peak:.2g}, {peak / papers:.1f} times the {papers:.2g} of the "
        f"paper's schedule for d_model {width}, at which a training may diverge: raise "
        f"lr_scheduler.warmup_updates, or lower {lower}"
    ]
