"""What a training says of how far it is."""

import json
import logging

import pytest

from vaswani.training.progress import TrainingProgress
from vaswani.training.run_record import statistics


@pytest.mark.parametrize(("updates", "left"), [(50, True), (100, False), (120, False)])
def test_the_time_left_is_never_below_zero(tmp_path, updates, left):
    """A run that has more updates than it is to have now: "-1:54:21 left"."""
    progress = TrainingProgress(tmp_path / "train.jsonl", max_update=100)
    progress.start_at(10)
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


def test_seconds_are_those_of_every_start(tmp_path, monkeypatch):
    log, now = tmp_path / "train.jsonl", [100.0]
    monkeypatch.setattr("vaswani.training.progress.time.monotonic", lambda: now[0])
    for updates, seconds in ((10, 60.0), (20, 5.0)):
        progress = TrainingProgress(log, max_update=20)
        now[0] += seconds
        said(progress, "train_inner", num_updates=str(updates))
        progress.close()
    assert progress.seconds() == 65.0
    assert [line["seconds"] for line in statistics(log)] == [60.0, 65.0]
