"""What may not be trained into a run's folder, and what a refused start leaves."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.unit.test_locks import holder
from transformer_plugin.config import ConfigError
from vaswani.common.errors import UserError
from vaswani.folders.run import Fingerprint, Run
from vaswani.training import launch, run_record, training
from vaswani.training.training_progress import TrainingProgress

CONFIG = OmegaConf.create(
    {
        "common": {"seed": 1},
        "task": {"source_lang": "en", "target_lang": "de"},
        "model": {"_name": "a", "layers": 4, "precision": "fp32"},
        "optimizer": {"_name": "adam"},
        "dataset": {"train_subset": "train"},
        "checkpoint": {"reset_dataloader": False},
    }
)
TRAIN, VALID = "train.en-de.en.bin", "valid.en-de.en.bin"
DATA = Fingerprint({"dict.en.txt": "1", TRAIN: "2", VALID: "3"})


@pytest.fixture
def folder(tmp_path) -> Path:
    """Make a run's folder with its records and a checkpoint."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint_best.pt").touch()
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(CONFIG))
    (tmp_path / "env.json").write_text(
        json.dumps({"command": "vaswani train", "data": DATA.to_json()})
    )
    return tmp_path


def refuse(folder, change=None, **changed):
    """Call ``changed_data`` with a changed configuration or changed files."""
    data = Fingerprint({**DATA.sha256, **changed})
    return run_record.changed_data(OmegaConf.merge(CONFIG, change or {}), data, Run(folder))


def test_the_same_run_goes_on(folder):
    assert refuse(folder) == []
    run_record.refuse_foreign_folder(Run(folder))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model": {"layers": 6}}, "model.layers"),
        ({"task": {"target_lang": "fr"}}, "task.target_lang"),
        ({"common": {"seed": 2}}, "common.seed"),
    ],
)
def test_another_run_is_refused_naming_the_key_and_the_way_out(folder, change, key):
    """Though there is no last checkpoint."""
    with pytest.raises(UserError, match=f"{key}.*run=NAME"):
        refuse(folder, change)


def test_a_later_versions_option_and_how_it_computes_may_differ(folder):
    assert refuse(folder, {"model": {"new": False, "precision": "bf16"}}) == []


def test_another_dictionary_or_training_text_is_refused(folder):
    with pytest.raises(UserError, match="dict.en.txt.*run=NAME"):
        refuse(folder, **{"dict.en.txt": "9"})
    with pytest.raises(UserError, match=f"{TRAIN}.*reset_dataloader"):
        refuse(folder, **{TRAIN: "9"})


def test_a_text_that_may_change_is_said(folder):
    change = {"checkpoint": {"reset_dataloader": True}}
    assert TRAIN in refuse(folder, change, **{TRAIN: "9"})[0]
    assert VALID in refuse(folder, **{VALID: "9"})[0]


@pytest.mark.parametrize("name", ["config.yaml", "env.json"])
def test_a_users_own_file_is_not_replaced(tmp_path, name):
    (tmp_path / name).write_text("mine: 1\n")
    with pytest.raises(UserError, match=f"{name}.*run=NAME"):
        run_record.refuse_foreign_folder(Run(tmp_path))


def test_half_written_checkpoints_are_removed_but_for_an_average(tmp_path):
    """Which 'vaswani average' may just be writing."""
    (tmp_path / "checkpoints").mkdir()
    names = (".checkpoint_last.pt.part", "checkpoint3.pt.tmp", ".checkpoint_average_last5.pt.part")
    for name in (*names, "checkpoint_best.pt"):
        (tmp_path / "checkpoints" / name).touch()
    run_record.remove_half_written(Run(tmp_path))
    left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert left == {".checkpoint_average_last5.pt.part", "checkpoint_best.pt"}


def test_half_a_line_hides_no_other(tmp_path):
    """A full disk ends a training's log in the middle of a line; the next start appends to it."""
    run = Run(tmp_path)
    (tmp_path / "train.jsonl").write_bytes(b'{"num_updates": 1}\n{"num_upd')
    assert [line["num_updates"] for line in run.statistics()] == [1]
    progress = TrainingProgress(run, max_update=3)
    progress.resume(2)
    progress.close()
    assert [line["num_updates"] for line in run.statistics()] == [1, 2]


def test_processes_with_other_data_are_named_in_every_one(monkeypatch, tmp_path):
    message = [("0, on a,", True, {TRAIN: "1", VALID: "2"}), ("1, on b,", True, {TRAIN: "1"})]
    monkeypatch.setattr(launch, "all_gather", lambda value: message)
    with pytest.raises(ConfigError, match=rf"on b, has a different {VALID} from process 0"):
        launch.check_agreement(0, True, message[0][2], tmp_path)
    message[1] = ("1, on b,", True, message[0][2])
    launch.check_agreement(0, True, message[0][2], tmp_path)


def test_a_job_that_slurm_starts_again_waits_for_the_lock_of_a_dead_machine(tmp_path, monkeypatch):
    """The other process lets go while this one waits."""
    process = holder(tmp_path / ".lock")
    monkeypatch.setattr(training, "AFTER_RESTART", 0.2)
    monkeypatch.setattr("time.sleep", lambda seconds: (process.kill(), process.wait()))
    monkeypatch.setattr(run_record, "changed_data", lambda *_: 1 / 0)  # past the lock
    arguments = (None, Fingerprint(), Run(tmp_path), None)
    try:
        with pytest.raises(UserError, match="is being trained by another"):
            training.train_or_skip(*arguments)
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        with pytest.raises(ZeroDivisionError):
            training.train_or_skip(*arguments)
    finally:
        process.kill()
        process.wait()


def test_a_run_without_a_name_is_refused():
    with pytest.raises(UserError, match="run="):
        run_record.split_run(["run=", "common.seed=2"])
