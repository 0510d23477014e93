"""fairseq's own commands as a user types them: real processes, on CPU, with a worker."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests import stock
from tests.shared import SIZES
from transformer_plugin.checkpoints import load_checkpoint

FAST = ["--cpu", "--no-progress-bar", "--num-workers", "1"]


def run(name: str, arguments: Sequence[str], folder: Path) -> str:
    """Run one of fairseq's commands in ``folder``, and return its standard output.

    The plugin is not on Python's path: only ``--user-dir`` says where it is.
    """
    command = [sys.executable, str(Path(sys.executable).parent / f"fairseq-{name}"), *arguments]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_fairseqs_generate_decodes_as_we_do(tiny_data_bin, trained, plugin_dir, tmp_path):
    arguments = [str(tiny_data_bin), "--user-dir", str(plugin_dir), *FAST]
    arguments += ["--path", str(trained), "--beam", "4", "--max-len-b", "5"]
    output = run("generate", arguments, tmp_path).splitlines()
    here = stock.generate(tiny_data_bin, trained, "--max-len-b", "5")
    assert len(stock.results(output, "H")) == 20
    assert stock.results(output, "H") == stock.results(here, "H")


def test_yaml_flags_and_vaswani_train_learn_the_same(tiny_data_bin, tmp_path, plugin_dir):
    """fairseq-hydra-train has no ``--user-dir``: ``common.user_dir``, absolute, stands for it."""
    experiment = {
        "common": {"user_dir": str(plugin_dir), "cpu": True, "log_format": "json"},
        "task": {"_name": "translation", "data": str(tiny_data_bin)},
        "model": {"_name": "vaswani_transformer_tiny", **SIZES},
        "criterion": {"_name": "vaswani_label_smoothed_cross_entropy"},
        "optimizer": {"_name": "adam", "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-9},
        "lr_scheduler": {"_name": "vaswani_inverse_sqrt", "warmup_updates": 50},
        "dataset": {"max_tokens": 500, "num_workers": 1},
        "optimization": {"max_update": 5},
        "checkpoint": {"save_dir": str(tmp_path / "run")},
        "hydra": {"run": {"dir": "."}},
    }
    text = "# @package _group_\n" + yaml.safe_dump(experiment)
    (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
    run("hydra-train", ["--config-dir", str(tmp_path), "--config-name", "small"], tmp_path)
    by_yaml = tmp_path / "run" / "checkpoint_last.pt"

    sizes = [f"--{name.replace('_', '-')}={size}" for name, size in SIZES.items()]
    model = ["--arch", "vaswani_transformer_tiny", *sizes]
    stock.train(tiny_data_bin, tmp_path / "flags", "--max-update", "5", model=model)
    assert stock.vaswani("train", tmp_path / "small.yaml", f"run={tmp_path}/ours") == 0
    for other in ("flags", "ours/checkpoints"):
        path = tmp_path / other / "checkpoint_last.pt"
        difference, name = stock.largest_difference(by_yaml, path)
        assert difference == 0, name  # the preset's dropout of 0.3 and all else: the same
    assert load_checkpoint(by_yaml)["cfg"]["model"]["dropout"] == 0.3
