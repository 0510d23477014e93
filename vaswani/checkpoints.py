"""The checkpoints of a run, identified by what is inside them, and chosen to average or decode."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from vaswani.errors import UserError
from vaswani.experiment import AS_TRAINED, find_run, read_yaml, run_folders
from vaswani.training.run_record import HOW_IT_COMPUTES, last_checkpoint

DEFAULT_LAST = 5
#: what to decode in a run without an average: the first of these that exists
PREFERRED = ("checkpoint_best.pt", "checkpoint_last.pt")


@dataclass(frozen=True)
class Checkpoint:
    """What is known about a checkpoint without its tensors.

    ``run``: option → value, equal in all checkpoints of one run (see ``run_options``).
    ``averaged``: how many checkpoints it averages; 0 for one saved by a training.
    """

    path: Path
    updates: int
    run: Mapping[str, Any]
    averaged: int = 0


# ---- to average -----------------------------------------------------------------------------


def choose(inputs: Sequence[str], last: Optional[int]) -> Tuple[List[Checkpoint], str]:
    """The checkpoints to average, fewest updates first, and a name for the result."""
    folder = run_folder(inputs[0]) if len(inputs) == 1 else None
    if folder is not None:
        count = DEFAULT_LAST if last is None else last
        names = sorted(path for path in folder.glob("*.pt") if is_name_of_training(path))
        found = select_last([describe(path) for path in names], count, str(folder))
        return found, f"checkpoint_average_last{count}.pt"
    if last is not None:
        raise UserError("--last chooses within one run: leave it out with checkpoint files")
    for path in map(Path, inputs):
        if path.is_dir():
            raise UserError(f"{path} is a folder: give one run, or checkpoint files only")
        if not path.is_file():
            raise UserError(f"there is no checkpoint or run '{path}'")
    found = select_named([describe(Path(path)) for path in inputs])
    return found, f"checkpoint_average_of{len(found)}.pt"


def is_name_of_training(path: Path) -> bool:
    """Whether a file has a name that fairseq-train gives its checkpoints."""
    from transformer_plugin.compat.resuming import TRAINED

    return bool(TRAINED.fullmatch(path.name))


def run_folder(name: str) -> Optional[Path]:
    """The folder of a run's checkpoints, given as a path or as a name under ./runs; or None."""
    for folder in run_folders(name):
        if folder.is_dir():
            inside = folder / "checkpoints"
            return inside if inside.is_dir() else folder
    return None


def select_last(checkpoints: Sequence[Checkpoint], count: int, where: str) -> List[Checkpoint]:
    """The last ``count`` by updates, fewest first; files of the same update count once.

    (checkpoint_last.pt and checkpoint_best.pt are copies of others, or the only copy if an epoch's
    file was not kept.)

    Raises:
        UserError: fewer than two are asked for, or more than there are.
    """
    if count < 2:
        raise UserError(f"--last must be at least 2, not {count}: there is nothing to average")
    refuse_averages(checkpoints)
    by_updates: Dict[int, Checkpoint] = {}
    for checkpoint in checkpoints:
        by_updates.setdefault(checkpoint.updates, checkpoint)
    updates = sorted(by_updates)
    if len(updates) < count:
        listed = f" (updates: {', '.join(map(str, updates))})" if updates else ""
        remedy = f"give --last {len(updates)}, or train longer" if updates[1:] else "train longer"
        raise UserError(
            f"{count} checkpoints were asked for, but {where} has {len(updates)}{listed}: {remedy}"
        )
    return [by_updates[number] for number in updates[-count:]]


def select_named(checkpoints: Sequence[Checkpoint]) -> List[Checkpoint]:
    """All, fewest updates first; UserError for a single one, an average, or an update twice."""
    if len(checkpoints) < 2:
        raise UserError(
            f"{checkpoints[0].path} is a single checkpoint: give a run, or two checkpoints or more"
        )
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.updates)
    refuse_averages(ordered)
    for before, after in zip(ordered, ordered[1:], strict=False):
        if before.updates == after.updates:
            raise UserError(
                f"{before.path} and {after.path} are from the same update ({after.updates}) and "
                "would count twice: leave one out"
            )
    return ordered


