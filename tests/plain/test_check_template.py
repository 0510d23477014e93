"""The template asks how a model is written; a wrong function is told what it returned.

The models here wrap the project's own in other styles.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_check import AdapterError, check, template_text
from transformer_check.findings import ERROR, PASSED
from transformer_check.subject import load

TEMPLATE = Path(template_text.__code__.co_filename).with_name("template.py")
SELECTED = ["3.1", "3.2.3", "5.1"]


class Encoder(nn.Module):
    """An encoder whose sentences are in dimension 1, and which is given a mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, mask: Tensor) -> Tensor:
        """Encode [S, B] under a mask [B, 1, 1, S] → [S, B, D]."""
        x = self.model.embedding(source.T)
        for layer in self.model.layers:
            x = layer(x, mask)
        return x.transpose(0, 1)


class Decoder(nn.Module):
    """A decoder of the same style."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, target: Tensor, memory: Tensor, mask: Tensor, later: Tensor) -> Tensor:
        """Compute logits [T, B, V] from [T, B], [S, B, D] and two masks."""
        x = self.model.embedding(target.T)
        for layer in self.model.layers:
            x = layer(x, later, memory.transpose(0, 1), mask)
        return self.model.output_layer(x).transpose(0, 1)


class InAnotherStyle(nn.Module):
    """The project's model as an encoder and a decoder, sequence first, with given masks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.encoder = Encoder(model.encoder)
        self.decoder = Decoder(model.decoder)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor, later: Tensor) -> Tensor:
        """Compute logits [T, B, V] from [S, B], [T, B] and two masks."""
        return self.decoder(target, self.encoder(source, mask), mask, later)


def template(**answers: Any) -> Any:
    """Return the template with other answers, and without functions of layers and search."""
    module = load(TEMPLATE)
    for name in ("embedding", "target_embedding", "encoder_layer", "decoder_layer", "translate"):
        setattr(module, name, None)
    for name, answer in answers.items():
        setattr(module, name, answer)
    return module


@pytest.mark.parametrize("one_class", [True, False])
def test_the_answers_of_the_template_fit_a_model_of_another_style(one_class: bool) -> None:
    adapter = template(BATCH_FIRST=False, ONE_CLASS=one_class, MAKES_MASKS=False)
    build = adapter.build
    adapter.build = lambda config: InAnotherStyle(build(config))
    card = check(adapter, chosen=SELECTED)
    assert not card.problems, card.text()
    assert {"post-norm", "causal-mask", "source-padding"} <= set(card.ids(PASSED)), card.text()


WRONG = {
    "sequence first": (
        lambda model, source, target: model(source, target).transpose(0, 1),
        r"logits\(\) returned a tensor \[5, 2, 50\]: expected a tensor of floats \[2, 5, 50\] for "
        r"\(model, .*\)\. The model is sequence first: return result\.transpose\(0, 1\)\.",
    ),
    "flat": (
        lambda model, source, target: model(source, target).flatten(0, 1),
        r"Return result\.view\(2, 5, 50\)\.",
    ),
    "tokens": (
        lambda model, source, target: model(source, target).argmax(-1),
        "Return the scores of all tokens",
    ),
    "no output layer": (
        lambda model, source, target: model(source, target)[..., :32],
        "The last dimension is 32 instead of 50",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_shape_is_told_with_the_shape_expected(mistake: str) -> None:
    logits, message = WRONG[mistake]
    with pytest.raises(AdapterError, match=message):
        check(template(logits=logits))


def test_a_wrong_shape_of_another_function_is_one_error_of_the_card() -> None:
    def embedding(model: Any, ids: Tensor) -> Tensor:
        return model.encoder.embedding(ids).transpose(0, 1)

    card = check(template(embedding=embedding), chosen=["3.4"])
    assert card.ids(ERROR) == ["adapter"]
    finding = card["adapter"]
    assert finding.found == "embedding() returned a tensor [7, 2, 32]"
    assert finding.expected.startswith("a tensor of floats [2, 7, 32] for (model, ")
    assert finding.fix == "The model is sequence first: return result.transpose(0, 1)."


def test_torch_modes_of_a_template_are_left_alone() -> None:
    check(template(), chosen=["3.4"])
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
