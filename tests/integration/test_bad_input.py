"""Impossible options reach our code through fairseq-train: one sentence, before data is read."""

import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests import stock
from tests.conftest import preprocess
from transformer_plugin.config import ConfigError

SHARED = ["--encoder-embed-dim", "30", "--decoder-embed-dim", "30"]
CASES = {
    "width and heads": (SHARED, ["--encoder-embed-dim 30", "--encoder-attention-heads 4"]),
    "two widths": (["--decoder-embed-dim", "64"], ["--encoder-embed-dim", "--decoder-embed-dim"]),
    "odd width": (
        ["--encoder-embed-dim", "33", "--decoder-embed-dim", "33"]
        + ["--encoder-attention-heads", "3", "--decoder-attention-heads", "3"],
        ["--encoder-embed-dim 33", "--encoder-learned-pos"],
    ),
    "no encoder layer": (["--encoder-layers", "0"], ["--encoder-layers"]),
    "no decoder layer": (["--decoder-layers", "0"], ["--decoder-layers"]),
    "dropout of 1": (["--dropout", "1"], ["--dropout"]),
    "negative dropout": (["--attention-dropout", "-0.1"], ["--attention-dropout"]),
    "no key width": (["--head-key-dim", "0"], ["--head-key-dim"]),
    "tied and untied": (
        ["--share-all-embeddings", "--untie-embeddings"],
        ["--share-all-embeddings", "--untie-embeddings"],
    ),
    "target padded on the left": (["--left-pad-target"], ["--left-pad-target"]),
    "epsilon of 1": (["--label-smoothing", "1"], ["--label-smoothing"]),
    "negative epsilon": (["--label-smoothing", "-0.1"], ["--label-smoothing"]),
    "no warm-up": (["--warmup-updates", "0"], ["--warmup-updates"]),
    "no factor": (["--lr-factor", "0"], ["--lr-factor"]),
    "rate that is ignored": (["--lr", "0.001"], ["--lr 0.001", "--lr-factor"]),
}


def refusal(data, save_dir, options: List[str]) -> str:
    """What fairseq-train with these options is refused with."""
    with pytest.raises(ConfigError) as refused:
        stock.train(data, save_dir, "--max-update", "1", *options)
    return str(refused.value)


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_names_the_option(case, tiny_data_bin, tmp_path):
    options, named = CASES[case]
    sentence = refusal(tiny_data_bin, tmp_path, options)
    assert all(name in sentence for name in named), sentence
    assert "\n" not in sentence and len(sentence) < 250
    assert list(tmp_path.glob("*.pt")) == []


def test_the_models_options_are_refused_before_data_is_read(tiny_data_bin, tmp_path):
    """A data-bin with dictionaries and nothing else: the data would be missed right after."""
    for language in ("en", "de"):
        words = (tiny_data_bin / f"dict.{language}.txt").read_bytes()
        (tmp_path / f"dict.{language}.txt").write_bytes(words)
    languages = ["--source-lang", "en", "--target-lang", "de"]
    assert "--dropout" in refusal(tmp_path, tmp_path, [*languages, "--dropout", "1"])
    with pytest.raises(FileNotFoundError):
        stock.train(tmp_path, tmp_path, "--max-update", "1", *languages)


def test_two_dictionaries_for_one_matrix(tiny_text, tmp_path):
    """The flag of fairseq-preprocess that mends it is named, and the option for two matrices."""
    data = preprocess(tiny_text, tmp_path / "data", "--nwordstgt", "8")
    sentence = refusal(data, tmp_path / "run", [])
    assert "16 types" in sentence and "8 types" in sentence
    assert "--joined-dictionary" in sentence and "--untie-embeddings" in sentence
    assert "\n" not in sentence


def test_the_factor_that_is_proposed_has_the_same_peak(tiny_data_bin, tmp_path):
    """Equation 3 peaks at factor · (d_model · warmup)^-0.5: here d_model 32, warm-up 50."""
    sentence = refusal(tiny_data_bin, tmp_path, ["--lr", "0.002"])
    factor = float(sentence.partition("--lr-factor ")[2].split()[0])
    assert factor * (32 * 50) ** -0.5 == pytest.approx(0.002, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
def test_bf16_of_fairseq_names_ours(flag, tiny_data_bin, tmp_path, plugin_dir):
    """It would become TPU mode; our task refuses it before the first update."""
    command = [sys.executable, str(Path(sys.executable).parent / "fairseq-train")]
    command += [str(tiny_data_bin), "--user-dir", str(plugin_dir), *stock.SMALL, flag]
    command += ["--task", "vaswani_translation", "--max-tokens", "300", "--cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert flag in last and "--precision bf16" in last
    assert not list(tmp_path.rglob("*.pt"))
