"""What a run, or a checkpoint outside any run, says about how to decode with it."""

from pathlib import Path
from typing import Any, Dict, List, Optional

from vaswani.common.files import read_json
from vaswani.experiment.find import AS_TRAINED, is_run, read_yaml, trained_as
from vaswani.model_folder.search_options import BEAM_OPTIONS, flag

#: what decoding takes from a run
NEEDED = ("task", "model", "generation", "common")


def trained_with(checkpoint: Path, folder: Path) -> Dict[str, Any]:
    """The sections task, model, generation and common: the run's, or of a checkpoint outside one.

    A checkpoint is not trusted: a user-dir, which is a program, is taken from a run's config.yaml.

    Raises:
        UserError: the checkpoint is from a fairseq too old to have them.
    """
    config = trained_as(checkpoint, folder)
    sections = {name: config.get(name, {}) for name in NEEDED}
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


def decoding(config: Any) -> Dict[str, Any]:
    """What an experiment says about decoding: the search's options, and the data."""
    search = {name: config["generation"][name] for name in BEAM_OPTIONS}
    penalty = config["task"].get("length_penalty") or "fairseq"
    return {**search, "length_penalty": penalty, "data": str(config["task"]["data"])}


def decoding_options(folder: Path, config: Any) -> List[str]:
    """What 'vaswani generate' has to be told to decode as an experiment says, not as trained."""
    usual, wanted = decoding(read_yaml(folder / AS_TRAINED)), decoding(config)
    changed = {name: value for name, value in wanted.items() if value != usual[name]}
    return [word for name, value in changed.items() for word in (flag(name), str(value))]


def is_decoded(folder: Path, checkpoint: Path, config: Any, subset: str = "test") -> bool:
    """Whether a run's translations are by this checkpoint as an experiment says, and scored."""
    made = read_json(folder / "eval" / f"{subset}.json")
    scored = read_json(folder / "eval" / f"{subset}.score.json").get("translation")
    if not made or made != scored:
        return False
    used = {**made, **made["options"]}
    wanted = {**decoding(config), "precision": "fp32"}
    same = all(used.get(name) == value for name, value in wanted.items())
    return same and Path(made["checkpoint"]).name == checkpoint.name
