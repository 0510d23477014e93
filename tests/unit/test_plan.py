"""The plan of a large preparation, and the lines that follow it."""

from pathlib import Path

import pytest

from vaswani.common.progress import Bar, clock
from vaswani.data import plan
from vaswani.data.manifest import choose, read_manifest
from vaswani.data.recipe import find_recipe
from vaswani.data.steps import Job


def job(tmp_path: Path, name: str, workers: int) -> Job:
    """A job of a WMT14 recipe whose archives are not there."""
    recipe = find_recipe(name)[0]
    known = read_manifest("wmt14")
    parts = {split: choose(known, recipe.parts(split), name) for split in ("train", "test")}
    return Job(recipe, tmp_path / "data", workers, parts, tmp_path / "archives")


def test_the_download_is_what_the_manifest_says_less_what_is_there(tmp_path):
    """The larger of primary and mirror is counted; the test set's size is stated nowhere."""
    english_german = job(tmp_path, "wmt14_en_de", 2)
    total = 658_092_427 + 918_734_483 + 80_462_375
    assert (
        f"4 of 4 archives to {tmp_path}/archives, {total / 1e9:.1f} GB and 1 of unstated size"
        in (plan.plan(english_german, 4_508_785, ["raw", "text"]))
    )
    english_german.archives.mkdir()
    (english_german.archives / "training-parallel-commoncrawl.zip").touch()
    assert "3 of 4 archives" in plan.plan(english_german, 4_508_785, ["raw"])


def test_more_processes_take_less_time_and_more_memory():
    everything = ["raw", "text", "tok", "codes", "bpe", "data-bin"]
    one, sixteen = (plan.seconds(4_508_785, everything, workers) for workers in (1, 16))
    alone = plan.seconds(4_508_785, ["raw", "codes"], 1)
    assert one - alone == pytest.approx(16 * (sixteen - alone))
    assert plan.memory(10_000, 16) > plan.memory(10_000, 1)
    assert plan.memory(40_836_715, 1) < 5, "GB, whatever the size"
    assert plan.memory(10_000, 1, True) < plan.memory(10**6, 1, True) < 5
    assert plan.memory(10**6, 1, True) == plan.memory(10**7, 1, True)


def test_sentencepiece_learns_longer_but_not_without_end():
    pieces = ["text", "sentencepiece.bpe.model"]
    few, many, more = (plan.seconds(count, pieces, 1) for count in (4_000, 10**6, 2 * 10**6))
    assert few == pytest.approx(1 + 4_000 / 53_000)
    assert more - many == pytest.approx(10**6 / 53_000)


def test_too_little_room_is_said(tmp_path):
    english_german = job(tmp_path, "wmt14_en_de", 2)
    assert "warning" not in plan.plan(english_german, 1, ["text"])
    assert "warning: there is less space" in plan.plan(english_german, 10**12, ["text"])


def test_a_line_of_progress(monkeypatch):
    """The rate counts from the first piece: 30 pairs in 3 seconds, 60 to go."""
    from vaswani.common import progress

    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Bar("tokenise", 100) as shown:
        now[0] = 150.0
        shown.update(10)
        now[0] = 153.0
        shown.update(30)
        assert shown.line() == "tokenise: 40 of 100 pairs, 10 per second, 0:00:06 left"
    assert clock(3729) == "1:02:09"
