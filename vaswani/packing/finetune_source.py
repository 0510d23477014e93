"""A packed model used as a run: its codes and dictionary for other text, and its weights.

``vaswani prepare --like MODEL`` and ``vaswani new --from MODEL`` need neither a run nor its data.
"""

from pathlib import Path
from typing import Any

from transformer_plugin.checkpoints import checkpoint_metadata
from transformer_plugin.compat import saving
from transformer_plugin.compat.dictionaries import KEY, dictionary_hashes
from vaswani.common.errors import UserError
from vaswani.common.files import writing
from vaswani.configuration.plugin import load_plugin
from vaswani.folders.model_folder import ModelFolder, is_model_folder, sibling
from vaswani.folders.run import Run
from vaswani.packing.networks import configuration_and_task

#: in a checkpoint: the hash of the weights in the model folder that it was made from
OF_MODEL = "model_folder_sha256"


def is_model(path: Path) -> bool:
    """Return whether a path is a model folder, complete or not, rather than a run."""
    return is_model_folder(path) and not Run(path).exists


def model_as_config(folder: ModelFolder) -> dict[str, Any]:
    """Return a model folder's options as sections of a configuration."""
    source, target = folder.langs
    origin = folder.table.origin
    return {
        "task": {"source_lang": source, "target_lang": target},
        "model": {"_name": "vaswani_transformer", **folder.table.architecture},
        "criterion": {
            "_name": "vaswani_label_smoothed_cross_entropy",
            "label_smoothing": origin.get("label_smoothing", 0.1),
        },
        "dataset": {},
        "optimization": {"update_freq": [1]},
    }


def checkpoint_of(folder: ModelFolder) -> Path:
    """Write a model folder's weights as a checkpoint beside it, the only form that fairseq reads.

    Raises:
        UserError: another file has its name, or the model does not say how long it was trained.
    """
    path = sibling(folder.path, ".pt")
    if not folder.table.origin.get("updates"):
        raise UserError(
            f"{folder.path} does not record after how many updates it was packed, but the "
            "learning rate for fine-tuning depends on that number: pack the model again, or give "
            "its run"
        )
    if path.exists():
        if checkpoint_metadata(path).get(OF_MODEL) != folder.weights_sha256:
            raise UserError(
                f"{path} exists, but the weights of {folder.path} have to be written there as a "
                "checkpoint: move the file away"
            )
        return path
    with writing(path):
        write_checkpoint(folder, path)
    return path


def write_checkpoint(folder: ModelFolder, path: Path) -> None:
    """Write a checkpoint that fairseq can start training from."""
    load_plugin()

    _, task = configuration_and_task(folder)
    sections = model_as_config(folder)
    state = {
        "cfg": {"model": sections["model"], "task": sections["task"]},
        "model": folder.parameters(),
        "task_state": {KEY: dictionary_hashes(task)},
        "optimizer_history": [
            {
                "num_updates": folder.table.origin["updates"],
                "criterion_name": "VaswaniLabelSmoothedCrossEntropy",
                "optimizer_name": "VaswaniAdam",
                "lr_scheduler_state": {},
            }
        ],
        "extra_state": {},
        OF_MODEL: folder.weights_sha256,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    saving.write_checkpoint(state, str(path))
