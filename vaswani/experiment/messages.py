"""What a training says on the terminal when it begins and when it ends."""

import shlex
from pathlib import Path
from typing import Any, Dict


def beginning(config: Any, updates: int, remark: str = "") -> str:
    """``training to update 8,000; saves every 100 updates; log: runs/a/train.log``.

    Args:
        config: the experiment's
        updates: how many the run has already
        remark: what else to say
    """
    verb = f"continuing at update {updates:,}," if updates else "training"
    log = Path(config.checkpoint.save_dir).parent / "train.log"
    return "; ".join(
        [f"{verb} {limits(config)}", saves(config), *([remark] if remark else []), f"log: {log}"]
    )


def limits(config: Any) -> str:
    """How long a training goes on: ``to update 8,000 or for 0.2 hours``."""
    given, patience = config.optimization, config.checkpoint.patience
    found = []
    if given.max_update > 0:
        found.append(f"to update {given.max_update:,}")
    if given.max_epoch > 0:
        found.append(f"to the end of epoch {given.max_epoch:,}")
    if given.stop_time_hours > 0:
        found.append(f"for {given.stop_time_hours:g} hours")
    if patience > 0:
        found.append(f"until {patience:,} validations in a row bring no improvement")
    return " or ".join(found) or "without end"


def saves(config: Any) -> str:
    """When a training saves: ``saves every 100 updates and after each epoch``."""
    given = config.checkpoint
    if given.no_save:
        return "saves nothing (checkpoint.no_save)"
    found = []
    if given.save_interval_updates > 0:
        after = config.dataset.validate_after_updates
        begin = f" from update {after:,} on" if after > given.save_interval_updates else ""
        found.append(f"every {given.save_interval_updates:,} updates{begin}")
    epochs = given.save_interval
    found.append("after each epoch" if epochs == 1 else f"every {epochs:,} epochs")
    return f"saves {' and '.join(found)}"


def ending(finished: Dict[str, Any], max_update: int) -> str:
    """``stopped by stop_time_hours at update 274 of 12,480, validation perplexity 112``.

    Args:
        finished: what finished.json records
        max_update: of the experiment; 0 for any number
    """
    updates, perplexity = finished["num_updates"], finished.get("perplexity")
    text = f"stopped by {finished['reason']} at update {updates:,}"
    text += f" of {max_update:,}" if updates < max_update else ""
    if perplexity is not None:
        text += f", validation perplexity {perplexity:,.{0 if perplexity >= 100 else 2}f}"
    return text


def next_command(folder: Path, saved: bool) -> str:
    """The command that follows a training, which chooses or averages its checkpoints."""
    if not saved:
        return "no checkpoint was saved"
    return f"next: {shlex.join(['vaswani', 'average', str(folder)])}"


def diverged(reason: str, checkpoints: Path) -> str:
    """The message about a training whose numbers became NaN or infinite.

    Args:
        reason: fairseq's, with the update: "update 12: gradients are Nan/Inf"
        checkpoints: the run's checkpoint folder
    """
    from transformer_plugin.checkpoints import CheckpointError
    from transformer_plugin.compat.resuming import newest_checkpoint

    try:
        newest = newest_checkpoint(checkpoints)
    except CheckpointError:
        newest = None
    good = f"the last good checkpoint is {newest[1]}" if newest else "no checkpoint was saved"
    return (
        f"the training diverged at {reason.splitlines()[0]}; {good}: lower the learning rate "
        "(optimization.lr, lr_scheduler.lr_factor) or lengthen the warm-up, and run the command "
        "again, with another run=NAME to start over"
    )
