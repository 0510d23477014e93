"""The checkpoints of a run, identified by what is inside them; chosen to be averaged or decoded."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from transformer_plugin.checkpoints import (
    TRAINED,
    CheckpointError,
    checkpoint_metadata,
    load_checkpoint,
)
from transformer_plugin.compat.dictionaries import KEY
from transformer_plugin.compat.validation_text import KEY as VALIDATION_TEXT
from vaswani.common.errors import UserError
from vaswani.folders.run import Run
from vaswani.training.run_record import HOW_IT_COMPUTES, STOPPED
from vaswani.training.validation import Validation, text_validated_on

#: keys of an average's file: its validation loss, and a dict from updates to the loss of that
#: single checkpoint
OWN, BESIDE = "validation_nll", "validation_nlls"


#: what is in a file of fairseq's, by name
CheckpointState = Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """What is known about a checkpoint without its tensors.

    ``run``: option → value, equal in all checkpoints of one run (see ``run_options``).
    ``averaged``: how many checkpoints it averages; 0 for one saved by a training.
    ``loss``: of an average, the validation loss that was computed when it was made; None if
    unknown. ``beside``: of an average, updates → the validation loss of that single checkpoint,
    computed when the average was made.
    ``stopped``: whether it was saved only because the training was stopped there.
    ``text``: the hash of the validation text that its losses belong to, or on which the training
    found it best; None if unknown: checkpoints of earlier versions do not store it.
    """

    path: Path
    updates: int
    run: Mapping[str, object]
    averaged: int = 0
    loss: float | None = None
    beside: Mapping[int, float] = field(default_factory=dict)
    stopped: bool = False
    text: str | None = None

    def is_validated_on(self, text: str | None) -> bool:
        """Return whether its losses belong to this validation text; True if either is unknown."""
        return None in (self.text, text) or self.text == text


# ---- to average -----------------------------------------------------------------------------


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """Return a training's checkpoints in a folder, one for each update, fewest updates first.

    checkpoint_last.pt and checkpoint_best.pt usually repeat another file: each update is returned
    once. A checkpoint that was saved only because the training was stopped is left out, so that
    the average does not depend on when it was stopped.

    Raises:
        UserError: one of them is an average.
        CheckpointError: one of them is damaged.
    """
    by_updates: dict[int, Checkpoint] = {}
    for path in sorted(filter(is_name_of_training, folder.glob("*.pt"))):
        checkpoint = describe_trained(path)
        if not checkpoint.stopped:
            by_updates.setdefault(checkpoint.updates, checkpoint)
    return [by_updates[number] for number in sorted(by_updates)]


def find_each(inputs: Sequence[str]) -> list[Checkpoint]:
    """Return the checkpoints with these file names, fewest updates first.

    Raises:
        UserError: there is no such file, one is an average, or two are from the same update.
    """
    for name in inputs:
        if not Path(name).is_file():
            raise UserError(f"there is no checkpoint '{name}': give a run, or checkpoint files")
    ordered = sorted((describe_trained(Path(name)) for name in inputs), key=lambda o: o.updates)
    for before, after in zip(ordered, ordered[1:], strict=False):
        if before.updates == after.updates:
            raise UserError(
                f"{before.path} and {after.path} are from the same update ({after.updates}) and "
                "would count twice: leave out one of the two"
            )
    return ordered


def is_name_of_training(path: Path) -> bool:
    """Return whether a file has a name that fairseq-train gives its checkpoints."""
    return bool(TRAINED.fullmatch(path.name))


def checkpoint_folder(name: str) -> Path | None:
    """Return a run's folder of checkpoints, from its path or its name under ./runs; or None.

    A folder that has checkpoints is preferred to another folder of the same name.
    """
    places = [place for run in Run.candidates(name) for place in (run.checkpoints, run.folder)]
    folders = [place for place in places if place.is_dir()]
    filled = [place for place in folders if any(map(is_name_of_training, place.glob("*.pt")))]
    return next(iter(filled + folders), None)


def check_one_run(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise UserError, naming the first option that differs, unless all are from one run."""
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for name in sorted(set(first.run) | set(other.run)):
            here, there = first.run.get(name), other.run.get(name)
            # an option that is missing did not exist yet when the run began: it was off
            if (here or None) != (there or None):
                raise UserError(
                    f"{first.path} and {other.path} are from different runs "
                    f"({name} is {here} and {there}): average checkpoints of one run"
                )


# ---- to decode ----------------------------------------------------------------------------------


def find_checkpoint(name: str) -> tuple[Path, Run]:
    """Find the checkpoint to decode with, and its run (or its folder, if it is in no run).

    Raises:
        UserError: there is no such run, or it has no checkpoint.
    """
    path = Path(name)
    if path.suffix == ".pt" or path.is_file():
        return path, Run.of_checkpoint(path)
    run = Run.find(name)
    return best_of_run(run), run


