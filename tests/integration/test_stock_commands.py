"""fairseq's own commands as a user types them: real processes, on CPU, with a worker."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Sequence

import pytest
import yaml

from tests import stock
from tests.conftest import preprocess, write_digit_pairs
from tests.preloaded import python
from transformer_plugin.checkpoints import load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
FAST = ["--cpu", "--no-progress-bar", "--num-workers", "1"]


def run(command: Sequence[str], folder: Path) -> str:
    """Run a Python program in ``folder``; returns its standard output.

    The plugin is not on Python's path: only ``--user-dir`` says where it is.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [python(), *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def fairseq(name: str) -> str:
    """The path of one of fairseq's commands."""
    return str(Path(sys.executable).parent / f"fairseq-{name}")


def test_train_in_the_repository_decode_elsewhere(tiny_data_bin, tmp_path):
    """``--user-dir transformer_plugin`` at the root, ``$(vaswani plugin-dir)`` anywhere else."""
    arguments = [str(tiny_data_bin), "--user-dir", "transformer_plugin", *FAST, *stock.OURS]
    arguments += [*stock.SMALL, "--max-tokens", "500", "--max-update", "5", "--seed", "1"]
    run([fairseq("train"), *arguments, "--save-dir", str(tmp_path)], ROOT)
    checkpoint = tmp_path / "checkpoint_last.pt"

    elsewhere = run(["-m", "vaswani", "plugin-dir"], ROOT)
    arguments = [str(tiny_data_bin), "--user-dir", elsewhere.strip(), *FAST]
    arguments += ["--path", str(checkpoint), "--beam", "4", "--max-len-b", "5"]
    output = run([fairseq("generate"), *arguments], tmp_path).splitlines()
    assert sorted(stock.results(output, "H")) == list(range(20))
    here = stock.generate(tiny_data_bin, checkpoint, "--max-len-b", "5")
    assert stock.results(output, "H") == stock.results(here, "H")


def test_train_by_yaml(tiny_data_bin, tmp_path, plugin_dir):
    """fairseq-hydra-train has no ``--user-dir``: ``common.user_dir``, absolute, stands for it.

    ``vaswani train`` reads the same file, and learns the same.
    """
    sizes = {"layers": 2, "embed_dim": 32, "ffn_embed_dim": 64, "attention_heads": 4}
    experiment = {
        "common": {"user_dir": str(plugin_dir), "cpu": True, "log_format": "json"},
        "task": {"_name": "translation", "data": str(tiny_data_bin)},
        "model": {
            "_name": "vaswani_transformer_tiny",
            **{f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()},
        },
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
    run([fairseq("hydra-train"), "--config-dir", str(tmp_path), "--config-name", "small"], tmp_path)
    by_yaml = tmp_path / "run" / "checkpoint_last.pt"

    stock.train(tiny_data_bin, tmp_path / "flags", "--max-update", "5")
    by_flags = tmp_path / "flags" / "checkpoint_last.pt"
    assert stock.vaswani("train", tmp_path / "small.yaml", f"run={tmp_path}/ours") == 0
    ours = tmp_path / "ours" / "checkpoints" / "checkpoint_last.pt"
    for other in (by_flags, ours):
        difference, name = stock.largest_difference(by_yaml, other)
        assert difference == 0, name  # the preset's dropout of 0.3 and all else: the same
    assert load_checkpoint(by_yaml)["cfg"]["model"]["dropout"] == 0.3


@pytest.fixture(scope="module")
def odd_text(tmp_path_factory) -> Path:
    """Digits with empty lines on one side or both, and one sentence of 30 words."""
    folder = tmp_path_factory.mktemp("odd-text")
    for seed, name in enumerate(("train", "valid", "test")):
        write_digit_pairs(folder, name, 40, seed)
        for language, lines in (("en", ["", "", "1 2"]), ("de", ["", "2 1", ""])):
            path = folder / f"{name}.{language}"
            lines = [*lines, " ".join("7" * 30)]
            path.write_text("\n".join(lines) + "\n" + path.read_text(encoding="utf-8"), "utf-8")
    return folder


@pytest.fixture(scope="module")
def odd_run(odd_text, tmp_path_factory) -> Path:
    """The data-bin of ``odd_text`` with a checkpoint trained on it beside."""
    folder = preprocess(odd_text, tmp_path_factory.mktemp("odd"), "--joined-dictionary")
    stock.train(folder, folder, "--max-update", "3")
    return folder


def test_empty_lines_survive_training_and_decoding(odd_run):
    """Every line has its translation, the empty ones too."""
    lines = stock.generate(odd_run, odd_run / "checkpoint_last.pt", "--max-len-b", "5")
    assert sorted(stock.results(lines, "H")) == list(range(44))
    assert [stock.results(lines, "S")[number] for number in (0, 1, 2)] == [[""], [""], ["1 2"]]


def test_training_counts_the_sentences_that_it_leaves_out(odd_run, tmp_path):
    """fairseq's own words: how many, the limits, and which ones."""
    limits = ["--max-source-positions", "20", "--max-target-positions", "20"]
    skipping = ["--skip-invalid-size-inputs-valid-test"]
    lines = stock.train(odd_run, tmp_path, *limits, *skipping, "--max-update", "1")
    (message,) = {line for line in lines if "will be skipped" in line}
    assert message.startswith("1 samples have invalid sizes and will be skipped")
    assert "max_positions=(20, 20)" in message and "[3]" in message


def test_decoding_stops_at_a_sentence_over_the_limits_unless_told_to_skip_it(odd_run):
    """Sinusoids have no limit: the task's decides, which may be another than in training."""
    checkpoint = odd_run / "checkpoint_last.pt"
    limits = ["--max-source-positions", "20", "--max-target-positions", "20", "--max-len-b", "5"]
    with pytest.raises(Exception, match="#3.*skip-invalid-size-inputs-valid-test"):
        stock.generate(odd_run, checkpoint, *limits)
    with stock.logged() as logged:
        lines = stock.generate(
            odd_run, checkpoint, *limits, "--skip-invalid-size-inputs-valid-test"
        )
    assert sorted(stock.results(lines, "H")) == [n for n in range(44) if n != 3]
    assert any(line.startswith("1 samples have invalid sizes") for line in logged)


def test_sinusoids_reach_beyond_the_limits_of_training(tiny_data_bin, trained):
    """Trained with fairseq's limit of 1024 tokens, decoding 1500 because the task allows it."""
    text = " ".join("0123456789" * 150) + "\n"
    options = ["--max-source-positions", "2000", "--max-len-b", "3", "--max-tokens", "2000"]
    lines = stock.interactive(tiny_data_bin, trained, text, *options)
    assert len(stock.results(lines, "S")[0][0].split()) == 1500
    assert 0 in stock.results(lines, "H")
