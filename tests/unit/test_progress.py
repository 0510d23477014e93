"""What a training says of how far it is."""

import io
import json
import logging
import sys

import pytest
from tqdm import tqdm

from vaswani.common.progress import bar
from vaswani.experiment import curve
from vaswani.experiment.run_record import statistics
from vaswani.experiment.training_progress import TrainingProgress

BEGIN = "Start iterating over samples"


def logged(progress, message, name="fairseq_cli.train"):
    """As fairseq logs."""
    progress.emit(logging.LogRecord(name, logging.INFO, "train.py", 1, message, (), None))


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, in a list."""
    now = [100.0]
    monkeypatch.setattr("vaswani.experiment.training_progress.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("updates", "left"), [(50, True), (100, False), (120, False)])
def test_the_time_left_is_never_below_zero(tmp_path, updates, left):
    """A run that has more updates than it is to have now: "-1:54:21 left"."""
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update=100)
    progress.start_at(10)
    logged(progress, BEGIN)
    progress.show("train_inner", {"num_updates": updates, "loss": 2.0})
    progress.close()
    logging.getLogger().removeHandler(progress)
    assert f"update {updates}" in progress.line()
    assert ("left" in progress.line()) == left


def said(progress, tag, **stats):
    """As fairseq's JSON progress bar logs: an end of an epoch under the name of its set."""
    prefix = "" if tag == "train_inner" else f"{tag}_"
    message = json.dumps({prefix + key: value for key, value in stats.items()})
    record = logging.LogRecord(tag, logging.INFO, "progress_bar.py", 1, message, (), None)
    progress.emit(record)


@pytest.mark.parametrize("tag", ["train", "valid", "test"])
def test_updates_since_the_last_line_of_the_log_are_counted(tmp_path, tag):
    """An epoch's end and every validation set say how many there were."""
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update=0)
    said(progress, "train_inner", loss="5.1", num_updates="200")
    said(progress, tag, loss="5", ppl="9.87", num_updates="250")
    progress.close()
    assert progress.last_update == 250
    assert (f"{tag}_ppl 9.87" in progress.line()) == (tag != "train")


def test_seconds_are_those_of_every_start(tmp_path, clock):
    log, now = tmp_path / "train.jsonl", clock
    for updates, seconds in ((10, 60.0), (20, 5.0)):
        progress = TrainingProgress(log, max_update=20)
        now[0] += seconds
        said(progress, "train_inner", num_updates=str(updates))
        progress.close()
    assert progress.seconds() == 65.0
    assert [line["seconds"] for line in statistics(log)] == [60.0, 65.0]


def resumed(progress, clock, updates=1000, before=300.0):
    """What is logged until the first update, in 40 seconds: loading the model, then the text."""
    clock[0] += 10
    logged(progress, f"Loaded checkpoint checkpoint_last.pt (epoch 3 @ {updates} updates)")
    logged(progress, f"trained for {before} seconds before", "vaswani.experiment.patience")
    clock[0] += 30
    logged(progress, BEGIN)


def test_after_resuming_rate_and_time_left_are_those_of_this_start(tmp_path, clock):
    """Neither the updates of before nor the seconds of loading count: 10 updates in 5 seconds."""
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update=2000)
    resumed(progress, clock)
    assert (
        progress.rate() == 0 and progress.left() == float("inf") and "left" not in progress.line()
    )
    clock[0] += 5
    said(progress, "train_inner", num_updates="1010")
    assert progress.rate() == 2 and "0:08:15 left" in progress.line()
    progress.close()


@pytest.fixture
def shown(clock, monkeypatch) -> io.StringIO:
    """What the bar shows, by the clock of the test."""
    shown = io.StringIO()

    class Bar(tqdm):
        _time = property(lambda self: lambda: clock[0], lambda self, time: None)

    monkeypatch.setattr(
        "vaswani.experiment.training_progress.bar",
        lambda **o: Bar(file=shown, disable=False, ncols=90, **o),
    )
    return shown


def test_the_bars_rate_is_that_of_this_start(tmp_path, clock, shown):
    """tqdm took the 1,000 updates of before for those of its first second."""
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update=2000)
    resumed(progress, clock)
    clock[0] += 5
    said(progress, "train_inner", num_updates="1010")
    last = shown.getvalue().split("\r")[-1]
    assert "1010/2000 [00:05<08:15,  2.00 updates/s]" in last
    progress.close()


def test_the_bars_time_left_is_the_means(tmp_path, clock, shown):
    """10 updates in 5 seconds, then, beside other work or a validation, 10 in 50."""
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update=2000)
    resumed(progress, clock)
    for seconds, update in ((5, 1010), (50, 1020)):
        clock[0] += seconds
        said(progress, "train_inner", num_updates=str(update))
    assert "1020/2000 [00:55<44:55," in shown.getvalue().split("\r")[-1]  # 980 · 55 / 20 seconds
    progress.close()


def test_seconds_an_update_are_written_as_they_are_read():
    shown = type(bar(disable=True)).format_meter(2, 10, 3.0, unit=" updates")
    assert "1.50s/updates" in shown


