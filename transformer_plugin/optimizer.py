"""Adam (section 5.3) with torch's own kernels: the same numbers as fairseq's ``adam``, faster.

fairseq's Adam updates one parameter after another, in seven passes over each; torch's fused
kernel reads and writes each number once.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer
from torch import Tensor

from .checks import check_adam_config, read_betas
from .config import VaswaniAdamConfig


def epsilon_before_correction(epsilon: float, beta2: float, step: int) -> float:
    """Return the ε to give to torch at update ``step`` (from 1), so that it acts like fairseq's.

    fairseq adds ε to √v, as at the end of Kingma and Ba's section 2; torch adds it to the
    corrected √v / √(1 - β₂ᵗ), as in their algorithm 1. The two are the same if torch's ε is
    fairseq's / √(1 - β₂ᵗ).
    """
    return epsilon / math.sqrt(1.0 - beta2**step)


class EpsilonHatAdam(torch.optim.AdamW):
    """torch's Adam with decoupled weight decay, and ε where fairseq adds it.

    Its state is torch's own, and is saved with the plain ε. A parameter without a gradient is left
    alone; if it gets one later, only ε is corrected for all updates, not its own smaller number.

    Args:
        params: the parameters
        options: ``lr``, ``betas``, ``eps``, ``weight_decay``
    """

    def __init__(self, params: Iterable[Any], **options: Any) -> None:
        params = list(params)
        try:
            super().__init__(params, fused=True, **options)
        except RuntimeError:  # this torch has no fused kernel for this device or type
            super().__init__(params, foreach=True, **options)
        self.implementation = {n: self.param_groups[0][n] for n in ("fused", "foreach")}
        self.updates = 0  # t; kept here because torch's own counts may be on the GPU

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update the parameters once with the current gradients."""
        self.updates += 1
        plain = [group["eps"] for group in self.param_groups]
        for group in self.param_groups:
            group["eps"] = epsilon_before_correction(group["eps"], group["betas"][1], self.updates)
        try:
            return super().step(closure)
        finally:
            for group, epsilon in zip(self.param_groups, plain, strict=True):
                group["eps"] = epsilon

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state that this class has saved.

        The rate, β and ε come from it, as with every optimizer of fairseq; the choice of kernels
        does not.
        """
        groups = [
            {**own, **saved, **self.implementation}
            for own, saved in zip(self.param_groups, state_dict["param_groups"], strict=True)
        ]
        super().load_state_dict({**state_dict, "param_groups": groups})
        steps = (int(values["step"]) for values in state_dict["state"].values())
        self.updates = max(steps, default=0)


@register_optimizer("vaswani_adam", dataclass=VaswaniAdamConfig)
class VaswaniAdam(FairseqOptimizer):
    """Adam with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e-9 (5.3) as its defaults."""

    def __init__(self, cfg: VaswaniAdamConfig, params: Iterable[Any]) -> None:
        """Raise ConfigError for values that cannot work."""
        super().__init__(cfg)
        check_adam_config(cfg)
        self._optimizer = EpsilonHatAdam(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The options of torch's optimizer."""
        return {
            "lr": self.cfg.lr[0],
            "betas": read_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    @property
    def supports_flat_params(self) -> bool:
        """True: under ``--fp16`` fairseq may hand over one long parameter."""
        return True

    def zero_grad(self) -> None:
        """Remove all gradients, in one pass over the parameters instead of fairseq's two."""
        for parameter in self.params:
            parameter.grad = None

    def multiply_grads(self, c: Any) -> None:
        """Multiply all gradients by ``c``, a number or a tensor of one element, in one call."""
        gradients = [p.grad for p in self.params if p.grad is not None]
        if not gradients:
            return
        if torch.is_tensor(c):
            c = c.to(gradients[0].device)
        torch._foreach_mul_(gradients, c)

    def clip_grad_norm(
        self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Return the 2-norm of all gradients, and scale them down to ``max_norm`` if it is larger.

        Args:
            max_norm: 0 to leave the gradients unchanged
            aggregate_norm_fn: combines the norms of several processes
        """
        params = list(self.params)
        gradients = [p.grad for p in params if p.grad is not None]
        norms = torch._foreach_norm(gradients) if gradients else [params[0].new_zeros(())]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0 and gradients:
            torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm
