"""A packed model used as a run: its codes and dictionary for other text, and its weights.

``vaswani prepare --like MODEL`` and ``vaswani new --from MODEL`` need neither a run nor its data.
"""

import sys
from pathlib import Path
from typing import Any

from vaswani.common.artifact import writing
from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.data.subwords import SENTENCEPIECE
from vaswani.experiment.find import is_run
from vaswani.model_folder.folder import (
    CONFIG,
    WEIGHTS,
    ModelFolder,
    read_config,
    read_folder,
    read_section,
    sibling,
)
from vaswani.model_folder.text_recipe import TextRecipe

#: in a checkpoint: the hash of the weights in the model folder that it was made from
OF_MODEL = "model_folder_sha256"


def is_model(path: Path) -> bool:
    """Whether a path is a model folder, complete or not, rather than a run."""
    return (path / CONFIG).is_file() and not is_run(path)


def codes_and_dictionary(path: Path) -> tuple[Path, Path]:
    """The files in a model folder that are needed to prepare other text.

    Raises:
        UserError: the folder is incomplete, words are not split, or the dictionaries differ.
    """
    folder = read_folder(path)
    source, target = (folder.dictionary(lang) for lang in folder.langs)
    if not folder.codes or sha256_of(source) != sha256_of(target):
        raise UserError(f"{path}: --like needs BPE codes and one dictionary for both languages")
    return folder.codes, source


def recipe_table(path: Path) -> dict[str, Any]:
    """What a model folder says about its text, in the keys of a data recipe."""
    text = read_section(TextRecipe, read_config(path)["text"], f"{path / CONFIG}: text")
    if text.lowercase:
        print(
            f"{path} knows only lower-case letters, but 'vaswani prepare' does not convert "
            "capitals: give it lower-case text",
            file=sys.stderr,
        )
    return {
        "source_lang": text.source_lang,
        "target_lang": text.target_lang,
        "normalise": text.normalise,
        "subword": text.bpe,
        "tokenised": text.tokeniser == "none" and text.bpe != SENTENCEPIECE,
        "split_hyphens": text.split_hyphens,
        "straight_test_apostrophes": text.straight_apostrophes,
    }


def model_as_config(folder: ModelFolder) -> dict[str, Any]:
    """The sections of an experiment that a model folder has, as in a run's config.yaml."""
    source, target = folder.langs
    origin = folder.config["origin"]
    return {
        "task": {"source_lang": source, "target_lang": target},
        "model": {"_name": "vaswani_transformer", **folder.config["architecture"]},
        "criterion": {
            "_name": "vaswani_label_smoothed_cross_entropy",
            "label_smoothing": origin.get("label_smoothing", 0.1),
        },
        "dataset": {},
        "optimization": {"update_freq": [1]},
    }


def checkpoint_of(folder: ModelFolder) -> Path:
    """A model folder's weights as a checkpoint beside it, the only form that fairseq reads.

    Raises:
        UserError: another file has its name, or the model does not say how long it was trained.
    """
    path = sibling(folder.path, ".pt")
    if not folder.config["origin"].get("updates"):
        raise UserError(
            f"{folder.path} does not say after how many updates it was packed, on which the "
            "learning rate for fine-tuning depends"
        )
    if path.exists():
        from transformer_plugin.checkpoints import checkpoint_metadata

        if checkpoint_metadata(path).get(OF_MODEL) != folder.sums[WEIGHTS]:
            raise UserError(
                f"{path} exists and is not {folder.path} as a checkpoint, which is to be written "
                "there: move it away"
            )
        return path
    with writing(path):
        write_checkpoint(folder, path)
    return path


def write_checkpoint(folder: ModelFolder, path: Path) -> None:
    """Write a checkpoint that fairseq can start training from."""
    from transformer_plugin.compat import saving
    from vaswani.experiment.fairseq_config import load_plugin

    load_plugin()
    from transformer_plugin.compat.dictionaries import KEY, dictionary_hashes
    from vaswani.model_folder.packed_model import described

    _, task = described(folder)
    sections = model_as_config(folder)
    state = {
        "cfg": {"model": sections["model"], "task": sections["task"]},
        "model": folder.parameters(),
        "task_state": {KEY: dictionary_hashes(task)},
        "optimizer_history": [
            {
                "num_updates": folder.config["origin"]["updates"],
                "criterion_name": "VaswaniLabelSmoothedCrossEntropy",
                "optimizer_name": "VaswaniAdam",
                "lr_scheduler_state": {},
            }
        ],
        "extra_state": {},
        OF_MODEL: folder.sums[WEIGHTS],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    saving.write_checkpoint(state, str(path))
