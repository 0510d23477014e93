"""Updates without walks over all modules: modes, calls and gradients are fairseq's."""

from typing import Any

import pytest
import torch
from fairseq.models import BaseFairseqModel
from fairseq.optim import FairseqOptimizer
from torch import nn

from tests.models import sample, small_model
from transformer_plugin.lean_updates import LeanUpdates, every_part
from transformer_plugin.optimizer import VaswaniAdam
from vaswani_transformer.fast import step as step_file
from vaswani_transformer.layers import FeedForward

from .test_optimizer import optimizer


def modes(model: nn.Module) -> list[bool]:
    return [part.training for part in model.modules()]


def test_every_part_is_found() -> None:
    model = small_model()
    assert set(every_part(model)) == set(model.modules())


def test_a_repeated_train_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    model.train()
    calls = []
    monkeypatch.setattr(nn.Module, "train", lambda self, mode=True: calls.append(mode))
    assert model.train() is model
    assert not calls
    model.train(False)
    assert calls


def test_train_and_eval_reach_every_part() -> None:
    """Whatever was switched apart from the rest, and a part added after the last call."""
    model: Any = small_model()
    for mode in (True, False):
        model.train(mode)
        model.decoder.layers[1].feed_forward.dropout.train(not mode)
        model.train(mode)
        assert modes(model) == [mode] * len(modes(model))
        assert model.training is mode
    model.train()
    model.encoder.layers[0].added = nn.Dropout(0.5)
    model.eval()
    assert not any(modes(model))
    model.train()
    model.encoder.layers[0].added = nn.Dropout(0.5).eval()
    model.train()
    assert all(modes(model))


class Listening(FeedForward):
    """A variant's part that follows the number of updates."""

    told: int | None = None

    def set_num_updates(self, num_updates: int) -> None:
        self.told = num_updates


def test_parts_hear_the_number_of_updates() -> None:
    """A part whose class asks for it, one added later, and a method of one module's own."""
    model: Any = small_model()
    model.set_num_updates(1)
    part = model.encoder.layers[0].feed_forward
    part.__class__ = Listening
    added = model.decoder.layers[1].added = Listening(2, 2)
    heard: list[int] = []
    model.decoder.layers[0].set_num_updates = heard.append
    model.set_num_updates(7)
    assert (part.told, added.told, heard) == (7, 7, [7])


def train_three_updates() -> dict[str, torch.Tensor]:
    """Return the weights after three updates, by the calls of fairseq's trainer."""
    model: Any = small_model(dropout=0.1)
    own = optimizer(list(model.parameters()))
    torch.manual_seed(1)
    for update in range(3):
        model.train()
        own.zero_grad()
        logits, _ = model(**sample()["net_input"])
        logits.float().square().sum().backward()
        own.multiply_grads(torch.tensor(0.3) if update else 0.3)
        own.clip_grad_norm(1.0)
        own.step()
        model.set_num_updates(update + 1)
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_updates_equal_fairseqs_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    lean = train_three_updates()
    for name in ("train", "set_num_updates"):
        monkeypatch.setattr(LeanUpdates, name, getattr(BaseFairseqModel, name))
    for name in ("zero_grad", "multiply_grads"):
        monkeypatch.setattr(VaswaniAdam, name, getattr(FairseqOptimizer, name))
    plain = train_three_updates()
    assert lean.keys() == plain.keys()
    assert all(torch.equal(lean[name], plain[name]) for name in lean)


def test_gradients_are_cleared_and_scaled() -> None:
    """A parameter without a gradient stays without one."""
    params = [nn.Parameter(torch.ones(3)) for _ in range(3)]
    own = optimizer(params)
    own.multiply_grads(2.0)
    params[0].grad = torch.tensor([1.0, 2.0, 3.0])
    params[2].grad = torch.tensor([-1.0, 0.0, 1.0])
    own.multiply_grads(torch.tensor(0.5))
    assert params[0].grad.tolist() == [0.5, 1.0, 1.5]
    assert params[1].grad is None
    assert params[2].grad.tolist() == [-0.5, 0.0, 0.5]
    own.zero_grad()
    assert all(param.grad is None for param in params)


@pytest.mark.parametrize("implementation, expected", [("auto", True), ("readable", False)])
def test_the_plugins_decoder_has_steps_of_one_function(implementation: str, expected: bool) -> None:
    """But not with ``--attention-impl readable``."""
    model: Any = small_model(attention_impl=implementation).eval()
    assert isinstance(step_file.make_step(model.decoder), step_file.DecoderStep) is expected
