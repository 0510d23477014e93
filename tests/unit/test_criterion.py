"""Section 5.4: what the criterion gives to fairseq's trainer, and what it logs."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from torch import Tensor

from tests.models import task
from transformer_plugin.config import ConfigError
from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy, places

PAD = 1


class FixedOutput(BaseFairseqModel):
    """A model whose logits [B, T, V] are given."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self) -> Tensor:
        return self.logits


def criterion(epsilon: float = 0.1) -> VaswaniLabelSmoothedCrossEntropy:
    return VaswaniLabelSmoothedCrossEntropy(task(), False, epsilon)


def sample(target: Tensor) -> dict[str, Any]:
    return {"net_input": {}, "target": target, "ntokens": int(target.ne(PAD).sum())}


def reduced(*logs: dict[str, Any]) -> Any:
    """Return the meters after fairseq's metrics took in the logs of several processes."""
    with metrics.aggregate(new_root=True) as meters:
        VaswaniLabelSmoothedCrossEntropy.reduce_metrics(list(logs))
    return meters


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, math.nan])
def test_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="--label-smoothing"):
        criterion(epsilon)


def test_losses_are_logged_in_bits() -> None:
    """Uniform over 8 classes: 3 bits, perplexity 8; loss per sample_size, nll per token."""
    model = FixedOutput(torch.zeros(2, 3, 8))
    target = torch.tensor([[2, 3, 4], [5, 2, PAD]])
    loss, sample_size, log = criterion()(model, sample(target))
    assert sample_size == 5
    assert log["nsentences"] == 2
    assert "n_correct" not in log  # training
    meters = reduced(log, log)
    assert meters.get_smoothed_values() == {"loss": 3.0, "nll_loss": 3.0, "ppl": 8.0}


def test_nll_is_per_token_also_when_sentences_count() -> None:
    """``--sentence-avg``: 5 tokens of 3 bits in 2 sentences; the perplexity is that of a token."""
    own = VaswaniLabelSmoothedCrossEntropy(task(), True, 0.1)
    target = torch.tensor([[2, 3, 4], [5, 2, PAD]])
    _, sample_size, log = own(FixedOutput(torch.zeros(2, 3, 8)), sample(target))
    assert sample_size == 2
    assert reduced(log).get_smoothed_values() == {"loss": 7.5, "nll_loss": 3.0, "ppl": 8.0}


def test_accuracy_in_validation() -> None:
    """3 of the 5 real tokens are the likeliest class; over two processes 6 of 10, not 3 of 4."""
    target = torch.tensor([[2, 3, 4], [5, 2, PAD]])
    guesses = torch.tensor([[2, 3, 7], [5, 3, PAD]])
    logits = torch.nn.functional.one_hot(guesses, 8).float()
    model = FixedOutput(logits).eval()
    _, _, log = criterion()(model, sample(target))
    assert (int(log["n_correct"]), int(log["total"])) == (3, 5)
    assert reduced(log).get_smoothed_value("accuracy") == pytest.approx(60.0)
    other = {**log, "n_correct": torch.tensor(1), "total": torch.tensor(15)}
    assert reduced(log, other).get_smoothed_value("accuracy") == pytest.approx(20.0)


@pytest.mark.parametrize("seed", range(5))
def test_places_of_a_known_number(seed: int) -> None:
    """A sort finds what ``nonzero`` finds, in the same order; the sums are then the same."""
    chosen = torch.rand(3000, generator=torch.Generator().manual_seed(seed)) < seed / 4
    assert torch.equal(places(chosen, int(chosen.sum())), places(chosen))


def test_reads_its_padding_index_from_the_dictionary() -> None:
    """Not every dictionary has its pad at 1."""
    words = SimpleNamespace(pad=lambda: 3)
    own = VaswaniLabelSmoothedCrossEntropy(SimpleNamespace(target_dictionary=words), False, 0.0)
    target = torch.tensor([[1, 3, 3]])
    loss, _, _ = own(FixedOutput(torch.zeros(1, 3, 4)), sample(target))
    assert loss.item() == pytest.approx(math.log(4))
