"""Reports the update at which a training diverged, and the last good checkpoint."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..checkpoints import (
    CheckpointError,
    checkpoint_metadata,
    load_checkpoint,
    not_finite,
    trained_checkpoints,
)
from ..config import PluginError


class DivergedError(PluginError, FloatingPointError):
    """The loss or a gradient is not a number.

    Args:
        what: the update, what was not a number, and the last good checkpoint

    Attributes:
        what: the same sentence, without advice
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what}: lower the learning rate (--lr, --lr-factor; in YAML optimization.lr, "
            "lr_scheduler.lr_factor) or lengthen the warm-up (--warmup-updates)"
        )


@contextlib.contextmanager
def explaining_divergence(trainer: Any) -> Iterator[None]:
    """Raise fairseq's FloatingPointError of an update as DivergedError.

    Raises:
        DivergedError: the training diverged.
    """
    try:
        yield
    except DivergedError:
        raise
    except FloatingPointError as error:
        update = trainer.get_num_updates() + 1
        reason = str(error).splitlines()[0]
        good = last_good_checkpoint(Path(trainer.cfg.checkpoint.save_dir))
        raise DivergedError(
            f"the training diverged at update {update:,}: {reason} (last good checkpoint: "
            f"{good or 'none'})"
        ) from error


def last_good_checkpoint(folder: Path) -> Path | None:
    """Return the usable checkpoint with the most updates, or None.

    Its validation loss is finite. A checkpoint without a validation has finite parameters.
    """
    candidates = []
    for path in trained_checkpoints(folder):
        with contextlib.suppress(CheckpointError):
            saved = checkpoint_metadata(path)
            loss = (saved.get("extra_state") or {}).get("val_loss")
            history = saved.get("optimizer_history") or [{}]
            if loss is None or math.isfinite(loss):
                candidates.append((history[-1].get("num_updates", 0), path))
    for _, path in sorted(candidates, reverse=True):
        with contextlib.suppress(CheckpointError):
            if not not_finite(load_checkpoint(path, mapped=True)["model"]):
                return path
    return None
