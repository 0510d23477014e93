"""The harness: its arithmetic, its tables, its processes. What it measures is not tested."""

import json
import os

import pytest

from benchmarks import compare as comparing
from benchmarks.decode import Configuration, Team, configurations, swept
from benchmarks.decoding import Translated
from benchmarks.run import main, record_name
from benchmarks.table import compare, markdown, middle
from benchmarks.worker import Worker, WorkerError


def test_ratio_is_taken_round_by_round():
    """A machine that is twice as slow in the second round changes no ratio."""
    rounds = {
        "theirs": [{"tokens": 100, "seconds": 2.0}, {"tokens": 100, "seconds": 4.0}],
        "ours": [{"tokens": 100, "seconds": 1.0}, {"tokens": 100, "seconds": 2.0}],
    }
    theirs, ours = compare(rounds)
    assert theirs["ratio"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert ours["ratio"] == {"median": 2.0, "min": 2.0, "max": 2.0}
    assert ours["tokens/s"] == {"median": 75.0, "min": 50.0, "max": 100.0}
    assert middle([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0}


def test_table():
    """Rows may differ in what they tell; a spread is one cell."""
    rows = [{"system": "a", "ratio": middle([1.0, 1.5, 1.25])}, {"system": "b", "MB": 1234.5}]
    assert markdown(rows).splitlines() == [
        "| system | ratio | MB |",
        "|---|---|---|",
        "| a | 1.25 (1–1.5) | – |",
        "| b | – | 1,234 |",
    ]


class Thing:
    """Lives in another process."""

    def __init__(self, size: int) -> None:
        self.size = size

    def grown(self, by: int) -> int:
        self.size += by
        return self.size

    def variable(self, name: str) -> str:
        return os.environ[name]

    def fail(self) -> None:
        raise ValueError("it broke")


def test_worker():
    """It keeps its state, has its own environment, and tells what went wrong in it."""
    worker = Worker(Thing, {"size": 1}, {"SOME_VARIABLE": "there"})
    assert [worker.ask("grown", 2), worker.ask("grown", 3)] == [3, 6]
    assert worker.ask("variable", "SOME_VARIABLE") == "there"
    assert "SOME_VARIABLE" not in os.environ
    with pytest.raises(WorkerError, match="it broke"):
        worker.ask("fail")
    assert worker.ask("grown", 0) == 6
    worker.end()


class Slow:
    """Translates a sentence into its number; its time is that of the clock it is told."""

    def prepare(self, size: int, count: int, share: int, shares: int) -> None:
        self.share, self.mine = share, range(count)[share::shares]

    def translate(self) -> Translated:
        return Translated(10.0 + self.share, 20.0 * (1 + self.share), {n: [n] for n in self.mine})

    def peak_megabytes(self) -> float:
        return 10.0 * float(os.environ["OMP_NUM_THREADS"])


def test_a_team_translates_shares_of_the_same_sentences():
    """Its time is from the first begin to the last end; each process has its threads."""
    team = Team(Slow, {}, Configuration(threads=3, workers=2))
    found = team.translate(1, 5)
    assert found == {"seconds": 30.0, "tokens": 5, "hypotheses": [[0], [1], [2], [3], [4]]}
    assert team.peak_megabytes() == 60
    team.end()


def test_cores_are_used_as_is_best_for_each_system():
    """All on one batch, one alone, a worker each; on a GPU there is nothing to try."""
    assert configurations("cpu", 4) == [(4, 1), (1, 1), (1, 4)]
    assert configurations("cpu", 1) == [(1, 1)]
    assert configurations("cuda", 4) == [(4, 1)]

    class Timed:
        def __init__(self, seconds):
            self.found = {"tokens": 12, "seconds": seconds}

        def translate(self, size, count):
            return self.found

    tried = configurations("cpu", 4)
    teams = {
        name: {how: Timed(seconds) for how, seconds in zip(tried, times, strict=True)}
        for name, times in {"threads": (1, 4, 2), "workers": (3, 4, 2)}.items()
    }
    best, rows = swept(teams, tried, 32, 200)
    assert best == {"threads": (4, 1), "workers": (1, 4)}
    assert rows[1] == {"batch": 32, "system": "workers", "4 × 1": 4, "1 × 1": 3, "1 × 4": 6}


def test_name_of_a_record():
    """Hardware, date, and what was measured if not all was."""
    facts = {"device": "cpu", "cpu": "Intel(R) Xeon(R) CPU @ 2.70GHz", "gpus": [], "cores": 2}
    facts["time"] = "2026-11-21T10:00:00Z"
    assert record_name(facts, ["train"]) == "intel-xeon-cpu-2cpu_2026-11-21_train"
    facts.update(device="cuda", gpus=["NVIDIA H200"])
    assert record_name(facts, ["train", "decode", "scaling", "loss"]) == "nvidia-h200_2026-11-21"


def test_unknown_benchmark(capsys):
    """Named, with those that there are; nothing is measured."""
    assert main(["speed"]) == 2
    assert "train, decode, scaling, loss" in capsys.readouterr().err


def test_two_records(tmp_path, capsys):
    """Rows are matched by what they are; what only one record has is left out."""
    for name, ratio in (("old", 1.0), ("new", 1.5)):
        rows = [{"work": "base", "system": "ours", "ratio": middle([ratio])}]
        rows.append({"work": name, "system": "ours", "ratio": middle([9.0])})
        record = {"machine": {}, "results": {"train": {"rows": rows}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    comparing.main([str(tmp_path / "old.json"), str(tmp_path / "new.json")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["| train base ours | 1 | 1.5 | 1.5 |"]
    with pytest.raises(SystemExit, match="is no record of python -m benchmarks.run"):
        comparing.main([str(tmp_path / "old.json"), str(tmp_path / "missing.json")])
