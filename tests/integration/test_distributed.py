"""Two processes through fairseq's trainer, on CPUs over gloo: the same losses as one process.

By default they are forks with the variables of torchrun. The slow tests start torchrun itself.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

from tests import shared, stock
from tests.processes import (
    TWO,
    VASWANI,
    begin,
    children,
    finish,
    losses,
    to_the_end,
    two_forks,
    until_saved,
)
from tests.unit.test_locks import holder
from vaswani.training.checkpoints import describe


@pytest.fixture(scope="module")
def workplace(tiny_data_bin, tmp_path_factory) -> Path:
    """Write an experiment ``small`` into a folder, and return the folder.

    Dropout is 0, the loss falls within an epoch, and every update is kept.
    """
    folder = tmp_path_factory.mktemp("distributed")
    table = shared.experiment()
    table["task"].update(_name="vaswani_translation", data=str(tiny_data_bin), eval_bleu_lines=20)
    table["model"].update(init="fairseq", dropout=0.0)
    table["lr_scheduler"].update(warmup_updates=8, lr_factor=0.3)
    table["dataset"].update(max_tokens=150, max_tokens_valid=40)
    table["optimization"]["max_update"] = 12
    table["checkpoint"] = {"save_interval_updates": 1}
    (folder / "configs").mkdir()
    (folder / "configs" / "small.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    return folder


def in_this_process(workplace: Path, *overrides: str) -> Path:
    """Train in one process with two batches per update; return the folder of checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workplace)
        twice = "optimization.update_freq=[2]"
        assert stock.vaswani("train", "small", "run=one", twice, *overrides) == 0
    return workplace / "runs" / "one" / "checkpoints"


@pytest.fixture(scope="module")
def one(workplace) -> Path:
    """Train in one process: with dropout 0, accumulation equals the run of two."""
    return in_this_process(workplace)


@pytest.fixture(scope="module")
def two(workplace) -> Path:
    """Train in two processes."""
    two_forks(workplace, "train", "small", "run=two")
    return workplace / "runs" / "two"


def assert_same_losses(checkpoints: Path, other: Path, least: int, tolerance: float = 1e-4) -> None:
    """Assert equal losses of the updates in both; an epoch's last has another file name."""
    found, expected = losses(checkpoints), losses(other)
    both = sorted(set(found) & set(expected))
    assert len(both) >= least and max(both) == max(found)
    for update in both:
        assert found[update] == pytest.approx(expected[update], abs=tolerance)


def test_losses_are_those_of_one_process(two, one):
    """And they fall: by 1.0 to 1.4 with five seeds on AMX and on AVX2, and four without AVX."""
    assert_same_losses(two / "checkpoints", one, 10)
    first, *_, last = (loss for _, loss in sorted(losses(one).items()))
    assert first - last > 0.1, "it learns, so the gradients matter"


def test_one_process_keeps_the_records(two):
    lines = [json.loads(line) for line in (two / "train.jsonl").read_text().splitlines()]
    found = [line["valid_num_updates"] for line in lines if line["tag"] == "valid"]
    assert found == list(range(1, 13)), "each once"
    environment = json.loads((two / "env.json").read_text())
    assert (environment["processes"], environment["started_by"]) == (2, "torchrun")
    assert json.loads((two / "finished.json").read_text())["num_updates"] == 12


def test_bleu_is_of_the_sentences_of_both_processes(two, tiny_data_bin, tiny_text):
    """And the translations shown are those of the first lines, whichever process had them.

    Of the update with the highest score: after the last one the model says next to nothing. With
    five seeds the highest was 0.8 to 2.0, and the last one 0 three times.
    """
    from sacrebleu.metrics import BLEU

    lines = [json.loads(line) for line in (two / "train.jsonl").read_text().splitlines()]
    shown = [line["reference"] for line in lines if line["tag"] == "valid_sample"]
    meant = (tiny_text / "valid.de").read_text().splitlines()
    assert shown[-3:] == meant[:3]
    search = ["--gen-subset", "valid", "--beam", "1", "--max-len-a", "1", "--max-len-b", "50"]
    validations = [line for line in lines if line["tag"] == "valid"]
    best = max(validations, key=lambda line: line["valid_tokenised_bleu"])
    saved = (two / "checkpoints").glob("checkpoint*.pt")
    of_best = [path for path in saved if describe(path).updates == best["valid_num_updates"]]
    found = stock.results(stock.generate(tiny_data_bin, str(of_best[0]), *search), "H")
    said = [found[number][-1] for number in range(20)]
    expected = BLEU(tokenize="none", force=True).corpus_score(said, [meant]).score
    assert best["valid_tokenised_bleu"] == pytest.approx(expected, abs=0.01) and expected > 0


