"""Section 5.4: our loss is fairseq's ``label_smoothed_cross_entropy``, in value and gradient."""

from argparse import Namespace
from typing import Any, Callable, Dict, Tuple

import pytest
import torch
from fairseq.criterions import FairseqCriterion, build_criterion
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import tiny_architecture
from omegaconf import OmegaConf
from torch import nn

import transformer_plugin  # noqa: F401  (registers the criterion)
from tests.models import batch, small_model, task
from transformer_plugin.criterion import label_smoothed_loss

OURS, FAIRSEQS = "vaswani_label_smoothed_cross_entropy", "label_smoothed_cross_entropy"
PAD = 1


def sample() -> Dict[str, Any]:
    """A batch as fairseq's translation task makes it, with pads on both sides."""
    source, previous, target = batch()
    return {
        "net_input": {
            "src_tokens": source,
            "src_lengths": source.ne(PAD).sum(1),
            "prev_output_tokens": previous,
        },
        "target": target,
        "ntokens": int(target.ne(PAD).sum()),
    }


def fairseqs_transformer(**options: Any) -> TransformerModel:
    """``--arch transformer_tiny`` of fairseq."""
    args = Namespace(dropout=0.0, **options)
    tiny_architecture(args)
    torch.manual_seed(0)
    return TransformerModel.build_model(args, task())


def criterion(name: str, sentence_avg: bool = False) -> FairseqCriterion:
    """A criterion built by its registered name, as fairseq does it."""
    cfg = {"_name": name, "label_smoothing": 0.1, "sentence_avg": sentence_avg}
    return build_criterion(OmegaConf.create(cfg), task())


def loss_and_gradients(
    name: str, model: nn.Module, sentence_avg: bool
) -> Tuple[torch.Tensor, int, Dict[str, torch.Tensor], Dict[str, Any]]:
    """What fairseq's trainer gets from a criterion."""
    model.train()
    model.zero_grad()
    loss, sample_size, log = criterion(name, sentence_avg)(model, sample())
    loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), sample_size, gradients, log


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.9])
def test_formula(dtype: torch.dtype, tolerance: float, epsilon: float) -> None:
    """[B, T, V] log-probabilities with pads at the ends; sums and gradients on the logits."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4, 7, 50, generator=generator, dtype=dtype)
    target = torch.randint(2, 50, (4, 7), generator=generator)
    target[0, 3:] = target[2, 6:] = PAD
    results = []
    for formula in (
        lambda p: label_smoothed_loss(p, target, epsilon, PAD),
        lambda p: label_smoothed_nll_loss(p.view(-1, 50), target.view(-1), epsilon, PAD),
    ):
        leaf = logits.clone().requires_grad_()
        loss, nll = formula(torch.log_softmax(leaf, -1))
        loss.backward()
        results.append((loss.detach(), nll.detach(), leaf.grad))
    for ours, fairseqs in zip(*results, strict=True):
        torch.testing.assert_close(ours, fairseqs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("build", [small_model, fairseqs_transformer])
def test_registered_criterion(build: Callable[[], nn.Module], sentence_avg: bool) -> None:
    """Loss, divisor, logs and the gradient of every parameter, for our model and fairseq's."""
    model = build()
    ours = loss_and_gradients(OURS, model, sentence_avg)
    fairseqs = loss_and_gradients(FAIRSEQS, model, sentence_avg)
    assert ours[1] == fairseqs[1] == (3 if sentence_avg else 14)
    assert len(fairseqs[2]) > 20
    torch.testing.assert_close(ours[0], fairseqs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours[2], fairseqs[2], rtol=1e-5, atol=1e-5)
    assert ours[3].keys() == fairseqs[3].keys()
    for key, value in fairseqs[3].items():
        assert float(ours[3][key]) == pytest.approx(float(value), rel=1e-5), key


def test_adaptive_softmax() -> None:
    """A model whose output is no vector of logits; fairseq computes these without a gradient."""
    model = fairseqs_transformer(adaptive_softmax_cutoff="8,16").eval()
    with torch.no_grad():
        loss, _, _ = criterion(OURS)(model, sample())
        expected, _, _ = criterion(FAIRSEQS)(model, sample())
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
