"""A user-dir of one's own (examples/relative_positions) with ``vaswani train`` and what follows."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.processes import ROOT, VASWANI, begin, finish, killed_in_epoch_two, to_the_end
from tests.shared import SIZES
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.common.errors import UserError
from vaswani.experiment.fairseq_config import experiment_config
from vaswani.model_folder.packing import our_model

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def work(tiny_data_bin: Path, tmp_path_factory: Any) -> Path:
    """A folder with the example as ``own/relative_positions``, and an experiment that names it."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(EXAMPLES / "relative_positions", folder / "own" / "relative_positions")
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["common"].update(user_dir="own/relative_positions", cpu=True)
    table["task"]["data"] = str(tiny_data_bin)
    table["model"] = {"_name": "relative_transformer", "max_distance": 4, **SIZES}
    table["dataset"]["max_tokens"] = 300
    table["checkpoint"] = {"save_interval_updates": 1}
    (folder / "small.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_it_trains_is_killed_resumes_and_translates(work: Path, tmp_path: Path) -> None:
    """Each command is a process of its own, which knows nothing of the model at its start."""
    run = work / "runs" / "small"
    train = [sys.executable, *VASWANI]
    endless = "optimization.max_update=100000"
    reached = killed_in_epoch_two([*train, endless], work, run / "checkpoints")
    message = to_the_end([*train, f"optimization.max_update={reached + 3}"], work)
    assert f"continuing at update {reached:,}" in message
    state = load_checkpoint(run / "checkpoints" / "checkpoint_last.pt")["model"]
    assert state["decoder.layers.0.self_attention.distances.weight"].shape == (9, 8)
    vaswani = [sys.executable, *VASWANI[:2]]
    to_the_end([*vaswani, "generate", "small", "--workers", "2"], work)
    report = json.loads((run / "eval" / "test.json").read_text(encoding="utf-8"))
    assert report["workers"] == 2
    assert len((run / "eval" / "test.hyp").read_text(encoding="utf-8").splitlines()) == 20

    # outside its run, a checkpoint names no program to be run
    alone = shutil.copy(run / "checkpoints" / "checkpoint_last.pt", tmp_path / "alone.pt")
    refused = begin([*vaswani, "generate", str(alone), "--out", str(tmp_path)], work)
    (message,) = finish(refused)
    assert refused.returncode == 1 and "--user-dir" in message and "Traceback" not in message


def test_a_name_alone_does_not_make_a_model_ours() -> None:
    with pytest.raises(UserError, match="vaswani_transformer_of_mine"):
        our_model({"model": {}}, {"_name": "vaswani_transformer_of_mine"}, Path("x.pt"))


def test_yaml_and_command_line_alike(work: Path, monkeypatch: Any) -> None:
    """A relative path is fairseq's: from the folder in which the command runs; kept absolute."""
    monkeypatch.chdir(EXAMPLES)
    table = yaml.safe_load((work / "small.yaml").read_text(encoding="utf-8"))
    table["common"]["user_dir"] = "relative_positions"
    path = work / "other.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    by_yaml = experiment_config(path)
    override = "common.user_dir=relative_positions"
    assert by_yaml == experiment_config(work / "small.yaml", [override])
    assert by_yaml.common.user_dir == str(EXAMPLES / "relative_positions")


def test_the_plugins_folder_is_the_one_in_use(plugin_dir: Path) -> None:
    """The shipped experiments name it without a place, and runs from elsewhere with another one."""
    for there in ("transformer_plugin", "/not/here/transformer_plugin"):
        config = experiment_config(ROOT / "configs/demo_en_de.yaml", [f"common.user_dir={there}"])
        assert config.common.user_dir == str(plugin_dir)


def test_a_user_dir_that_is_missing_is_named(work: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        experiment_config(work / "small.yaml", ["common.user_dir=nowhere"])
