"""What ``vaswani generate`` writes for a subset: everything from one decoding, or nothing."""

import os
from pathlib import Path

from vaswani.common.artifact import RecordedOutputs
from vaswani.common.errors import UserError
from vaswani.common.files import Table, read_json, sha256_of
from vaswani.common.find import RUN_CONFIG
from vaswani.common.yaml_tables import read_yaml
from vaswani.folders.search_options import BEAM_OPTIONS, flag

#: a subset's files: tokens, text, what fairseq-generate prints; beside them the record, SUBSET.json
ENDS = (".hyp.tok", ".hyp", ".log")


def translations_of(folder: Path, subset: str) -> RecordedOutputs:
    """The results of one subset (train, valid, test …) in a folder, which need not exist yet."""
    names = [subset + end for end in ENDS]
    return RecordedOutputs(folder, names, folder / f"{subset}.json", folder / f".{subset}.part")


def check_replaceable(results: RecordedOutputs) -> None:
    """Raises UserError if the folder has files of these names from elsewhere."""
    there = [path for path in results.paths if os.path.lexists(path)]
    if there and not results.files():
        raise UserError(
            f"{there[0]} exists and was not made by 'vaswani generate', which would replace it: "
            "give another folder with --out, or move the file away"
        )


# ---- whether they are as an experiment says -----------------------------------------------------


def decoding(config: Table) -> Table:
    """What an experiment says about decoding: the search's options, and the data."""
    search = {name: config["generation"][name] for name in BEAM_OPTIONS}
    penalty = config["task"].get("length_penalty") or "fairseq"
    return {**search, "length_penalty": penalty, "data": str(config["task"]["data"])}


def decoding_options(folder: Path, config: Table) -> list[str]:
    """What 'vaswani generate' has to be told to decode as an experiment says, not as trained."""
    trained = decoding(read_yaml(folder / RUN_CONFIG))
    requested = decoding(config)
    words = []
    for name, value in requested.items():
        if value != trained[name]:
            words += [flag(name), str(value)]
    return words


def is_decoded(folder: Path, checkpoint: Path, config: Table, subset: str = "test") -> bool:
    """Whether a run's translations are by this checkpoint as an experiment says, and scored."""
    report = read_json(folder / "eval" / f"{subset}.json")
    scored = read_json(folder / "eval" / f"{subset}.score.json").get("translation")
    if not report or report != scored:
        return False
    digest = report.get("sha256", {}).get(checkpoint.name)  # earlier versions have none
    if digest and checkpoint.is_file() and digest != sha256_of(checkpoint):
        return False
    used = {"no_repeat_ngram_size": 0, **report, **report["options"]}  # earlier reports lack it
    requested = {**decoding(config), "precision": "fp32"}
    same = all(used.get(name) == value for name, value in requested.items())
    return same and Path(report["checkpoint"]).name == checkpoint.name