def test_a_second_training_of_a_run_is_refused(workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    process = holder(workplace / "runs" / "taken" / ".lock")
    try:
        assert stock.vaswani("train", "small", "run=taken") == 1
    finally:
        process.kill()
        process.wait()
    assert "runs/taken" in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in (workplace / "runs" / "taken").iterdir()] == [".lock"]


@pytest.mark.slow
def test_torchrun_told_to_stop_saves_once_and_goes_on_as_unbroken(workplace):
    """It passes the signal on to all; with dropout 0 the run of one process is the unbroken one."""
    checkpoints = workplace / "runs" / "stopped" / "checkpoints"
    command = [*TWO, *VASWANI, "run=stopped"]
    rare = ("checkpoint.save_interval_updates=100000", "optimization.max_update=100000")
    real = {"PYTHON_EXEC": sys.executable}  # the stand-in ends by a signal
    process = begin([*command, *rare], workplace, **real)
    try:
        until_saved(process, checkpoints, "checkpoint1.pt")
    finally:
        process.send_signal(signal.SIGTERM)
    message = finish(process)[0]
    last = describe(checkpoints / "checkpoint_last.pt")
    assert last.stopped and message.count("saved update") == 1
    assert f"saved update {last.updates:,} as " in message, message
    until = f"optimization.max_update={last.updates + 4}"
    to_the_end([*command, until], workplace)
    assert_same_losses(checkpoints, in_this_process(workplace, until), 3)


SPAWNING = """
import sys
import torch

if __name__ == "__main__":  # in this process alone, which starts one for each
    torch.cuda.device_count = lambda: 2  # before fairseq takes it for a default

from vaswani import cli
from vaswani.training import launch

def on_two(config, *_):
    found = launch.from_this_machine(config.distributed_training, 2)
    found.section.update(launch.ON_CPU)
    return found

if __name__ == "__main__":
    launch.find_launch = on_two
    sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_signal_to_the_parent_alone_ends_what_fairseq_started(workplace, tmp_path):
    """Before its lock is free: the same command would start a second training beside them."""
    (tmp_path / "spawning.py").write_text(SPAWNING)
    command = [sys.executable, str(tmp_path / "spawning.py"), "train", "small", "run=told"]
    process = begin([*command, "optimization.max_update=100000"], workplace)
    checkpoints = workplace / "runs" / "told" / "checkpoints"
    started = []
    try:
        until_saved(process, checkpoints, "checkpoint_1_*.pt")
        commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in children(process.pid)}
        started = [pid for pid, path in commands.items() if "spawn_main" in path.read_text()]
        process.send_signal(signal.SIGTERM)
        message = finish(process)[0]
        assert process.returncode == 143, message
        assert len(started) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in started)
        assert (
            f"saved update {describe(checkpoints / 'checkpoint_last.pt').updates:,} as" in message
        )
    finally:
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_processes_that_fairseq_starts_as_for_gpus(workplace, one, tmp_path):
    """It goes by the number of GPUs; here they are said to be two, and the work is gloo's."""
    (tmp_path / "spawning.py").write_text(SPAWNING)
    command = [sys.executable, str(tmp_path / "spawning.py"), "train", "small"]
    to_the_end([*command, "run=spawned"], workplace)
    run = workplace / "runs" / "spawned"
    assert_same_losses(run / "checkpoints", one, 10)
    environment = json.loads((run / "env.json").read_text())
    assert (environment["processes"], environment["started_by"]) == (2, "one process per GPU")
