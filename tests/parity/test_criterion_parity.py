"""Section 5.4: our loss is fairseq's ``label_smoothed_cross_entropy``, in value and gradient."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fairseq.criterions import FairseqCriterion, build_criterion
from omegaconf import OmegaConf
from torch import nn

import transformer_plugin  # noqa: F401  (registers the criterion)
from tests.models import sample, small_model, task
from tests.parity.test_fairseq_transformer import reference
from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy, computes_losses
from transformer_plugin.model import VaswaniTransformerModel

OURS, FAIRSEQS = "vaswani_label_smoothed_cross_entropy", "label_smoothed_cross_entropy"


def fairseqs_transformer() -> nn.Module:
    return reference(small_model(), keep_positions=True)


def criterion(name: str, sentence_avg: bool = False) -> FairseqCriterion:
    """Build a criterion by its registered name, as fairseq does."""
    cfg = {"_name": name, "label_smoothing": 0.1, "sentence_avg": sentence_avg}
    return build_criterion(OmegaConf.create(cfg), task())


def loss_and_gradients(
    name: str, model: nn.Module, sentence_avg: bool
) -> tuple[torch.Tensor, int, dict[str, torch.Tensor], dict[str, Any]]:
    """Return the results that fairseq's trainer gets from a criterion."""
    model.train()
    model.zero_grad()
    loss, sample_size, log = criterion(name, sentence_avg)(model, sample())
    loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), sample_size, gradients, log


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


def test_features_never_leave_the_model_as_logits(monkeypatch: Any) -> None:
    """Training and validation of our own model project no pads, and no [B, T, V] at once."""
    model = small_model()
    monkeypatch.setattr(VaswaniLabelSmoothedCrossEntropy, "loss_of_log_probs", None)
    model.decoder.output_projection.register_forward_pre_hook(lambda *_: pytest.fail("projected"))
    for training in (True, False):
        loss, _, _ = criterion(OURS)(model.train(training), sample())
        assert float(loss.detach()) > 0


def test_the_way_of_the_loss_is_decided_once_for_all_batches_of_an_epoch(monkeypatch: Any) -> None:
    """Anew for another model, and where training gives way to validation."""
    models = []

    def decide(model: Any) -> bool:
        models.append(model)
        return computes_losses(model)

    monkeypatch.setattr("transformer_plugin.criterion.computes_losses", decide)
    own = small_model()
    other = small_model()
    ours = criterion(OURS)
    for training in (True, True, False, False, True):
        ours(own.train(training), sample())
    ours(other, sample())
    assert models == [own, own, own, other]
    assert not list(ours.children()), "the model would be saved with the criterion"


class Adapted(nn.Linear):
    """An output layer with something of its own after the matrix, as LoRA's have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x[..., :1] * torch.arange(24)


def override(part: Any, name: str, function: Callable[..., Any]) -> None:
    """Let a subclass of its own be the class of ``part``, with a method on top of the original."""
    original = getattr(type(part), name)
    own = {name: lambda self, *args, **kwargs: function(original(self, *args, **kwargs))}
    part.__class__ = type("Own", (type(part),), own)


def bent(logits: torch.Tensor) -> torch.Tensor:
    """Distort logits, or log-probabilities, so that they are no product."""
    return (logits * 2).log_softmax(-1)


def adapt(model: VaswaniTransformerModel) -> None:
    matrix = model.decoder.output_projection.weight
    model.decoder.output_projection = Adapted(matrix.size(1), matrix.size(0), bias=False)
    model.decoder.output_projection.weight = matrix


@pytest.mark.parametrize(
    "change",
    [
        adapt,
        lambda model: override(model.decoder, "output_layer", bent),
        lambda model: override(model.decoder, "get_normalized_probs", bent),
        lambda model: override(model.decoder, "forward", lambda out: (bent(out[0]), out[1])),
        lambda model: override(model, "get_normalized_probs", bent),
        lambda model: override(model, "get_normalized_probs_scriptable", bent),
        lambda model: override(model, "get_targets", lambda target: target.clamp(max=9)),
        lambda model: setattr(model.decoder, "output_layer", lambda x: bent(x.repeat(1, 1, 2))),
    ],
    ids=["projection", "layer", "probs", "forward", "model", "scriptable", "targets", "instance"],
)
def test_loss_of_a_model_with_an_output_of_its_own(change: Callable[[Any], None]) -> None:
    """Loss and gradients are those of its own probabilities, as with the readable switch."""
    found = []
    for choice in ("auto", "readable"):
        model = small_model(attention_impl=choice).double()
        change(model)
        loss, _, gradients, _ = loss_and_gradients(OURS, model, sentence_avg=False)
        found.append((loss, gradients))
    plain, *_ = loss_and_gradients(OURS, small_model(), sentence_avg=False)
    assert abs(float(found[1][0] - plain)) > 0.1, "the change does nothing"
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