@pytest.mark.parametrize(
    ("max_update", "expected", "left"),
    [(0, 1540, "0:04:25"), (2000, 1540, "0:04:25"), (1100, 1100, "0:00:45")],
)
def test_the_hours_are_known(tmp_path, clock, max_update, expected, left):
    """600 seconds, of which 335 are gone, at 2 updates a second: the nearer limit counts."""
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update, hours=600 / 3600)
    resumed(progress, clock)
    clock[0] += 5
    said(progress, "train_inner", num_updates="1010")
    assert progress.bar.total == expected and f"{left} left" in progress.line()
    progress.close()


def test_hours_are_shown_before_the_first_update_is_done(tmp_path, clock):
    progress = TrainingProgress(tmp_path / "train.jsonl", 12_480, hours=0.1)
    logged(progress, BEGIN)
    assert "0:06:00 left" in progress.line() and progress.expected() == 12_480
    progress.close()


def test_training_begins_with_one_line(tmp_path, capsys):
    """Once, not in each epoch; and not if nothing is left to train."""
    progress = TrainingProgress(tmp_path / "train.jsonl", 100, opening="after {} updates".format)
    logged(progress, "Loaded checkpoint checkpoint_last.pt (epoch 3 @ 20 updates)")
    assert capsys.readouterr().err == ""
    logged(progress, BEGIN)
    logged(progress, BEGIN)
    assert capsys.readouterr().err == "after 20 updates\n"
    progress.close()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Stopping training due to num_updates: 7 >= max_update: 7", "max_update"),
        (
            "Stopping training due to cumulative_training_time: 2.1 > stop_time_hours: 2 hour(s)",
            "stop_time_hours",
        ),
        ("early stop since valid performance hasn't improved for last 3 runs", "patience"),
        (
            "stopping training because current learning rate (0.0) is smaller than or equal to "
            "minimum learning rate (--stop-min-lr=0.0)",
            "stop_min_lr",
        ),
        ("done training in 3.2 seconds", "max_epoch"),
    ],
)
def test_the_first_reason_counts(tmp_path, message, reason):
    """fairseq's own sentences; ``integration/test_trainings_end.py`` has each from fairseq."""
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update=0)
    logged(progress, message)
    if reason != "max_epoch":
        logged(progress, "early stop since valid performance hasn't improved for last 3 runs")
    progress.close()
    assert progress.summary()["reason"] == reason


# ---- the curve --------------------------------------------------------------------------------


def write(log, *lines):
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_curve_of_a_resumed_run_has_each_update_once(tmp_path):
    """What followed its last checkpoint was done again; only the first validation set counts."""
    write(
        log := tmp_path / "train.jsonl",
        {"tag": "train_inner", "seconds": 60, "num_updates": 10, "loss": 9.0},
        {"tag": "valid", "seconds": 90, "valid_num_updates": 10, "valid_loss": 8.0},
        {"tag": "valid1", "seconds": 90, "valid1_num_updates": 10, "valid1_loss": 7.0},
        {"tag": "train_inner", "seconds": 120, "num_updates": 20, "loss": 6.0},
        {"tag": "resumed", "seconds": 130, "num_updates": 10},
        {"tag": "train_inner", "seconds": 150, "num_updates": 20, "loss": 5.0},
        {"tag": "valid", "valid_num_updates": 20, "valid_loss": 4.0, "valid_tokenised_bleu": 3.5},
    )
    assert curve.points(log) == {
        "training loss": [(10, 1.0, 9.0), (20, 2.5, 5.0)],
        "validation loss": [(10, 1.5, 8.0), (20, 0.0, 4.0)],
        "tokenised BLEU": [(20, 0.0, 3.5)],
    }


@pytest.mark.parametrize("trouble", [None, "no matplotlib", "a folder in the way"])
def test_a_curve_that_cannot_be_drawn_is_said_once(trouble, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    if trouble == "no matplotlib":
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    elif trouble:
        (tmp_path / "curve.png").mkdir()
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update=0)
    for updates in ("5", "10"):
        said(progress, "valid", loss="5", bleu="1.5", num_updates=updates)
    progress.close()
    found = [line for line in capsys.readouterr().err.splitlines() if "curve.png" in line]
    assert len(found) == bool(trouble)
    assert not trouble or ("pip install matplotlib" in found[0]) == (trouble == "no matplotlib")
    if not trouble:
        assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert len([*statistics(tmp_path / "train.jsonl")]) == 2
    assert not [*tmp_path.glob(".curve*")]


def test_a_line_of_progress(monkeypatch):
    """The rate counts from the first piece: 30 pairs in 3 seconds, 60 to go."""
    from vaswani.common import progress
    from vaswani.common.progress import Bar

    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Bar("tokenise", 100) as shown:
        now[0] = 150.0
        shown.update(10)
        now[0] = 153.0
        shown.update(30)
        assert shown.line() == "tokenise: 40 of 100 pairs, 10 per second, 0:00:06 left"
    assert progress.clock(3729) == "1:02:09"
