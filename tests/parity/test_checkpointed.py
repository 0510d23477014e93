"""``--checkpoint-activations``: the same loss and gradients, from less that is kept."""

from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from tests.models import batch, small_model
from transformer_plugin.checkpointed import CheckpointedLayer
from transformer_plugin.checks import check_model_config
from transformer_plugin.config import ConfigError, VaswaniTransformerConfig


def outcome(**options: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    """Return the results of a training pass with dropout.

    They are the logits, all gradients, and the bytes kept for these.
    """
    model = small_model(0, dropout=0.3, attention_dropout=0.1, **options).train()
    source, previous, _ = batch()
    kept = 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    torch.manual_seed(3)
    with saved_tensors_hooks(count, lambda tensor: tensor):
        logits, _ = model(source, None, previous)
    logits.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return logits, gradients, kept


@pytest.mark.parametrize("impl", ["auto", "readable"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_loss_and_gradients_are_the_same_and_less_is_kept(impl: str, norm_first: bool) -> None:
    options = {"attention_impl": impl, "encoder_normalize_before": norm_first}
    logits, gradients, kept = outcome(**options)
    again, checkpointed, kept_then = outcome(checkpoint_activations=True, **options)
    torch.testing.assert_close(again, logits, rtol=0, atol=0)
    torch.testing.assert_close(checkpointed, gradients, rtol=0, atol=0)
    assert kept_then < kept / 2


def test_attention_weights_are_those_of_one_pass() -> None:
    model = small_model(checkpoint_activations=True).train()
    source, previous, _ = batch()
    assert any(isinstance(module, CheckpointedLayer) for module in model.modules())
    _, extra = model(source, None, previous, need_head_weights=True)
    assert len(extra["cross_attention"]) == len(model.decoder.layers)


def test_a_compiled_model_is_not_checkpointed() -> None:
    cfg = VaswaniTransformerConfig()
    cfg.compile = cfg.checkpoint_activations = True
    with pytest.raises(ConfigError, match="cannot be used together"):
        check_model_config(cfg)
