"""The arithmetic of the benchmarks. What they measure is not tested."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu_record import BenchmarkRecord
from benchmarks.gpu_training import compare_with_fairseq, kernels_of
from benchmarks.gpu_training import row_of as gpu_row_of
from benchmarks.joined_text import join_sentences
from benchmarks.paper_training import PaperTraining
from benchmarks.systems import FAIRSEQ_FLAGS, VASWANI_FLAGS, size_flags
from benchmarks.table import markdown, median_and_range, speed_rows
from benchmarks.train import Training
from benchmarks.worker import Worker, WorkerError, deadline, seconds_left
from tests import stock


def test_ratio_is_taken_round_by_round():
    """A machine that is twice as slow in the second round changes no ratio."""
    rounds = {
        "theirs": [{"tokens": 100, "seconds": 2.0}, {"tokens": 100, "seconds": 4.0}],
        "ours": [{"tokens": 100, "seconds": 1.0}, {"tokens": 100, "seconds": 2.0}],
    }
    theirs, ours = speed_rows(rounds)
    assert theirs["ratio"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert ours["ratio"] == {"median": 2.0, "min": 2.0, "max": 2.0}
    assert ours["tokens/s"] == {"median": 75.0, "min": 50.0, "max": 100.0}


def test_a_spread_is_one_cell_and_a_missing_figure_a_dash():
    ratio = median_and_range([1.0, 1.5, 1.25])
    rows = [{"system": "a", "ratio": ratio}, {"system": "b", "MB": 1234.5}]
    cells = ["| a | 1.25 (1–1.5) | – |", "| b | – | 1,234 |"]
    assert markdown(rows).splitlines()[2:] == cells


def event(name, device, count, microseconds, scope=0, **more):
    """Return a stand-in for a sum of torch's profiler."""
    kind = SimpleNamespace(name=device)
    times = {"self_device_time_total": microseconds, "self_cpu_time_total": microseconds}
    return SimpleNamespace(key=name, device_type=kind, count=count, scope=scope, **times, **more)


@pytest.mark.parametrize("marked", [True, False], ids=["torch 2.6", "torch 2.2"])
def test_ranges_copies_and_fills_are_no_kernels(marked):
    """A range has a part on the GPU, as long as all kernels in it; torch 2.2 does not mark it."""
    mark = {"is_user_annotation": True} if marked else {}
    no_mark = {"is_user_annotation": False} if marked else {}
    events = [
        event("forward", "CPU", 2, 9000.0, scope=7, **mark),
        event("aten::mm", "CPU", 6, 500.0, **no_mark),
        event("forward", "CUDA", 2, 4000.0, **mark),
        event("gemm", "CUDA", 6, 2000.0, **no_mark),
        event("softmax", "CUDA", 4, 3000.0, **no_mark),
        event("Memset (Device)", "CUDA", 80, 700.0, **no_mark),
        event("Memcpy HtoD (Pinned -> Device)", "CUDA", 10, 700.0, **no_mark),
    ]
    profile = kernels_of(events, "cuda", updates=2)
    assert profile.kernels == 5
    assert profile.milliseconds == 2.5
    assert list(profile.by_name.items()) == [("softmax", 1.5), ("gemm", 1.0)]


def test_a_row_tells_how_busy_the_gpu_was():
    """Rounds of two updates; an update's kernels take 15 ms, the update 50; a graph is compiled."""
    rounds = [
        {"seconds": 0.1, "tokens": 3000, "losses": [None, 9.0]},
        {"seconds": 0.08, "tokens": 2000, "losses": [8.0, 7.0]},
        {"seconds": 2.4, "tokens": 4000, "losses": [6.5, 6.0]},
    ]
    profile = {"kernels": 1160.5, "milliseconds": 15.0, "by_name": {}}
    figures = {"updates": 2, "rounds": rounds, "flops": 3e12, "profile": profile}
    figures |= {"real_share": 0.621, "peak_megabytes": 11264.0}
    row = gpu_row_of("ours", figures, peak=40e12)
    assert row["ms/update"] == pytest.approx({"median": 50.0, "min": 40.0, "max": 1200.0})
    assert row["tokens/s"] == pytest.approx(25_000)
    shares = {name: row[name] for name in ("real tokens", "busy", "MFU")}
    assert shares == {"real tokens": "62 %", "busy": "30 %", "MFU": "25 %"}
    assert (row["GB reserved"], row["loss"], row["skipped updates"]) == (11.0, 6.0, 1)


def test_others_are_compared_with_fairseqs_fastest_without_cudnn():
    speeds = {
        "fairseq": 50.0,
        "fairseq --fp16": 200.0,
        "fairseq --fp16, as it comes": 400.0,
        "ours": 300.0,
    }
    rows = [{"system": name, "tokens/s": speed} for name, speed in speeds.items()]
    ratios = [row["to fairseq's best"] for row in compare_with_fairseq(rows)]
    assert ratios == [0.25, 1.0, 2.0, 1.5]
    assert compare_with_fairseq(rows[3:]) == rows[3:], "nothing of fairseq's was measured"


