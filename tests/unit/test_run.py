"""A run's folder: how it is found, and what its records say. Its names: ``test_folders.py``."""

import ast
import json
from pathlib import Path

import pytest

from vaswani.common.errors import UserError
from vaswani.folders.run import Ending, Fingerprint, Run, Start, TranslationRecord

VASWANI = Path(__file__).resolve().parents[2] / "vaswani"


def trained(folder: Path, config: str = "task: {data: 'a:b'}") -> Run:
    """Make a run with a configuration alone."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    return Run(folder)


def test_a_run_is_found_by_its_path_or_its_name_in_both_spellings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained(Path("runs/my_run"))
    for name in ("my-run", "my_run", "runs/my_run", str(tmp_path / "runs/my_run")):
        assert Run.find(name).folder.samefile("runs/my_run")
    with pytest.raises(UserError, match=r"'my_rum' \(did you mean 'my_run'\?\) \(known: my_run"):
        Run.find("my_rum")


def test_a_folder_of_something_else_does_not_hide_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    trained(Path("runs/mine"))
    assert Run.find("mine") == Run(Path("runs/mine"))


def test_a_checkpoint_a_model_and_a_save_dir_lead_to_their_run(tmp_path):
    run = Run(tmp_path / "run")
    assert Run.of_checkpoint(run.last) == Run.of_checkpoint(run.average(5)) == run
    assert Run.of_checkpoint(tmp_path / "alone.pt") == Run(tmp_path)
    assert Run.of_model(run.model) == run
    assert Run.of_save_dir(run.checkpoints) == run
    assert Run.of_save_dir(tmp_path / "elsewhere") is Run.of_save_dir(Path("checkpoints")) is None


def test_the_first_data_bin_of_several_is_the_runs(tmp_path):
    assert trained(tmp_path / "run").data_bin.folder == Path("a")


def test_phases_are_in_the_order_of_their_numbers(tmp_path):
    run = Run(tmp_path)
    for name in ("phase-10", "phase-9", "phase-x"):
        (run.checkpoints / name).mkdir(parents=True)
    assert [phase.name for phase in run.phases()] == ["phase-9", "phase-10"]


def test_scored_subsets_are_those_with_a_report(tmp_path):
    run = Run(tmp_path)
    for subset in ("valid", "test"):
        translations = run.translations(subset)
        translations.folder.mkdir(exist_ok=True)
        translations.scores_file.write_text('{"bleu": {}}')
        translations.record_file.write_text('{"checkpoint": "c"}')
    run.translations("train").record_file.write_text("{}")
    assert run.scored_translations() == [run.translations("test"), run.translations("valid")]
    assert run.translations("train").record() is None


def test_what_is_written_of_an_ending_is_read(tmp_path):
    ending = Ending(num_updates=6, seconds=1.5, reason="max_update", perplexity=None, stop="a")
    Run(tmp_path).write_ending(ending)
    assert Run(tmp_path).ending() == ending
    assert list(json.loads((tmp_path / "finished.json").read_text())) == [
        *("num_updates", "seconds", "reason", "perplexity", "stop")
    ]


def test_records_of_earlier_versions_and_of_others_are_read():
    assert Ending.from_json({}) is None
    assert Ending.from_json({"num_updates": 3, "of_later": 1}) == Ending(3)
    assert Fingerprint.from_json("mine") == Fingerprint() == Start.from_json({"data": 3}).data
    record = TranslationRecord.from_json({"checkpoint": "a.pt"})
    assert record is not None
    assert (record.sha256, record.data, record.options) == ({}, None, None)
    assert record.precision == "fp32"


def test_starts_are_listed_with_the_earlier_ones():
    assert Start.from_json({}).with_earlier() == []
    first = {"command": "vaswani train a", "data": {}}
    second = {**first, "earlier_starts": [first]}
    start = Start.from_json(second)
    assert start.is_complete and start.with_earlier() == [first, first]


def test_files_that_one_fingerprint_lacks_have_not_changed():
    before = Fingerprint({"dict.en.txt": "1", "train.bin": "2", "old": "3"})
    now = Fingerprint({"dict.en.txt": "1", "train.bin": "9", "new": "3"})
    assert before.changed_files(now) == ["train.bin"]


def test_json_is_read_where_folders_and_files_are_known():
    callers = set()
    for path in VASWANI.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "read_json":
                callers.add(path.parent.name)
    assert callers <= {"folders", "common"}
