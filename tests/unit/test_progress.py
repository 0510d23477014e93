"""What a training says of how far it is."""

import logging

import pytest

from vaswani.training.progress import TrainingProgress


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
