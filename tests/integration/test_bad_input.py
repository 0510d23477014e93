"""Impossible options reach our code through fairseq-train: refused before data is read."""

import pytest

from tests import stock
from transformer_plugin.config import ConfigError


def refusal(data, save_dir, *options: str) -> str:
    """What fairseq-train with these options is refused with."""
    with pytest.raises(ConfigError) as refused:
        stock.train(data, save_dir, "--max-update", "1", *options)
    assert not list(save_dir.glob("*.pt"))
    return str(refused.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--encoder-embed-dim", "30", "--decoder-embed-dim", "30"], "--encoder-attention-heads"),
        (["--decoder-embed-dim", "64"], "--encoder-embed-dim"),
        (["--dropout", "1"], "--dropout"),
        (["--label-smoothing", "-0.1"], "--label-smoothing"),
        (["--warmup-updates", "0"], "--warmup-updates"),
        (["--bf16"], "--precision bf16"),
    ],
)
def test_an_impossible_option_is_named(options, named, tiny_data_bin, tmp_path):
    if "--bf16" in options:
        options = [*options, "--task", "vaswani_translation"]
    assert named in refusal(tiny_data_bin, tmp_path, *options)


def test_the_factor_that_is_proposed_has_the_same_peak(tiny_data_bin, tmp_path):
    """Equation 3 peaks at factor · (d_model · warmup)^-0.5: here d_model 32, warm-up 50."""
    sentence = refusal(tiny_data_bin, tmp_path, "--lr", "0.002")
    factor = float(sentence.partition("--lr-factor ")[2].split()[0])
    assert factor * (32 * 50) ** -0.5 == pytest.approx(0.002, rel=1e-5)
