"""Section 5.4: the label-smoothed loss by hand, and what its registered shell logs."""

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Optional

import pytest
import torch
from fairseq.criterions import build_criterion
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from omegaconf import OmegaConf
from torch import Tensor

from tests.models import task
from tests.processes import ROOT, begin, finish, leave_after
from transformer_plugin.config import ConfigError
from transformer_plugin.criterion import (
    VaswaniLabelSmoothedCrossEntropy,
    label_smoothed_loss,
    places,
)

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


def sample(target: Tensor) -> Dict[str, Any]:
    return {"net_input": {}, "target": target, "ntokens": int(target.ne(PAD).sum())}


def reduced(*logs: Dict[str, Any]) -> Any:
    """The meters after fairseq's metrics took in the logs of several processes."""
    with metrics.aggregate(new_root=True) as meters:
        VaswaniLabelSmoothedCrossEntropy.reduce_metrics(list(logs))
    return meters


def test_cross_entropy_with_the_smoothed_distribution() -> None:
    """-Σ q(v) log p(v) with q = 0.7 on the right class and 0.3 / 3 on each of the other three."""
    probs = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64)
    loss, nll = label_smoothed_loss(probs.log(), torch.tensor([2]), 0.3, padding_idx=-1)
    # in bits, -log2 p is 1, 2, 3, 3
    assert loss.item() / math.log(2) == pytest.approx(0.7 * 3 + 0.1 * (1 + 2 + 3), abs=1e-12)
    assert nll.item() / math.log(2) == pytest.approx(3, abs=1e-12)


def test_the_least_loss_is_the_entropy_of_the_target() -> None:
    """At p = q: 1.387 nats for ε = 0.1 and V = 40,960 (what tensor2tensor subtracts)."""
    classes, epsilon = 40960, 0.1
    q = torch.full((1, classes), epsilon / (classes - 1), dtype=torch.float64)
    q[0, 7] = 1 - epsilon
    logits = q.log().requires_grad_()
    loss, _ = label_smoothed_loss(logits.log_softmax(-1), torch.tensor([7]), epsilon, PAD)
    loss.backward()
    entropy = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 40959)
    assert loss.item() == pytest.approx(entropy, abs=1e-9)
    assert loss.item() == pytest.approx(1.387, abs=5e-4)
    assert logits.grad.abs().max() < 1e-9


def test_pads_count_for_nothing() -> None:
    """Whatever stands on a pad, even infinities, changes neither the loss nor the gradient."""
    logits = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[2, 3, PAD], [4, PAD, PAD]])
    real = target.ne(PAD)
    expected, _ = label_smoothed_loss(logits.log_softmax(-1)[real], target[real], 0.1, PAD)
    log_probs = logits.log_softmax(-1)
    log_probs[~real] = -math.inf
    log_probs.requires_grad_()
    loss, nll = label_smoothed_loss(log_probs, target, 0.1, PAD)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert math.isfinite(nll.item())
    assert (log_probs.grad[~real] == 0).all()
    assert (log_probs.grad[real] != 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits(dtype: torch.dtype) -> None:
    """500 tokens of 10 nats, each with 220,260 nats over all classes.

    fp16 ends at 65,504, and bf16 has 8 bits to count with.
    """
    logits = torch.zeros(1, 500, 22026, dtype=dtype)  # e^10 classes, all alike
    target = torch.full((1, 500), 5)
    loss, _, log = criterion()(FixedOutput(logits), sample(target))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(500 * math.log(22026), rel=1e-5)
    assert log["nll_loss"].item() == pytest.approx(500 * math.log(22026), rel=1e-5)


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, 1.5, math.nan])
def test_epsilon_out_of_range(epsilon: float) -> None:
    """Refused when fairseq builds the criterion, before data is read."""
    cfg = {
        "_name": "vaswani_label_smoothed_cross_entropy",
        "label_smoothing": epsilon,
        "sentence_avg": False,
    }
    with pytest.raises(ConfigError, match=r"--label-smoothing must be in \[0, 1\), not"):
        build_criterion(OmegaConf.create(cfg), task())


def test_what_is_logged() -> None:
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


def test_saved_meters_are_plain_numbers() -> None:
    """A checkpoint must load without trusting numpy's or anyone's classes."""
    model = FixedOutput(torch.zeros(2, 3, 8)).eval()
    _, _, log = criterion()(model, sample(torch.full((2, 3), 4)))
    saved = reduced(log).state_dict()
    names = set()
    for _, name, _, meter in saved:
        names.add(name)
        assert {type(value) for value in meter.values()} <= {float, int, type(None)}, name
    assert {"loss", "nll_loss", "accuracy"} <= names


def _rank(rank: int, folder: str) -> None:
    """One of two gloo processes: sum the logs as fairseq's trainer does, and note the result."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    target = torch.tensor([[2, 3]]) if rank == 0 else torch.tensor([[2, PAD]])
    _, _, log = criterion()(FixedOutput(torch.zeros(1, 2, 8)).eval(), sample(target))
    group: Optional[Any] = torch.distributed.group.WORLD
    total = distributed_utils.all_reduce_dict(log, torch.device("cpu"), group=group)
    meters = reduced(total)
    torch.save(meters.get_smoothed_values(), f"{folder}/{rank}.pt")
    leave_after(Path(folder) / f"{1 - rank}.pt")


def test_two_processes_on_gloo(tmp_path) -> None:
    """Summed over processes as plain numbers: 3 tokens, each of 3 bits, class 0 never right."""
    assert VaswaniLabelSmoothedCrossEntropy.logging_outputs_can_be_summed() is True
    code = "import sys; from tests.unit.test_criterion import _rank; "
    code += "_rank(int(sys.argv[1]), sys.argv[2])"
    ranks = [begin([sys.executable, "-c", code, str(rank), str(tmp_path)], ROOT) for rank in (0, 1)]
    message = finish(*ranks)
    assert [process.returncode for process in ranks] == [0, 0], message
    for rank in (0, 1):
        values = torch.load(tmp_path / f"{rank}.pt")
        expected = {"loss": 3.0, "nll_loss": 3.0, "accuracy": 0.0, "ppl": 8.0}
        assert dict(values) == expected


def test_works_with_a_model_that_normalises_itself() -> None:
    """The loss sees what ``get_normalized_probs`` says, not the raw output."""

    class HalfCertain(FixedOutput):
        def get_normalized_probs(
            self, net_output: Any, log_probs: bool, sample: Any = None
        ) -> Tensor:
            return torch.full_like(net_output, 0.5).log()

    model = HalfCertain(torch.randn(1, 2, 2))
    loss, _, _ = criterion(0.2)(model, sample(torch.zeros(1, 2, dtype=torch.long)))
    assert loss.item() == pytest.approx(2 * math.log(2))


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
