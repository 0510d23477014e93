"""The checkpoints of a run, identified by what is inside them, and chosen to be averaged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.experiment.find import RUN_CONFIG, read_yaml, run_folders
from vaswani.experiment.run_record import HOW_IT_COMPUTES, STOPPED

BEST = "checkpoint_best.pt"
#: where an average keeps its own validation loss, and those of single checkpoints by their updates
OWN, BESIDE = "validation_nll", "validation_nlls"


@dataclass(frozen=True)
class Checkpoint:
    """What is known about a checkpoint without its tensors.

    ``run``: option → value, equal in all checkpoints of one run (see ``run_options``).
    ``averaged``: how many checkpoints it averages; 0 for one saved by a training.
    ``loss``: of an average, the validation loss that was computed when it was made; None if
    unknown. ``beside``: updates → the loss of a single checkpoint, as computed at the same time.
    ``stopped``: whether it was saved only because the training was stopped there.
    """

    path: Path
    updates: int
    run: Mapping[str, Any]
    averaged: int = 0
    loss: float | None = None
    beside: Mapping[int, float] = field(default_factory=dict)
    stopped: bool = False


# ---- to average -----------------------------------------------------------------------------


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """The checkpoints that a training left in a folder, one for each update, fewest first.

    checkpoint_last.pt and checkpoint_best.pt are copies of others, or the only copy if an epoch's
    file was not kept. Without one that was saved only because the training was stopped: what is
    averaged does not depend on when that was.

    Raises:
        UserError: one of them is an average.
        CheckpointError: one of them is damaged.
    """
    by_updates: dict[int, Checkpoint] = {}
    for path in sorted(filter(is_name_of_training, folder.glob("*.pt"))):
        one = describe_trained(path)
        if not one.stopped:
            by_updates.setdefault(one.updates, one)
    return [by_updates[number] for number in sorted(by_updates)]


def named(inputs: Sequence[str]) -> list[Checkpoint]:
    """The checkpoints with these file names, fewest updates first.

    Raises:
        UserError: there is no such file, one is an average, or two are from the same update.
    """
    for name in inputs:
        if not Path(name).is_file():
            raise UserError(f"there is no checkpoint '{name}': give one run, or files")
    ordered = sorted((describe_trained(Path(name)) for name in inputs), key=lambda o: o.updates)
    for before, after in zip(ordered, ordered[1:], strict=False):
        if before.updates == after.updates:
            raise UserError(
                f"{before.path} and {after.path} are from the same update ({after.updates}) and "
                "would count twice: leave one out"
            )
    return ordered


def is_name_of_training(path: Path) -> bool:
    """Whether a file has a name that fairseq-train gives its checkpoints."""
    from transformer_plugin.compat.resuming import TRAINED

    return bool(TRAINED.fullmatch(path.name))


def run_folder(name: str) -> Path | None:
    """The folder of a run's checkpoints, given as a path or as a name under ./runs; or None.

    A folder of something else, such as text, does not hide the run of its name.
    """
    places = [place for run in run_folders(name) for place in (run / "checkpoints", run)]
    folders = [place for place in places if place.is_dir()]
    filled = [place for place in folders if any(map(is_name_of_training, place.glob("*.pt")))]
    return next(iter(filled + folders), None)


def run_of(checkpoint: Path) -> Path:
    """The folder of the run that a checkpoint is in, or the folder that it is in."""
    folder = checkpoint.parent
    return folder.parent if folder.name == "checkpoints" else folder


def check_one_run(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises UserError, naming the first option that differs, unless all are from one run."""
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for name in sorted(set(first.run) | set(other.run)):
            here, there = first.run.get(name), other.run.get(name)
            # an option that did not exist when the run began had its default's effect: off
            if (here or None) != (there or None):
                raise UserError(
                    f"{first.path} and {other.path} are from different runs "
                    f"({name} is {here} and {there}): average checkpoints of one run"
                )


# ---- of the paper ------------------------------------------------------------------------------


def number_to_average(folder: Path) -> int:
    """How many checkpoints of a run to average (6.1): 20 if it keeps that many, else 5.

    For scripts/evaluate.sh.
    """
    kept = read_yaml(folder / RUN_CONFIG).get("checkpoint", {}).get("keep_interval_updates", 0)
    return 20 if kept >= 20 else 5


# ---- what is inside -------------------------------------------------------------------------


def describe(path: Path) -> Checkpoint:
    """Read a file's ``Checkpoint``; CheckpointError or UserError if that is impossible."""
    from transformer_plugin.checkpoints import checkpoint_metadata

    state = checkpoint_metadata(path)
    updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    if not isinstance(updates, int):
        raise UserError(f"{path} does not say after how many updates it was saved")
    averaged = state.get("averaged_updates", [])
    number = len(averaged) if isinstance(averaged, list) else 1
    loss, beside = state.get(OWN), state.get(BESIDE)
    return Checkpoint(
        path,
        updates,
        run_options(state),
        number,
        loss if isinstance(loss, float) else None,
        beside if isinstance(beside, dict) else {},
        by_a_stop(state),
    )


def describe_trained(path: Path) -> Checkpoint:
    """As :func:`describe`; raises UserError for a checkpoint that was not saved by a training."""
    checkpoint = describe(path)
    if checkpoint.averaged:
        raise UserError(f"{path} is already an average: give what it was made from")
    return checkpoint


def by_a_stop(state: Mapping[str, Any]) -> bool:
    """Whether a checkpoint was saved only because the training was stopped."""
    return STOPPED in (state.get("extra_state") or {})


def run_options(state: Mapping[str, Any]) -> dict[str, Any]:
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
