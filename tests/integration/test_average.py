"""Section 6.1: checkpoints of a real run, stopped and resumed, are averaged and decoded."""

from pathlib import Path
from typing import List

import pytest
import torch

from tests import stock
from vaswani import cli

FAIRSEQS = ["--arch", "transformer_tiny", "--share-all-embeddings"]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(stock.SMALL, id="ours"),
        pytest.param(FAIRSEQS, id="fairseq's", marks=pytest.mark.slow),
    ],
)
def test_train_resume_average_generate(
    tiny_data_bin: Path, tmp_path: Path, capsys, model: List[str]
) -> None:
    """Two epochs, then, resumed with another limit, a third: the last two are averaged."""
    checkpoints = tmp_path / "checkpoints"
    for limit in ("2", "3"):
        stock.train(tiny_data_bin, checkpoints, "--max-epoch", limit, model=model)
    assert cli.main(["average", str(tmp_path), "--last", "2"]) == 0
    averaged = checkpoints / "checkpoint_average_last2.pt"
    assert f"{averaged}: the average of 2 checkpoints" in capsys.readouterr().out

    inputs = [checkpoints / "checkpoint2.pt", checkpoints / "checkpoint3.pt"]
    one, other = map(stock.parameters, inputs)
    mean = stock.parameters(averaged)
    assert mean.keys() == one.keys()
    assert max((one[name] - other[name]).abs().max() for name in one) > 1e-3
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (one[name] + other[name]) / 2, rtol=1e-5, atol=1e-6)
    assert averaged.stat().st_size < 0.6 * inputs[0].stat().st_size  # no optimizer state

    hypotheses = stock.results(stock.generate(tiny_data_bin, str(averaged)), "H")
    assert sorted(hypotheses) == list(range(20))
    assert cli.main(["average", str(tmp_path), "--last", "4"]) == 1
    assert "4 checkpoints were asked for, but" in capsys.readouterr().err
