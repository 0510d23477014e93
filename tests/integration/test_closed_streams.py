"""Commands started with closed standard streams (``2>&-``), as some services start them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import packed
from tests.shared import SIZES

ROOT = Path(__file__).resolve().parents[2]


def vaswani(folder: Path, arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command line of a shell; what it opens of its streams is piped here."""
    line = f"PYTHONPATH={ROOT} {sys.executable} -m vaswani {arguments}"
    return subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True)


def test_a_warning_stays_out_of_a_translation(tmp_path):
    """The word "elephant" is unknown, which is said on standard error."""
    packed.pack(tmp_path / "model")
    (tmp_path / "in").write_text("the dog\nan elephant\na cat\n", encoding="utf-8")
    done = vaswani(tmp_path, "translate model --workers 1 <in 2>&-")
    assert done.returncode == 0
    assert done.stdout.count("\n") == 3 and "unknown" not in done.stdout


@pytest.mark.slow
def test_a_training_needs_no_streams(tiny_data_bin, tmp_path):
    shutil.copytree(tiny_data_bin, tmp_path / "data-bin")
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["task"]["data"] = "data-bin"
    table["model"] = {"_name": "vaswani_transformer_tiny", **SIZES}
    table["optimization"]["max_update"] = 2
    table["checkpoint"] = {"no_epoch_checkpoints": True}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    assert vaswani(tmp_path, "train small common.cpu=true <&- >&- 2>&-").returncode == 0
    assert (tmp_path / "runs/small/finished.json").is_file()
