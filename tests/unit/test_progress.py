"""What a training says of how far it is."""

import io
import json
import sys

import pytest
from tqdm import tqdm

from vaswani.folders.run import Run
from vaswani.training import training_progress
from vaswani.training.training_progress import TrainingProgress, curve_points, numbers

DRAW_CURVE = training_progress.draw_curve  # which conftest.py leaves out


@pytest.fixture
def clock(monkeypatch):
    """Return the time in seconds, in a list that tests change."""
    now = [100.0]
    monkeypatch.setattr("vaswani.training.training_progress.time.monotonic", lambda: now[0])
    return now


def said(progress, tag, **stats):
    """Report numbers as fairseq's progress bar does: after an epoch with the set's name."""
    prefix = "" if tag == "train_inner" else f"{tag}_"
    progress.note(tag, numbers({prefix + key: value for key, value in stats.items()}))


def test_seconds_are_those_of_every_start(tmp_path, clock):
    run = Run(tmp_path)
    now = clock
    for updates, seconds in ((10, 60.0), (20, 5.0)):
        progress = TrainingProgress(run, max_update=20)
        now[0] += seconds
        said(progress, "train_inner", num_updates=str(updates))
        progress.close()
    assert progress.seconds() == 65.0
    assert [line["seconds"] for line in run.statistics()] == [60.0, 65.0]


@pytest.fixture
def shown(clock, monkeypatch):
    """Return the screen of a terminal with a bar, whose clock is ``clock``."""
    screen = io.StringIO()

    class Bar(tqdm):
        _time = property(lambda self: lambda: clock[0], lambda self, time: None)

    monkeypatch.setattr(
        "vaswani.training.training_progress.bar",
        lambda **o: Bar(file=screen, disable=False, ncols=90, **o),
    )
    return screen


def test_the_bars_rate_is_that_of_this_start_without_the_first_update(tmp_path, clock, shown):
    """tqdm took the 1,000 updates of before for those of its first second.

    "23:47:48 left" was the first update's time, with the compiler's, times those to come.
    """
    progress = TrainingProgress(Run(tmp_path), max_update=2000)
    clock[0] += 10  # the model is loaded
    progress.resume(1000)
    clock[0] += 30  # then the text
    progress.begin(1000)
    clock[0] += 90  # the first update compiles
    for update in range(1001, 1011):
        progress.begin(update)
        assert "left" not in progress.line()
        clock[0] += 0.5
        said(progress, "train_inner", num_updates=str(update))
    last = shown.getvalue().split("\r")[-1]
    assert "1010/2000 [" in last and "<" not in last, "no estimate of few updates"
    progress.begin(1011)
    said(progress, "train_inner", num_updates="1011")
    assert "1011/2000 [00:05<08:14,  2.00 updates/s]" in shown.getvalue().split("\r")[-1]
    assert progress.line() == "update 1,011 of 2,000 | 0:08:14 left"
    progress.close()


def test_without_a_terminal_a_line_comes_by_the_clock(tmp_path, clock, capsys):
    """Not only where fairseq logs, which may be after minutes; each value is shown once."""
    progress = TrainingProgress(Run(tmp_path), max_update=100)
    for update in range(25):
        progress.begin(update)
        clock[0] += 20
        if update == 19:
            said(progress, "train_inner", num_updates="20", loss="7.5", ppl="90.2", wps="1234")
            said(progress, "valid", num_updates="20", loss="6", ppl="64", bleu="1.5")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:4] == [
        "update 0",
        "update 2 of 100",
        "update 4 of 100",
        "update 6 of 100",
    ]
    assert lines[5:8] == [
        "update 10 of 100",
        "update 12 of 100 | 0:29:20 left",
        "update 14 of 100 | 0:28:40 left",
    ]
    values = "loss 7.50 | ppl 90.20 | wps 1,234"
    ended = lines.index(
        f"update 20 of 100 | {values} | valid_ppl 64.00 | valid_bleu 1.50 | 0:26:40 left"
    )
    assert lines[ended + 1] == f"update 22 of 100 | {values} | 0:26:00 left"
    assert "\n".join(lines).count("valid_ppl") == 1
    progress.close()


# ---- the curve --------------------------------------------------------------------------------


def write(log, *lines):
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_curve_of_a_resumed_run_has_each_update_once(tmp_path):
    """What followed its last checkpoint was done again; only the first validation set counts."""
    write(
        tmp_path / "train.jsonl",
        {"tag": "train_inner", "num_updates": 10, "loss": 9.0},
        {"tag": "valid", "valid_num_updates": 10, "valid_loss": 8.0},
        {"tag": "valid1", "valid1_num_updates": 10, "valid1_loss": 7.0},
        {"tag": "train_inner", "num_updates": 20, "loss": 6.0},
        {"tag": "resumed", "num_updates": 10},
        {"tag": "train_inner", "num_updates": 20, "loss": 5.0},
        {"tag": "valid", "valid_num_updates": 20, "valid_loss": 4.0, "valid_tokenised_bleu": 3.5},
    )
    assert curve_points(Run(tmp_path)) == {
        "training loss": [(10, 9.0), (20, 5.0)],
        "validation loss": [(10, 8.0), (20, 4.0)],
        "tokenised BLEU": [(20, 3.5)],
    }


@pytest.mark.parametrize("trouble", ["", "no matplotlib"])
def test_a_curve_that_cannot_be_drawn_is_said_once(trouble, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(training_progress, "draw_curve", DRAW_CURVE)
    if trouble:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    progress = TrainingProgress(Run(tmp_path), max_update=0)
    for updates in ("5", "10"):
        said(progress, "valid", loss="5", bleu="1.5", num_updates=updates)
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if "curve.png" in line]) == bool(trouble)
    assert (tmp_path / "curve.png").is_file() == (not trouble)
    assert len([*Run(tmp_path).statistics()]) == 2
