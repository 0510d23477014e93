"""Commands started with closed standard streams (``2>&-``), as some services start them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import forks, packed
from tests.integration.test_vaswani import SIZES
from tests.preloaded import python

ROOT = Path(__file__).resolve().parents[2]


def without_streams() -> None:
    """Have what Python gives a command that is started with all three closed."""
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    sys.stdin = sys.stdout = sys.stderr = None


def command(
    folder: Path, arguments: str, program: str = sys.executable
) -> "subprocess.CompletedProcess[str]":
    """A command line of a shell; what it opens of its streams is piped here."""
    line = f"PYTHONPATH={ROOT} {program} -m vaswani {arguments}"
    return subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def model(tmp_path) -> Path:
    packed.pack(tmp_path / "model")
    (tmp_path / "in").write_text("the dog\nan elephant\na cat\n", encoding="utf-8")
    return tmp_path


def test_a_warning_stays_out_of_a_translation(model):
    """Without standard error: "an elephant" is unknown, which is said there."""
    as_ever = command(model, "translate model --workers 1 <in", python())
    assert "unknown" in as_ever.stderr and as_ever.stdout.count("\n") == 3
    closed = command(model, "translate model --workers 1 <in 2>&-")
    assert (closed.returncode, closed.stdout) == (0, as_ever.stdout)


def test_a_translation_without_streams(model, monkeypatch):
    """Nothing to read, nobody to write to; and a file is written as ever."""
    monkeypatch.chdir(model)
    done = forks.vaswani(["translate", "model", "in", "--output", "out"], without_streams)
    assert done.code == 0
    assert len((model / "out").read_text(encoding="utf-8").splitlines()) == 3


def test_a_training_and_its_translation_without_streams(tiny_data_bin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_data_bin, tmp_path / "data-bin")
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["task"]["data"] = "data-bin"
    table["model"] = {"_name": "vaswani_transformer_tiny", **SIZES}
    table["optimization"]["max_update"] = 2
    table["checkpoint"] = {"no_epoch_checkpoints": True}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    train = ["train", "small", "common.cpu=true"]
    assert forks.vaswani(train, without_streams).code == 0
    assert (tmp_path / "runs/small/finished.json").is_file()
    assert forks.vaswani(["generate", "small"], without_streams).code == 0
    lines = (tmp_path / "runs/small/eval/test.hyp").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 20
