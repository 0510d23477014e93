"""A user-dir of one's own (examples/relative_positions) with ``vaswani train`` and what follows."""

import json
import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.test_vaswani import SIZES
from tests.preloaded import python
from tests.processes import ROOT, VASWANI, begin, finish, killed_in_epoch_two, to_the_end
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.commands.train import Decision, train_process
from vaswani.common.errors import UserError
from vaswani.data.data_bin import fingerprint
from vaswani.experiment.fairseq_config import experiment_config

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


def test_it_trains_is_killed_resumes_and_translates(work: Path, tmp_path: Path) -> None:
    """Each command is a process of its own, which knows nothing of the model at its start."""
    run = work / "runs" / "small"
    command = [python(), *VASWANI[:2]]
    train = [python(), *VASWANI]
    reached = killed_in_epoch_two(
        [*train, "optimization.max_update=100000"], work, run / "checkpoints"
    )
    message = to_the_end([*train, f"optimization.max_update={reached + 3}"], work)
    assert f"continuing at update {reached:,}" in message
    state = load_checkpoint(run / "checkpoints" / "checkpoint_last.pt")["model"]
    assert state["decoder.layers.0.self_attention.distances.weight"].shape == (9, 8)
    message = to_the_end([*command, "average", "small", "--last", "2"], work)
    assert "the average of 2" in message and "unknown" not in message
    to_the_end([*command, "generate", "small", "--workers", "2"], work)
    report = json.loads((run / "eval" / "test.json").read_text(encoding="utf-8"))
    assert report["workers"] == 2
    assert len((run / "eval" / "test.hyp").read_text(encoding="utf-8").splitlines()) == 20

    # outside its run, a checkpoint names no program to be run
    alone = shutil.copy(run / "checkpoints" / "checkpoint_last.pt", tmp_path / "alone.pt")
    command += ["generate", str(alone), "--out", str(tmp_path)]
    refused = begin(command, work)
    (message,) = finish(refused)
    assert refused.returncode == 1 and "--user-dir" in message and "Traceback" not in message
    to_the_end([*command, "--user-dir", "own/relative_positions"], work)


def test_no_other_models_are_packed(work: Path, monkeypatch: Any, capsys: Any) -> None:
    """A model folder says nothing of a program; and a name alone does not make a model ours."""
    from vaswani.model_folder.packing import our_model

    for name in ("relative_transformer", "vaswani_transformer_of_mine"):
        with pytest.raises(UserError, match=f"architecture {name}: only this plugin's models"):
            our_model({"model": {}}, {"_name": name}, Path("x.pt"))


def test_yaml_and_command_line_alike(work: Path, monkeypatch: Any) -> None:
    """A relative path is fairseq's: from the folder in which the command runs; kept absolute."""
    monkeypatch.chdir(EXAMPLES)
    table = yaml.safe_load((work / "small.yaml").read_text(encoding="utf-8"))
    table["common"]["user_dir"] = "relative_positions"
    path = work / "other.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    by_yaml = experiment_config(path)
    override = "common.user_dir=relative_positions"
    by_override = experiment_config(work / "small.yaml", [override])
    assert by_yaml == by_override
    assert by_yaml.common.user_dir == str(EXAMPLES / "relative_positions")


def test_the_plugins_folder_is_the_one_in_use(plugin_dir: Path) -> None:
    """The shipped experiments name it without a place, and runs from elsewhere with another one."""
    for there in ("transformer_plugin", "/not/here/transformer_plugin"):
        config = experiment_config(ROOT / "configs/demo_en_de.yaml", [f"common.user_dir={there}"])
        assert config.common.user_dir == str(plugin_dir)


def test_a_process_that_was_spawned_knows_the_model(work: Path, monkeypatch: Any) -> None:
    """As fairseq's, one for each GPU: it gets the configuration, and imports all by itself."""
    monkeypatch.chdir(EXAMPLES)
    override = "common.user_dir=relative_positions"
    config = experiment_config(
        work / "small.yaml", [override, "optimization.max_update=2", "common.log_format=json"]
    )
    folder = work / "runs" / "spawned"
    (folder / "checkpoints").mkdir(parents=True)
    config.checkpoint.save_dir = str(folder / "checkpoints")
    config.distributed_training.update(distributed_world_size=1, distributed_rank=0)
    process = multiprocessing.get_context("spawn").Process(
        target=train_process, args=(config, fingerprint(config), str(folder), Decision(True, False))
    )
    process.start()
    process.join(100)
    assert process.exitcode == 0
    assert (folder / "checkpoints" / "checkpoint_last.pt").is_file()


def test_one_that_is_not_there_is_one_sentence(work: Path, tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="^common.user_dir: there is no folder nowhere"):
        experiment_config(work / "small.yaml", ["common.user_dir=nowhere"])
    assert not (tmp_path / "runs").exists()
