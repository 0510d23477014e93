"""Section 6.1: checkpoints of a real run, stopped and resumed, are averaged and decoded."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests import stock
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.folders.run import Run
from vaswani.training.checkpoints import describe
from vaswani.training.run_record import STOPPED
from vaswani.training.validation import Validation

FAIRSEQS = ["--arch", "transformer_tiny", "--share-all-embeddings"]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(stock.SMALL, id="ours"),
        pytest.param(FAIRSEQS, id="fairseq's", marks=pytest.mark.slow),
    ],
)
def test_the_average_is_the_mean_and_has_the_losses_of_training(
    tiny_data_bin: Path, tmp_path: Path, model: list[str]
) -> None:
    """Two epochs, then, resumed with another limit, a third: the last two are averaged."""
    checkpoints = tmp_path / "checkpoints"
    for limit in ("2", "3"):
        options = ["--task", "vaswani_translation", "--max-epoch", limit]
        stock.train(tiny_data_bin, checkpoints, *options, model=model)
    assert stock.vaswani("average", tmp_path, "--last", 2) == 0
    averaged = checkpoints / "checkpoint_average_last2.pt"

    inputs = [checkpoints / "checkpoint2.pt", checkpoints / "checkpoint3.pt"]
    one, other = map(stock.parameters, inputs)
    mean = stock.parameters(averaged)
    assert mean.keys() == one.keys()
    assert max((one[name] - other[name]).abs().max() for name in one) > 1e-3
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (one[name] + other[name]) / 2, rtol=1e-5, atol=1e-6)
    stored = describe(averaged)
    validation = Validation(averaged, Run(tmp_path))
    for path in inputs:
        state = load_checkpoint(path)
        found = validation.measure(state["model"])
        said = state["extra_state"]["val_loss"]  # what fairseq logged: valid_loss, to 3 digits
        assert found["loss"] == pytest.approx(said, abs=6e-4)
    updates = state["optimizer_history"][-1]["num_updates"]
    assert stored.beside[updates] == found["nll_loss"], "of the last, alone"
    own = validation.measure(mean)["nll_loss"]
    assert stored.loss == pytest.approx(own, abs=1e-5) != found["nll_loss"]
    assert averaged.stat().st_size < 0.6 * inputs[0].stat().st_size  # no optimizer state

    hypotheses = stock.results(stock.generate(tiny_data_bin, str(averaged)), "H")
    assert sorted(hypotheses) == list(range(20))


def test_the_loss_of_any_parameters_by_one_validation(trained: Path, another: Path) -> None:
    """Of these, then of others, then of these again: nothing is left of what was before.

    And of much larger parameters: it is far higher.
    """
    validation = Validation(trained, Run(trained.parent))
    models = [stock.parameters(path) for path in (trained, another, trained)]
    losses = [validation(model) for model in models]
    assert losses[0] == losses[2] < losses[1]
    said = load_checkpoint(trained)["extra_state"]["val_loss"]
    found = validation.measure(models[0])
    assert found["loss"] == pytest.approx(said, abs=6e-4)
    assert losses[0] == found["nll_loss"] < found["loss"], "without label smoothing"
    assert validation({name: 9 * value for name, value in models[0].items()}) > losses[0] + 1


def test_a_run_stopped_in_its_first_epoch_is_told_how_to_go_on(own_run: Path, cli: Any) -> None:
    """The message had an empty list of updates, and named no way to translate."""
    for path in (own_run / "checkpoints").glob("*.pt"):
        if path.name != "checkpoint_last.pt":
            path.unlink()
    last = own_run / "checkpoints" / "checkpoint_last.pt"
    saved = torch.load(last, weights_only=False)
    saved["extra_state"][STOPPED] = "SIGINT"  # as Ctrl-C saves it
    torch.save(saved, last)
    refused = cli("average", "small")
    assert refused.code == 1 and "no checkpoint to average" in refused.err
    assert "'vaswani pack' take checkpoint_last.pt" in refused.err
    assert cli("pack", "small").code == 0, "as the message says"
