"""The disk space that a training takes: archives, prepared text, checkpoints; and what is free."""

import shutil
from pathlib import Path
from typing import Any, Dict, Optional

from vaswani.common.errors import UserError
from vaswani.data.manifest import choose, find_manifest, read_manifest
from vaswani.data.plan import BYTES_A_PAIR, nearest_existing
from vaswani.data.recipe import Recipe, find_recipe
from vaswani.data.text import SPLITS
from vaswani.planning import arithmetic
from vaswani.planning.batching import Batch

GB = 1e9
#: task.save_all_last: seconds between the checkpoints that are not averaged
TEN_MINUTES = 600


def disk(checkpoint: Any, parameters: int, updates: int, batch: Batch) -> Dict[str, Any]:
    """How many checkpoints there are at most, and their bytes with an average (weights only).

    One more is written aside before it replaces another.
    """
    kept = int(not checkpoint.no_last_checkpoints) + 1
    if checkpoint.save_interval_updates > 0:
        written = updates // checkpoint.save_interval_updates
        limit = checkpoint.keep_interval_updates
        kept += min(written, limit) if limit > 0 else written
    if not checkpoint.no_epoch_checkpoints:
        epochs = updates // batch.updates_an_epoch if batch.updates_an_epoch else 0
        limit = checkpoint.keep_last_epochs
        kept += min(epochs, limit) if limit > 0 else epochs
    size = parameters * arithmetic.SAVED_A_PARAMETER
    return {
        "checkpoint_bytes": size,
        "checkpoints": kept,
        "disk_bytes": (kept + 1) * size + 4 * parameters,
    }


def saves(config: Any, updates_an_epoch: Optional[int], seconds: float) -> int:
    """How many checkpoints a training of so many seconds writes; best and last are links to them.

    Args:
        config: the experiment
        updates_an_epoch: None if there is no data to count them in
        seconds: of its updates
    """
    checkpoint, updates = config.checkpoint, int(config.optimization.max_update)
    if checkpoint.no_save:
        return 0
    written, interval = 1, checkpoint.save_interval_updates  # the last one
    if interval > 0:
        last = getattr(config.task, "save_all_last", 0) or updates
        begin = max(0, updates - last)
        early = max(0, begin - 1) // interval
        written = -(-updates // interval) - early
        written += min(early, int(seconds * begin / updates / TEN_MINUTES))
    if updates_an_epoch:
        written += updates // (updates_an_epoch * max(1, checkpoint.save_interval))
    return written


def whole_disk(experiment: str, checkpoint_bytes: int, with_data: bool) -> Dict[str, Any]:
    """What else is still to be written, the total, and what is free here.

    Args:
        experiment: the name, used to find its recipe
        checkpoint_bytes: of all checkpoints together
        with_data: whether the text must be prepared first
    """
    archives = data = 0.0
    if with_data:
        try:
            recipe = find_recipe(experiment)[0]
        except UserError:  # nothing is known about one's own text before it exists
            recipe = None
        if recipe is not None:
            archives = archive_bytes(recipe)
            data = (recipe.about_pairs or 0) * sum(BYTES_A_PAIR.values())
    return {
        "archive_bytes": archives,
        "data_bytes": data,
        "all_disk_bytes": archives + data + checkpoint_bytes,
        "free_bytes": shutil.disk_usage(nearest_existing(Path())).free,
    }


def archive_bytes(recipe: Recipe) -> float:
    """Size of a recipe's archives not yet in the usual folder; archives of unknown size count 0."""
    if not recipe.archives:
        return 0.0
    manifest = read_manifest(str(find_manifest(recipe.archives)))
    sizes = {}
    for split in SPLITS:
        named = recipe.parts(split)
        for part in choose(manifest, named, split) if named else []:
            names = [source.name for source in part.sources]
            if not any((Path("data/archives") / name).is_file() for name in names):
                sizes[names[0]] = max(source.bytes or 0 for source in part.sources)
    return float(sum(sizes.values()))


def disk_text(plan: Dict[str, Any]) -> str:
    """Everything on one line, with a warning if it does not fit."""
    parts = [
        f"checkpoints {plan['disk_bytes'] / GB:.1f} ({plan['checkpoints']} of "
        f"{plan['checkpoint_bytes'] / GB:.2f}, one being written, and an average)"
    ]
    for key, name in (("data_bytes", "prepared text"), ("archive_bytes", "archives")):
        if plan[key]:
            parts.append(f"{name} {plan[key] / GB:.1f}")
    free = plan["free_bytes"]
    little = ", which is too little" if free < plan["all_disk_bytes"] else ""
    whole = f"{plan['all_disk_bytes'] / GB:.1f} GB of {free / GB:,.1f} GB free here{little}"
    return f"{whole}: {', '.join(parts)}"
