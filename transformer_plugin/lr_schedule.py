"""The learning-rate schedule (5.3, equation 3) as fairseq calls it."""

from typing import Any

from fairseq.dataclass.configs import OptimizationConfig
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import DictConfig

from vaswani_transformer.schedule import learning_rate

from .checks import check_schedule_config
from .config import ConfigError, VaswaniInverseSqrtConfig


def model_width(cfg: DictConfig) -> int:
    """Return d_model of the model in the same fairseq configuration as the schedule.

    ``cfg`` is the schedule's section. The usual way to another section is an interpolation,
    ``II("model.encoder_embed_dim")``, but fairseq resolves it before ``--arch transformer`` has a
    model section, and stops. When the schedule is built, the model exists, and its section has its
    sizes, as a DictConfig or (fairseq's own architectures by ``--arch``) as a Namespace.

    Raises:
        ConfigError: the model's section has no width, or two different ones.
    """
    model = getattr(cfg._get_root(), "model", None)
    sides = ("encoder", "decoder")
    widths: set[Any] = {getattr(model, f"{side}_embed_dim", None) for side in sides} - {None}
    if len(widths) != 1:
        raise ConfigError(
            "vaswani_inverse_sqrt needs one d_model, but the model's encoder and decoder have "
            f"{' and '.join(map(str, sorted(widths))) or 'no embed_dim'}: give --d-model"
        )
    return int(widths.pop())


@register_lr_scheduler("vaswani_inverse_sqrt", dataclass=VaswaniInverseSqrtConfig)
class VaswaniInverseSqrt(FairseqLRScheduler):
    """Equation 3, with step 1 at the first update (fairseq's ``inverse_sqrt`` is one behind).

    Raises:
        ConfigError: no d_model, a value out of range, or a ``--lr`` that would be ignored.
    """

    def __init__(self, cfg: DictConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        check_schedule_config(cfg)
        self.d_model = model_width(cfg) if cfg.d_model is None else cfg.d_model
        refuse_ignored_lr(list(cfg.lr), self.d_model, cfg.warmup_updates)
        self.step_update(0)

    def step_update(self, num_updates: int) -> float:
        """Set and return the learning rate of the next update, number ``num_updates`` + 1."""
        step = num_updates + 1
        lr = learning_rate(step, self.d_model, self.cfg.warmup_updates, self.cfg.lr_factor)
        self.optimizer.set_lr(lr)
        return lr


def refuse_ignored_lr(lr: list[float], d_model: int, warmup_updates: int) -> None:
    """Raise ConfigError if ``--lr`` was given, which equation 3 does not have.

    fairseq's default is allowed, since it cannot be distinguished from an option that was not
    given.
    """
    if lr != OptimizationConfig().lr:
        factor = max(lr) * (d_model * warmup_updates) ** 0.5
        raise ConfigError(
            f"vaswani_inverse_sqrt ignores --lr {', '.join(map(str, lr))}: leave it out. For a "
            f"peak learning rate of {max(lr):g}, give --lr-factor {factor:.6g}"
        )