def best_of_run(run: Run) -> Path:
    """Return a run's checkpoint or average with the lowest validation loss, and print the choice.

    The losses are those that ``vaswani average`` wrote into the averages. Where one is missing, or
    belongs to another validation text than is there now, it is computed. If that is impossible,
    return the newest average, or the last checkpoint if there is no average.

    Raises:
        UserError: the run has no checkpoint.
    """
    averages = [describe(path) for path in run.averages()]
    newest = max(averages, key=attrgetter("updates", "averaged"), default=None)
    singles = singles_of_run(run)
    if newest is None and not singles:
        raise UserError(f"{run} has no checkpoint yet: train it with 'vaswani train'")
    if newest is None and len(singles) == 1:
        print(f"using {singles[0]} (the run has no average)", file=sys.stderr)
        return singles[0]
    try:
        candidates = averages + [describe(path) for path in singles]
        losses = losses_of(candidates, run)
        best = losses.index(min(losses))
        chosen = candidates[best]
        reason = f"lowest validation loss, {losses[best]:.4f}"
    except (CheckpointError, UserError) as error:
        chosen = newest or describe(singles[-1])
        what = "average" if newest else "checkpoint"
        reason = f"the newest {what}, because validation losses are unknown: {error}"
    print(f"using {chosen.path} ({reason})", file=sys.stderr)
    if chosen.averaged and last_to_average(run) > chosen.updates:
        print(
            f"warning: training continued after {chosen.path} was made: for a new average, run "
            f"'vaswani average {shlex.quote(str(run))}'",
            file=sys.stderr,
        )
    return chosen.path


def last_to_average(run: Run) -> int:
    """Return the updates of the last checkpoint of a run that ``vaswani average`` takes; 0 without
    one.
    """
    newest = [describe(run.last)] if run.last.is_file() else []
    if newest and newest[0].stopped:
        newest = checkpoints_in(run.checkpoints)
    return newest[-1].updates if newest else 0


def singles_of_run(run: Run) -> list[Path]:
    """Return the checkpoints to compare with averages: the best, else the last; or none.

    Both, if the best was found on another validation text than the run has now. If the last was
    saved only because the training was stopped, the newest other checkpoint replaces it.
    """
    last = run.last
    singles = [run.best] if run.best.is_file() else []
    if singles:
        now = text_validated_on(run.best, run)
        texts = {text_of(checkpoint_metadata(run.best)), now} - {None}
        if len(texts) < 2:
            return singles
    if not last.is_file():
        return singles
    if by_a_stop(checkpoint_metadata(last)):
        earlier = checkpoints_in(run.checkpoints)
        last = earlier[-1].path if earlier else last
    return [*singles, last]


def losses_of(candidates: Sequence[Checkpoint], run: Run) -> list[float]:
    """Return the validation losses of a run's averages and checkpoints: as stored, else computed.

    Raises:
        UserError, CheckpointError: one is not stored, and cannot be computed.
    """
    text = text_validated_on(candidates[0].path, run)
    if text is None and len({checkpoint.text for checkpoint in candidates} - {None}) > 1:
        raise UserError(
            "the checkpoints belong to different validation texts, and the data of the run have "
            "none of these texts"
        )
    beside: dict[int, float] = {}
    for checkpoint in candidates:
        if checkpoint.is_validated_on(text):
            beside.update(checkpoint.beside)
    losses: list[float] = []
    validation = None
    for checkpoint in candidates:
        own = checkpoint.loss if checkpoint.is_validated_on(text) else None
        loss = own if checkpoint.averaged else beside.get(checkpoint.updates)
        if loss is None:
            if validation is None:
                validation = Validation(checkpoint.path, run)
            loss = validation(load_checkpoint(checkpoint.path, mapped=True)["model"])
        losses.append(loss)
    return losses


# ---- what is inside -------------------------------------------------------------------------


def describe(path: Path) -> Checkpoint:
    """Read a checkpoint; raise CheckpointError or UserError if that is impossible."""
    state = checkpoint_metadata(path)
    updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    if updates is None:
        raise UserError(
            f"{path} does not say after how many updates it was saved: leave this checkpoint out"
        )
    averaged = len(state.get("averaged_updates", []))
    loss = state.get(OWN)
    beside = state.get(BESIDE, {})
    options = run_options(state)
    stopped = by_a_stop(state)
    return Checkpoint(path, updates, options, averaged, loss, beside, stopped, text_of(state))


def describe_trained(path: Path) -> Checkpoint:
    """Describe a checkpoint, as :func:`describe`; raise UserError if it is already an average."""
    checkpoint = describe(path)
    if checkpoint.averaged:
        raise UserError(f"{path} is already an average: give the checkpoints that it was made from")
    return checkpoint


def text_of(state: CheckpointState) -> str | None:
    """Return the hash of the validation text of a checkpoint's losses; None if unknown."""
    table = state if "averaged_updates" in state else state.get("task_state") or {}
    text: str | None = table.get(VALIDATION_TEXT)
    return text


def by_a_stop(state: CheckpointState) -> bool:
    """Return whether a checkpoint was saved only because the training was stopped."""
    return STOPPED in (state.get("extra_state") or {})


def run_options(state: CheckpointState) -> dict[str, object]:
    """Return a run's identity: the model's name and options, languages, dictionaries, and seed.

    fairseq's own architectures store all options of the command line as the model's; those that
    belong to another section (save_dir, max_update …) are left out, since a resumed run may change
    them.
    """
    cfg = state.get("cfg") or {}
    model = cfg.get("model") or state.get("args") or {}
    model = model if isinstance(model, dict) else getattr(model, "__dict__", {})
    sections = {name: part for name, part in cfg.items() if isinstance(part, dict)}
    elsewhere = {*cfg, *HOW_IT_COMPUTES, "_name", "arch"}
    for name, part in sections.items():
        if name != "model":
            elsewhere |= part.keys()
    options = {name: value for name, value in model.items() if name not in elsewhere}
    options["architecture"] = model.get("_name", model.get("arch"))
    for section, name in (("common", "seed"), ("task", "source_lang"), ("task", "target_lang")):
        options[name] = sections.get(section, {}).get(name)
    for side, digest in ((state.get("task_state") or {}).get(KEY) or {}).items():
        options[f"{side} dictionary"] = str(digest)[:12]
    return options
