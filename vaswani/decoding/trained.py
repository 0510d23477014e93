"""What a run, or a checkpoint outside any run, says about how to decode with it."""

from pathlib import Path
from typing import Any, Dict, Optional

from vaswani.common.errors import UserError
from vaswani.experiment.find import AS_TRAINED, is_run, trained_as


def trained_with(checkpoint: Path, folder: Path) -> Dict[str, Any]:
    """The sections task, generation and common: the run's, or of a checkpoint outside any run.

    A checkpoint is not trusted: a user-dir, which is a program, is taken from a run's config.yaml.

    Raises:
        UserError: the checkpoint is from a fairseq too old to have them, or it lacks a task.
    """
    config = trained_as(checkpoint, folder)
    sections = {name: config.get(name, {}) for name in ("task", "generation", "common")}
    if "_name" not in sections["task"]:
        where = folder / AS_TRAINED if is_run(folder) else checkpoint
        raise UserError(f"{where} names no task to decode with (task: _name:)")
    if not is_run(folder):
        sections["common"].pop("user_dir", None)
    return sections


def decoding_task(trained: Dict[str, Any], length_penalty: Optional[str]) -> Dict[str, Any]:
    """The task section to decode with.

    fairseq's ``translation`` becomes the plugin's, whose beam search gives the same
    results in less time.
    """
    task = {**trained, "eval_bleu": False}
    if task.get("_name") == "translation":
        task["_name"] = "vaswani_translation"
    if length_penalty:
        task["length_penalty"] = length_penalty
    return task
