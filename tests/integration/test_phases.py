"""``checkpoint.reset_optimizer=true`` in a run's folder: the checkpoints before it are kept."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests import stock
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.folders.run import Run
from vaswani.training import phases

RUN = Path("runs/small")
CHECKPOINTS, PHASE = RUN / "checkpoints", RUN / "checkpoints" / "phase-1"
#: saved at updates 2 (where an epoch ends), 4 and 5
RESET = ("train", "small", "checkpoint.reset_optimizer=true", "optimization.max_update=5")


class Killed(Exception):
    """The process ends here, with nothing more written."""


def contents(folder: Path) -> dict[str, bytes]:
    """Return the checkpoints in a folder, and finished.json, by name."""
    files = [*folder.glob("checkpoint*.pt"), *folder.glob("finished.json")]
    return {path.name: path.read_bytes() for path in files}


def before_reset() -> dict[str, bytes]:
    """Return the checkpoints of the run, and its finished.json."""
    return contents(CHECKPOINTS) | contents(RUN)


def resumed_at() -> list[int]:
    """Return the updates at which the run was continued."""
    lines = map(json.loads, (RUN / "train.jsonl").read_text().splitlines())
    return [line["num_updates"] for line in lines if line["tag"] == "resumed"]


def kill_at(patch, owner: object, name: str, call: int = 1) -> None:
    """End the process where a function is called for that time."""
    function = getattr(owner, name)
    calls = []

    def call_or_end(*arguments, **options):
        calls.append(name)
        if len(calls) == call:
            raise Killed
        return function(*arguments, **options)

    patch.setattr(owner, name, call_or_end)


def test_a_reset_keeps_the_checkpoints_before_it_apart(own_run, cli):
    """The fewest checkpoints are kept, of which the earlier ones would be the newest."""
    assert cli("average", "small", "--last", "2").code == 0
    before = before_reset()
    assert {"checkpoint_average_last2.pt", "finished.json", "checkpoint_2_6.pt"} <= set(before)
    reset = (*RESET, "checkpoint.keep_interval_updates=1")
    assert f"reset_optimizer are now in {PHASE}" in cli(*reset).err
    assert contents(PHASE) == before
    of_the_new_phase = {"checkpoint_3_4.pt", "checkpoint_best.pt", "checkpoint_last.pt"}
    assert set(contents(CHECKPOINTS)) == of_the_new_phase
    assert "already trained, 5 updates" in cli(*reset).err and resumed_at() == [0]


def test_every_command_looks_at_the_current_phase(own_run, cli):
    assert cli("average", "small", "--last", "2").code == 0
    assert cli(*RESET).code == 0
    assert "(updates 4, 5)" in cli("average", "small", "--last", "2").out
    used = cli("generate", "small").err
    assert f"using {CHECKPOINTS}/checkpoint" in used and "phase-1" not in used
    packed = cli("pack", "small", "--out", "packed")
    assert packed.code == 0
    config = json.loads(Path("packed/config.json").read_text())
    assert config["origin"]["updates"] in (2, 4, 5)
    (CHECKPOINTS / "checkpoint_last.pt").unlink()
    assert cli(*RESET[:-1], "optimization.max_update=7").code == 0
    assert resumed_at()[-1] in (4, 5), "the newest of this phase, which the best may be"


def test_checkpoints_of_an_earlier_phase_can_be_named(own_run, cli):
    assert cli(*RESET).code == 0
    assert "(updates 2, 6)" in cli("average", PHASE, "--last", "2").out
    assert cli("generate", PHASE / "checkpoint_average_last2.pt").code == 0
    assert not (RUN / "eval").exists() and (PHASE / "eval").is_dir()


def test_phases_are_numbered(own_run, cli):
    """Without the option in between, the next reset begins the third phase."""
    assert cli(*RESET).code == 0
    assert cli("train", "small").code == 0
    second = before_reset()
    assert cli(*RESET).code == 0
    assert contents(CHECKPOINTS / "phase-2") == second
    assert resumed_at() == [0, 5, 0]


def test_a_reset_of_a_run_that_has_ended_trains_it_again(own_run, cli):
    """With the same last update, which is counted from 0."""
    again = ("train", "small", "checkpoint.reset_optimizer=true")
    assert "already trained" not in cli(*again).err
    assert contents(PHASE) and resumed_at() == [0]
    assert json.loads((RUN / "finished.json").read_text())["num_updates"] == 6
    assert "already trained, 6 updates" in cli(*again).err


GOES_ON = ("train", "small", "optimization.max_update=8")


@pytest.fixture(scope="module")
def unbroken(trained_workplace, tmp_path_factory):
    """Run each command alone, and return command → the checkpoints of its run."""
    folders = {}
    for command in (RESET, GOES_ON):
        place = tmp_path_factory.mktemp("unbroken")
        for name in ("configs", "data", "runs"):
            shutil.copytree(trained_workplace / name, place / name)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            assert stock.vaswani(*command) == 0
        folders[command] = place / CHECKPOINTS
    return folders


@pytest.mark.parametrize(
    ("call", "command"),
    [
        (1, RESET),
        pytest.param(1, GOES_ON, marks=pytest.mark.slow),
        pytest.param(3, RESET, marks=pytest.mark.slow),
        (3, GOES_ON),
        ("last", RESET),
        pytest.param("last", GOES_ON, marks=pytest.mark.slow),
        pytest.param("save", RESET, marks=pytest.mark.slow),
        ("save", GOES_ON),
    ],
)
def test_a_stop_in_the_middle_of_the_move_loses_nothing(own_run, cli, call, command, unbroken):
    """Whether the same command follows, or one that goes on with the earlier phase."""
    from fairseq.trainer import Trainer

    before = before_reset()
    with pytest.MonkeyPatch.context() as patch:
        if call == "save":
            kill_at(patch, Trainer, "save_checkpoint")
        else:
            kill_at(patch, phases, "move", len(before) + 1 if call == "last" else call)
        with pytest.raises(Killed):
            cli(*RESET)
    places = [RUN, CHECKPOINTS, PHASE, CHECKPOINTS / phases.MOVING]
    left: dict[str, bytes] = {}
    for place in places:
        left |= contents(place)
    assert left == before
    ended = cli(*command)
    assert ended.code == 0, ended.err
    ours = CHECKPOINTS
    theirs = unbroken[command]
    names = sorted(str(path.relative_to(ours)) for path in ours.rglob("*"))
    assert names == sorted(str(path.relative_to(theirs)) for path in theirs.rglob("*"))
    for name in (name for name in names if name.endswith(".pt")):
        parameters = load_checkpoint(ours / name)["model"]
        for key, tensor in load_checkpoint(theirs / name)["model"].items():
            assert torch.equal(tensor, parameters[key])


def test_a_reset_that_saves_nothing_leaves_the_run_as_it_was(own_run, cli):
    before = before_reset()
    ended = cli(*RESET, "lr_scheduler.lr_factor=1e30")
    assert ended.code == 1 and f"last good checkpoint: {CHECKPOINTS}/" in ended.err
    assert before_reset() == before and not PHASE.exists()


def test_nothing_is_replaced_where_a_phase_moves_back(own_run):
    """For example an average of the new phase, of which the checkpoints were deleted."""
    before = before_reset()
    phases.begin_phase(Run(RUN))
    (CHECKPOINTS / "checkpoint_average_last2.pt").write_bytes(b"new")
    (PHASE / "checkpoint_average_last2.pt").write_bytes(b"earlier")
    phases.return_to_earlier_phase(Run(RUN))
    assert before_reset() == {**before, "checkpoint_average_last2.pt": b"new"}
    assert contents(PHASE) == {"checkpoint_average_last2.pt": b"earlier"}