def test_a_worker_that_is_late_is_ended_and_another_still_answers():
    late, other = (Worker(threading.Event, {}, wait=False) for _ in range(2))
    late.answer()
    other.answer()
    with deadline(0.2), deadline(60):
        with pytest.raises(WorkerError, match="deadline"):
            late.ask("wait", 60)
        assert seconds_left() == 0.0
    late.process.join(timeout=10)
    assert late.process.exitcode == -9
    assert seconds_left() is None
    assert other.ask("is_set") is False
    other.end()


def test_a_worker_that_cannot_start_says_why_and_ends():
    """It used to go on, and to answer the next question with None."""
    worker = Worker(threading.Event, {"unknown": 1}, wait=False)
    with pytest.raises(WorkerError, match="unknown"):
        worker.answer()
    worker.process.join(timeout=10)
    assert worker.process.exitcode == 0


def test_warming_up_goes_on_while_fp16_skips_updates():
    """fairseq's trainer returns nothing for these; a GPU that is full is an error, not one."""
    logged = [None, {"loss": 9.0}, {"loss": 8.0}, {"loss": 7.0}]

    class Overflows(Training):
        def __init__(self):
            self.trainer = SimpleNamespace(train_step=self.train_step)

        def train_step(self, sample, raise_oom):
            assert raise_oom
            return logged.pop(0)

        def updates(self, count):
            return {"losses": [self.update(None) for _ in range(count)], "seconds": 0.5}

    assert Overflows().warm_up(2) == 0.5
    assert logged == [], "two blocks of two: one in the first was skipped"


def test_a_stage_that_fails_is_named_and_what_came_before_is_written(tmp_path):
    facts = {"cpu": "a processor", "device": "cpu", "versions": {"torch": "2"}, "data": "a text"}
    facts |= {"command": "check", "time": "now", "commit": "abc"}
    record = BenchmarkRecord(facts, tmp_path / "machine_check")
    with record.stage("translating", "the demo"):
        record.add("translating", {"sentences": 4, "equal": 4})
        raise WorkerError("Traceback:\n  line\nRuntimeError: no memory")
    record.note("the end")
    written = json.loads((tmp_path / "machine_check.json").read_text())
    assert written["results"]["translating"]["rows"] == [{"sentences": 4, "equal": 4}]
    assert "| 4 | 4 |" in record.report()
    assert "- failed: the demo: RuntimeError: no memory" in record.report()
    assert record.has_failures()


def test_joined_sentences_are_whole_and_their_translations_are_joined_alike(
    tiny_data_bin, tmp_path
):
    """The translation in this data is the source in reverse."""
    from fairseq.data import Dictionary
    from fairseq.data.data_utils import load_indexed_dataset

    join_sentences(Path(tiny_data_bin), tmp_path / "joined", {"train": 50}, vocabulary=64)
    words = Dictionary.load(str(tmp_path / "joined" / "dict.en.txt"))
    assert len(words) == 64
    originals = load_indexed_dataset(f"{tiny_data_bin}/train.en-de.en", words)
    whole = {tuple(sentence.tolist()[:-1]) for sentence in originals}
    source = load_indexed_dataset(str(tmp_path / "joined" / "train.en-de.en"), words)
    target = load_indexed_dataset(str(tmp_path / "joined" / "train.en-de.de"), words)
    assert len(source) == len(target) == 50
    assert max(source.sizes) > max(originals.sizes)
    for one, other in zip(source, target, strict=True):
        assert one.tolist().count(words.eos()) == 1 and one[-1] == other[-1] == words.eos()
        assert is_made_of(tuple(one.tolist()[:-1]), whole)
        assert torch.equal(one.sort().values, other.sort().values)


def is_made_of(words, sentences):
    """Return whether ``words`` are some of ``sentences``, one after the other."""
    if not words:
        return True
    starts = (n for n in range(1, len(words) + 1) if words[:n] in sentences)
    return any(is_made_of(words[n:], sentences) for n in starts)


def test_both_systems_of_the_papers_size_see_the_same_batches_and_are_averaged(tiny_data_bin):
    """The mean of the models kept is loaded, validated and translated with."""
    schedule = ["--lr-scheduler", "vaswani_inverse_sqrt", "--warmup-updates", "10"]
    schedule += ["--d-model", "64", "--max-tokens", "300", "--num-workers", "0", "--seed", "3"]
    tokens = []
    for flags in (FAIRSEQ_FLAGS, VASWANI_FLAGS):
        with stock.fresh_process():
            training = PaperTraining(
                str(tiny_data_bin), [*flags, *size_flags("trial"), *schedule], "cpu"
            )
            steps = [training.advance(3) for _ in range(2)]
        assert [step["updates"] for step in steps] == [3, 6]
        assert steps[1]["rate"] > steps[0]["rate"], "during the warm-up"
        tokens.append([step["tokens"] for step in steps])
        first, second = training.kept
        name = next(name for name, value in first.items() if value.dim() == 2)
        assert not torch.equal(first[name], second[name])
        finished = training.finish()
        assert finished["averaged"] == 2
        mean = training.trainer.model.state_dict()[name]
        assert torch.allclose(mean, (first[name] + second[name]) / 2, atol=1e-6)
        assert 0 < finished["nll"] < 20
        assert training.translate(beam=2, count=5, size=2)["tokens"] >= 5
    assert tokens[0] == tokens[1]
