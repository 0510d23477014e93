"""The harness: its arithmetic, its tables, its processes. What it measures is not tested."""

import gzip
import json
import os
from pathlib import Path

import pytest

from benchmarks import compare as comparing
from benchmarks import gpu_check
from benchmarks.curves import Group, Log, read_log, row_of, updates_to
from benchmarks.decode import Configuration, Team, configurations, sweep
from benchmarks.decoding import Translated
from benchmarks.machine import machine, precisions
from benchmarks.run import main, record_name, report
from benchmarks.systems import TRAINED, TRAINED_ON_GPU, TUNED, measurable, precision_of
from benchmarks.table import compare, markdown, median_and_range
from benchmarks.worker import Worker, WorkerError
from vaswani.common.environment import cpu_name


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
    references = {"ratio": "ours", "ratio to a third": "a third"}
    assert compare(rounds, references)[0]["ratio"]["median"] == 0.5
    assert "ratio to a third" not in compare(rounds, references)[0]
    assert median_and_range([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0}


def test_table():
    """Rows may differ in what they tell; a spread is one cell."""
    ratio = median_and_range([1.0, 1.5, 1.25])
    rows = [{"system": "a", "ratio": ratio}, {"system": "b", "MB": 1234.5}]
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

    def prepare(self, size: int, count: int, threads: int, share: int, shares: int) -> None:
        self.threads, self.share, self.mine = threads, share, range(count)[share::shares]

    def translate(self) -> Translated:
        return Translated(10.0 + self.share, 20.0 * (1 + self.share), {n: [n] for n in self.mine})

    def peak_megabytes(self) -> float:
        return 10.0 * self.threads


def test_a_team_translates_shares_of_the_same_sentences():
    """Its time is from the first begin to the last end of those that are at work."""
    team, both, alone = Team(Slow, {}, cores=2), Configuration(1, 2), Configuration(2, 1)
    found = {"seconds": 30.0, "tokens": 5, "hypotheses": [[0], [1], [2], [3], [4]]}
    assert team.translate(both, 1, 5) == found and team.peak_megabytes(both) == 20
    assert team.translate(alone, 1, 5) == {**found, "seconds": 10.0}
    assert team.peak_megabytes(alone) == 20
    team.end()


def test_cores_are_used_as_is_best_for_each_system():
    """All on one batch, one alone, a worker each; on a GPU there is nothing to try."""
    assert configurations("cpu", 4) == [(4, 1), (1, 1), (1, 4)]
    assert configurations("cpu", 1) == [(1, 1)]
    assert configurations("cuda", 4) == [(4, 1)]

    class Timed:
        def __init__(self, *times):
            self.seconds = dict(zip(tried, times, strict=True))

        def translate(self, how, size, count):
            return {"tokens": 12, "seconds": self.seconds[how]}

    tried = configurations("cpu", 4)
    teams = {"threads": Timed(1, 4, 2), "workers": Timed(3, 4, 2)}
    best, rows = sweep(teams, tried, 32, 200)
    assert best == {"threads": (4, 1), "workers": (1, 4)}
    assert rows[1] == {"batch": 32, "system": "workers", "4 × 1": 4, "1 × 1": 3, "1 × 4": 6}


def test_name_of_a_record():
    """Hardware, date, and what was measured if not all was."""
    facts = {"device": "cpu", "cpu": "Intel(R) Xeon(R) CPU @ 2.70GHz", "gpus": [], "cores": 2}
    facts["time"] = "2026-11-21T10:00:00Z"
    assert record_name(facts, ["train"]) == "intel-xeon-cpu-2cpu_2026-11-21_train"
    facts["cpu"] = "Intel(R) Xeon(R) CPU @ 2.70GHz, family 6 model 143"
    name = "intel-xeon-cpu-family-6-model-143-2cpu_2026-11-21_train"
    assert record_name(facts, ["train"]) == name
    facts.update(device="cuda", gpus=["NVIDIA H200"])
    assert record_name(facts, ["train", "decode", "scaling", "loss"]) == "nvidia-h200_2026-11-21"


@pytest.mark.parametrize(
    "facts, expected",
    [
        ("cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC", "AMD EPYC, family 25 model 17"),
        ("model name\t: Cortex", "Cortex"),
        ("CPU implementer\t: 0x41", "a machine"),
    ],
)
def test_name_of_a_processor(facts, expected, monkeypatch):
    """Its model name, and what tells generations of one name apart, as far as the system tells."""
    monkeypatch.setattr(Path, "read_text", lambda *args, **kwargs: facts)
    monkeypatch.setattr("platform.processor", lambda: "a machine")
    assert cpu_name() == expected


def test_unknown_benchmark(capsys):
    """Named, with those that there are; nothing is measured."""
    assert main(["speed"]) == 2
    assert "train, decode, scaling, loss" in capsys.readouterr().err


def test_without_bf16_units_nothing_is_measured_in_it(monkeypatch):
    """Emulated, it takes many times as long; the record says so. fp16 is for GPUs."""
    units = {"cpu": False, "cuda": True}
    monkeypatch.setattr("vaswani_transformer.precision.has_bf16_units", units.__getitem__)
    both_ways = [f"{name}{tuned}" for tuned in ("", TUNED) for name in ("fairseq", "ours")]
    assert list(measurable(TRAINED, "cpu")) == both_ways
    on_gpu = list(measurable({**TRAINED, **TRAINED_ON_GPU}, "cuda"))
    assert on_gpu == [name for name in TRAINED if TUNED not in name] + list(TRAINED_ON_GPU)
    assert precision_of("fairseq --fp16") == "fp16"
    facts = {**machine("cpu"), "command": "", "threads_used": 1, "data": ""}
    facts["precisions"] = precisions("cpu")
    without = "Without systems in bf16"
    assert without in report(facts, {}, "record")
    assert without not in report({**facts, "precisions": ["fp32", "bf16"]}, {}, "record")


def test_no_gpu_to_measure(monkeypatch, capsys):
    """A sentence before anything is prepared."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert main(["train", "--device", "cuda"]) == 2
    assert "torch finds no GPU here" in capsys.readouterr().err
    assert gpu_check.main([]) == 2
    assert "--device cpu" in capsys.readouterr().err


def test_the_check_of_a_gpu_goes_on_after_a_failure(tmp_path, monkeypatch, tiny_data_bin, capsys):
    """And keeps what was measured: ten minutes on somebody else's machine."""

    def works(*_):
        return {"work": "small", "rows": [{"system": "ours", "tokens/s": 3.0}]}

    def fails(*_):
        raise WorkerError("Traceback …\ntorch.OutOfMemoryError: CUDA out of memory")

    monkeypatch.setattr(gpu_check, "SECTIONS", {"training": works, "a": fails, "b": works})
    given = ["--device", "cpu", "--data", str(tiny_data_bin), "--out", str(tmp_path)]
    assert gpu_check.main(given) == 1
    (record,) = tmp_path.glob("*_gpu_check.json")
    results = json.loads(record.read_text())["results"]
    assert [len(results[name]["rows"]) for name in ("training", "a", "b")] == [1, 0, 1]
    assert "- failed: a: torch.OutOfMemoryError: CUDA out of memory" in capsys.readouterr().out


@pytest.mark.slow
def test_the_check_of_a_gpu_on_a_cpu(tmp_path, tiny_data_bin):
    """All of it, with tiny sizes, but for --compile."""
    given = ["--device", "cpu", "--data", str(tiny_data_bin), "--out", str(tmp_path)]
    assert gpu_check.main(given) == 0
    (record,) = tmp_path.glob("*_gpu_check.json")
    results = json.loads(record.read_text())["results"]
    assert {"fairseq", "ours", "ours, TF32"} <= {r["system"] for r in results["training"]["rows"]}
    assert all(kernels for kernels in results["training"]["kernels"].values())
    assert {row["batch"] for row in results["decoding"]["rows"]} == {1, 32, 128}
    assert results["resuming"]["rows"][0]["largest difference of a weight"] == 0
    assert results["resuming"]["said"][1].startswith("continuing at update 2 on the CPU in ")


def test_two_records(tmp_path, capsys):
    """Rows are matched by what they are; what only one record has is left out."""
    for name, ratio in (("old", 1.0), ("new", 1.5)):
        rows = [{"work": "base", "system": "ours", "ratio": median_and_range([ratio])}]
        rows.append({"work": name, "system": "ours", "ratio": median_and_range([9.0])})
        record = {"machine": {}, "results": {"train": {"rows": rows}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    comparing.main([str(tmp_path / "old.json"), str(tmp_path / "new.json")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["| train base ours | 1 | 1.5 | 1.5 |"]
    with pytest.raises(SystemExit, match="is no record of python -m benchmarks.run"):
        comparing.main([str(tmp_path / "old.json"), str(tmp_path / "missing.json")])


# --- what is learned ----------------------------------------------------------------------------

CURVE = {100: 4.0, 200: 3.5, 300: 2.5}


@pytest.mark.parametrize(
    ("target", "updates"),
    [(4.5, 100), (4.0, 100), (3.75, 150), (3.0, 250), (2.5, 300), (2.4, None)],
)
def test_updates_to_a_validation_nll(target, updates):
    """Linear between validations; a curve that never comes so far has none."""
    assert updates_to(target, CURVE) == updates


def test_a_curve_that_rises_again_has_reached_its_value():
    assert updates_to(3.0, {1: 4.0, 3: 2.0, 4: 5.0, 5: 1.0}) == 2


def logged(folder: Path, name: str, curve: dict, tokens: float) -> Path:
    """A log as fairseq writes it (.gz), or as ``vaswani train`` does."""
    lines = [
        json.dumps({"valid_nll_loss": str(nll), "valid_num_updates": str(update)})
        for update, nll in curve.items()
    ]
    lines.append(json.dumps({"train_wpb": tokens, "train_num_updates": 9}))
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".gz"):
        head = "2026-11-21 01:48:22 | INFO | valid | "
        first = "| INFO | fairseq_cli.train | {'_name': None}"
        with gzip.open(path, "wt", encoding="utf-8") as stream:
            stream.write("\n".join([first, *(head + line for line in lines)]))
    else:
        path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["fairseq_train.log.gz", "run/train.jsonl"])
def test_a_log_is_read(name, tmp_path):
    """A run's folder stands for its train.jsonl; updates are in order whatever the lines'."""
    path = logged(tmp_path, name, {200: 3.5, 100: 4.0, 300: 2.5}, 700.0)
    log = read_log(path.parent if name.startswith("run") else path)
    assert list(log.curve.items()) == list(CURVE.items()) and log.tokens == 700


def test_rows_tell_updates_and_seconds_over_the_seeds():
    """Two seeds: 250 and 350 updates of 700 tokens, at 1,400 tokens a second."""
    logs = [Log(CURVE, 700), Log({u + 100: nll for u, nll in CURVE.items()}, 700)]
    row = row_of(Group("ours", logs, 1400.0))
    assert row["updates to 3.0"] == {"median": 300, "min": 250, "max": 350}
    assert row["seconds to 3.0"] == {"median": 150, "min": 125, "max": 175}
    assert row["seeds"] == 2 and row["lowest nll"]["median"] == 2.5
    logs[1] = Log({100: 3.9}, 700)
    row = row_of(Group("ours", logs, None))
    assert row["updates to 3.0"] == "by 1 of 2" and row["seconds to 3.0"] is None


@pytest.fixture
def table(tmp_path) -> Path:
    """Groups of logs, and a record of how fast two systems are."""
    for seed in (1, 2):
        logged(tmp_path, f"a_s{seed}/train.jsonl", {u + seed: n for u, n in CURVE.items()}, 700.0)
    logged(tmp_path, "theirs.log.gz", CURVE, 700.0)
    rows = [
        {"work": work, "system": system, "tokens/s": median_and_range([speed])}
        for work, speed in (("tiny", 1400.0), ("big", 7.0))
        for system in ("fairseq", "ours, bf16")
    ]
    record = {"machine": {}, "results": {"train": {"rows": rows}}}
    (tmp_path / "record.json").write_text(json.dumps(record), encoding="utf-8")
    text = "record: record.json\nwork: tiny\ngroups:\n  fairseq: theirs.log.gz\n"
    text += '  ours: {logs: "a_s*/train.jsonl", system: "ours, bf16"}\n'
    (tmp_path / "groups.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "groups.yaml"


def test_record_of_learning(table, tmp_path, capsys):
    """JSON, Markdown and a picture."""
    assert main(["learning", str(table), "--out", str(tmp_path / "out")]) == 0
    made = {path.suffix: path for path in (tmp_path / "out").iterdir()}
    assert set(made) == {".json", ".md", ".png"}
    result = json.loads(made[".json"].read_text(encoding="utf-8"))["results"]["learning"]
    theirs, ours = result["rows"]
    assert theirs["seconds to 3.0"] == 125 and ours["seconds to 3.0"]["median"] == 125.75
    assert theirs["seconds to 2.6"] == 145
    assert result["curves"] == {"fairseq": {str(u): nll for u, nll in CURVE.items()}, "ours": {}}
    text = made[".md"].read_text(encoding="utf-8")
    assert "| 300 | 2.50 | – |" in text and ".png)" in text
    assert capsys.readouterr().out in text or "| fairseq | 1 |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--work", "tinny"], "has no training 'tinny' (did you mean 'tiny'?)"),
        (["--record", "groups.yaml"], "groups.yaml is no record of 'make bench BENCH=train'"),
        (["record.json"], "groups.yaml is a table of logs: give it alone"),
    ],
)
def test_what_is_wrong_with_a_table_of_logs_is_one_sentence(
    arguments, message, table, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["learning", "groups.yaml", *arguments, "--out", "out"]) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not Path("out").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.log", None, "none.log: No such file"),
        ("empty.log", "nothing\n", "empty.log has no validation and epoch in fairseq's form"),
        ("bad.gz", "no gzip", "bad.gz: Not a gzipped file"),
        ("a.yaml", "groups: {a: none_*.log}", "a.yaml, 'a': there is no log none_*.log"),
        ("b.yaml", "logs: {a: b}", "b.yaml should have 'groups: LABEL: LOGS'"),
    ],
)
def test_what_is_wrong_with_a_log_is_one_sentence(
    name, text, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    if text:
        Path(name).write_text(text, encoding="utf-8")
    assert main(["learning", name, "--out", "out"]) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
