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
    """d_model of the model in the same fairseq configuration as the schedule.

    ``cfg`` is the schedule's section. The usual way to another section is an interpolation,
    ``II("model.encoder_embed_dim")``, but fairseq resolves it before ``--arch transformer`` has a
    model section, and stops. When the schedule is built, the model exists, and its section has its
    sizes, as a DictConfig or (fairseq's own architectures by ``--arch``) as a Namespace.

    Raises:
        ConfigError: the model's section has no width, or two different ones.
    """
    root = cfg._get_root() if isinstance(cfg, DictConfig) else None
    model = getattr(root, "model", None)
    names = ("encoder_embed_dim", "decoder_embed_dim")
    sizes = {name: getattr(model, name, None) for name in names}
    widths = {width for width in sizes.values() if width is not None}
    if len(widths) != 1:
        seen = " and ".join(f"{name} {width}" for name, width in sizes.items() if width is not None)
        raise ConfigError(
            "vaswani_inverse_sqrt needs one d_model, but the model has "
            f"{seen or 'neither encoder_embed_dim nor decoder_embed_dim'}: give --d-model"
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
        d_model = model_width(cfg) if cfg.d_model is None else cfg.d_model
        self.settings = {
            "d_model": d_model,
            "warmup_updates": cfg.warmup_updates,
            "lr_factor": cfg.lr_factor,
        }
        refuse_ignored_lr(list(cfg.lr), d_model, cfg.warmup_updates)
        self.step_update(0)

    def step_update(self, num_updates: int) -> float:
        """Set and return the rate of the next update, number ``num_updates`` + 1."""
        s = self.settings
        lr = learning_rate(num_updates + 1, s["d_model"], s["warmup_updates"], s["lr_factor"])
        self.optimizer.set_lr(lr)
        return lr

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the schedule; the update number is kept by fairseq."""
        return {**super().state_dict(), **self.settings}


def refuse_ignored_lr(lr: list[float], d_model: int, warmup_updates: int) -> None:
    """Raise ConfigError if ``--lr`` was given: equation 3 has no such term.

    fairseq's default passes, since it looks the same whether given by hand or not.
    """
    if lr != OptimizationConfig().lr:
        factor = max(lr) * (d_model * warmup_updates) ** 0.5
        raise ConfigError(
            f"--lr {', '.join(map(str, lr))} would be ignored by vaswani_inverse_sqrt: leave it "
            f"out, or give --lr-factor {factor:.6g} for the same peak"
        )
