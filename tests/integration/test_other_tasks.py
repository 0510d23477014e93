"""With the plugin loaded, tasks and models that are not ours give what they give without it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from tests import stock
from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.compat import replacing
from transformer_plugin.config import ConfigError

# fairseq-fixed drops a last batch whose size is not a multiple of 8; the plugin keeps it
TRAINING = ["--cpu", "--num-workers", "0", "--required-batch-size-multiple", "1"]
TRAINING += ["--optimizer", "adam", "--lr", "0.001", "--max-tokens", "300", "--max-update", "6"]
TRAINING += ["--no-epoch-checkpoints", "--disable-validation", "--update-epoch-batch-itr", "True"]
SIZES = ["--decoder-layers=1", "--decoder-embed-dim=16", "--decoder-attention-heads=2"]


def test_a_language_model_is_the_same_without_the_plugin(tiny_data_bin, tmp_path):
    """All parameters to the last bit; without it, fairseq-train in a process of its own."""
    shutil.copytree(tiny_data_bin, tmp_path / "data")
    for path in (tmp_path / "data").glob("*.en-de.en.*"):
        shutil.copy(path, path.with_name(path.name.replace(".en-de.en", "")))
    shutil.copy(tmp_path / "data" / "dict.en.txt", tmp_path / "data" / "dict.txt")
    flags = ["--task", "language_modeling", "--tokens-per-sample", "9", *TRAINING]
    flags += ["--sample-break-mode", "complete", "--arch", "transformer_lm", *SIZES]
    program = [sys.executable, str(Path(sys.executable).parent / "fairseq-train")]
    command = [*program, str(tmp_path / "data"), *flags, "--save-dir", str(tmp_path / "without")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    stock.train(tmp_path / "data", tmp_path / "with", *flags, model=[], recipe=[])
    expected, found = (
        stock.parameters(tmp_path / name / "checkpoint_last.pt") for name in ("without", "with")
    )
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        if name.endswith(("weight", "bias")):  # a buffer of official fairseq is never filled
            assert torch.equal(value, found[name]), name


# --- what we refuse, or do otherwise than fairseq, is for translation -----------------------------


@register_task("somebodys_translation", dataclass=TranslationConfig)
class SomebodysTask(TranslationTask):
    """Another plugin's task: it may have reasons for anything."""


THEIRS = ["--task", "somebodys_translation"]
OURS = ["--task", "vaswani_translation"]


def test_another_plugins_task_trains_where_ours_refuses(tiny_data_bin, tmp_path) -> None:
    options = ["--restore-file", "gone.pt", "--max-update", "2", "--no-epoch-checkpoints"]
    with pytest.raises(CheckpointError, match="gone.pt"):
        stock.train(tiny_data_bin, tmp_path, *options, *OURS)
    for task in (THEIRS, []):
        lines = stock.train(tiny_data_bin, tmp_path, *options, *task)
        assert any(line.startswith("done training") for line in lines)


def test_another_plugins_task_starts_and_ends_where_fairseq_does(tiny_data_bin, tmp_path) -> None:
    """Without checkpoint_last.pt it starts over; with all its updates it makes one more."""
    replacing.protect()
    options = [*THEIRS, "--max-update", "2", "--save-interval-updates", "1"]
    stock.train(tiny_data_bin, tmp_path, *options)
    (tmp_path / "checkpoint_last.pt").unlink()
    lines = stock.train(tiny_data_bin, tmp_path, *options)
    assert any(line.startswith("No existing checkpoint found") for line in lines)
    stock.train(tiny_data_bin, tmp_path, *options)
    assert (tmp_path / "checkpoint_1_3.pt").exists()


def test_another_plugins_task_takes_all_of_fairseqs_options(trained, tiny_data_bin) -> None:
    options = ["--no-repeat-ngram-size", "2", "--max-len-b", "5"]
    with pytest.raises(ConfigError, match="--no-repeat-ngram-size changes nothing"):
        stock.generate(tiny_data_bin, trained, *options, *OURS)
    lines = stock.generate(tiny_data_bin, trained, *options, *THEIRS)
    assert len(stock.results(lines, "H")) == 20