def refuse_averages(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises UserError for a checkpoint that was not saved by a training."""
    for checkpoint in checkpoints:
        if checkpoint.averaged:
            raise UserError(f"{checkpoint.path} is already an average: give what it was made from")


def check_one_run(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises UserError, naming the first option that differs, unless all are from one run."""
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for name in sorted(set(first.run) | set(other.run)):
            here, there = first.run.get(name), other.run.get(name)
            if name.endswith("dictionary") and None in (here, there):
                continue  # from an earlier version, which did not record it
            if here != there:
                raise UserError(
                    f"{first.path} and {other.path} are from different runs "
                    f"({name} is {here} and {there}): average checkpoints of one run"
                )


# ---- to decode ------------------------------------------------------------------------------


def last_of_the_paper(folder: Path) -> int:
    """How many checkpoints of a run to average (6.1): 20 if it keeps that many, else 5."""
    kept = read_yaml(folder / AS_TRAINED).get("checkpoint", {}).get("keep_interval_updates", 0)
    return 20 if kept >= 20 else DEFAULT_LAST


def find_checkpoint(name: str) -> Tuple[Path, Path]:
    """The checkpoint to decode with, and the folder of its run (or the one it is in, if no run's).

    Raises:
        UserError: no such run or checkpoint.
        CheckpointError: the file is not a checkpoint.
    """
    path = Path(name)
    if path.suffix == ".pt":
        if not path.is_file() and ".pt:" in name:
            raise UserError(
                f"{name} names several checkpoints, but only one can be used: for an ensemble use "
                "fairseq-generate --path, for their mean 'vaswani average'"
            )
        if not path.is_file():
            raise UserError(f"there is no checkpoint {path}")
        folder = path.parent.parent if path.parent.name == "checkpoints" else path.parent
        return path, folder
    folder = find_run(name)
    average = newest_average(folder / "checkpoints")
    if average:
        tell_if_stale(average, folder)
        return average.path, folder
    for name in PREFERRED:
        if (folder / "checkpoints" / name).is_file():
            return folder / "checkpoints" / name, folder
    raise UserError(f"{folder} has no checkpoint yet: train it with 'vaswani train'")


def newest_average(folder: Path) -> Optional[Checkpoint]:
    """A run's average that reaches the latest update; among equals, the one of most checkpoints."""
    paths = sorted(path for path in folder.glob("checkpoint_average*.pt") if path.is_file())
    found = [describe(path) for path in paths]
    return max(found, key=lambda one: (one.updates, one.averaged), default=None)


def tell_if_stale(average: Checkpoint, folder: Path) -> None:
    """Warn if training continued after the average to be decoded was made."""
    from transformer_plugin.checkpoints import CheckpointError

    try:
        goes_on = describe(last_checkpoint(folder)).updates > average.updates
    except (CheckpointError, UserError):  # missing or unusable: the average still works
        return
    if goes_on:
        print(
            f"warning: training continued after {average.path} was made (update "
            f"{average.updates:,}); for a new one: vaswani average {folder}",
            file=sys.stderr,
        )


# ---- what is inside -------------------------------------------------------------------------


def describe(path: Path) -> Checkpoint:
    """Read a file's ``Checkpoint``; CheckpointError or UserError if that is impossible."""
    from transformer_plugin.checkpoints import outline_of

    state = outline_of(path)
    updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    if not isinstance(updates, int):
        raise UserError(f"{path} does not say after how many updates it was saved")
    averaged = state.get("averaged_updates", [])
    number = len(averaged) if isinstance(averaged, list) else 1
    return Checkpoint(path, updates, run_options(state), number)


def run_options(state: Mapping[str, Any]) -> Dict[str, Any]:
    """What identifies a run: the model's name and options, languages, dictionaries, and seed.

    The size of the dictionaries also shows in the shapes of the parameters. fairseq's own
    architectures store all options of the command line as the model's; those that belong to
    another section (save_dir, max_update …) are left out, since a resumed run may change them.
    """
    from transformer_plugin.compat.dictionaries import KEY

    cfg = state.get("cfg") or {}
    model = cfg.get("model") or state.get("args") or {}
    model = model if isinstance(model, dict) else getattr(model, "__dict__", {})
    sections = {name: part for name, part in cfg.items() if isinstance(part, dict)}
    elsewhere = {key for name, part in sections.items() if name != "model" for key in part}
    elsewhere |= {*cfg, *HOW_IT_COMPUTES, "_name", "arch"}
    options = {name: value for name, value in model.items() if name not in elsewhere}
    options["architecture"] = model.get("_name", model.get("arch"))
    for section, name in (("common", "seed"), ("task", "source_lang"), ("task", "target_lang")):
        options[name] = sections.get(section, {}).get(name)
    task_state = state.get("task_state")
    hashes = task_state.get(KEY) if isinstance(task_state, dict) else None
    for side, digest in hashes.items() if isinstance(hashes, dict) else []:
        options[f"{side} dictionary"] = str(digest)[:12]
    return options
