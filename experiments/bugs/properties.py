"""Two properties of the model's code, which no loss and no score shows; one line of JSON.

    python -m experiments.bugs.properties

``python -m experiments.bugs.quiz --properties`` runs it in copies of the sources, each with a
planted bug. The model is small and has random parameters: the properties hold for any parameters,
or are lost for any.
"""

import json
from typing import Any

import torch

from vaswani_transformer import Transformer, base
from vaswani_transformer.cache import DecoderCache
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.vocabulary import EOS, PAD

TOLERANCE = 1e-3
"""Rounding of logits near 1 is a hundredth of it; a bug changes them by a hundred times as much."""
VOCABULARY = 30


def are_equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors of logits are equal within rounding."""
    return bool((first - second).abs().max() < TOLERANCE)


@torch.no_grad()
def properties() -> dict[str, Any]:
    """Return whether a model has two properties.

    Decoding step by step computes the logits of one pass; and a sentence has the same logits alone
    as beside a longer one.
    """
    torch.manual_seed(1)
    model = Transformer(base(layers=2, d_model=64, d_ff=128, heads=4), VOCABULARY, VOCABULARY)
    use_fast_kernels(model)
    model.eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:  # larger than initial ones: attention has to matter
            parameter.mul_(2)
    source = torch.randint(4, VOCABULARY, (2, 9))
    target = torch.randint(4, VOCABULARY, (2, 6))
    target[:, 0] = EOS
    memory = model.encoder(source)
    one_pass = model.decoder(target, memory)
    cache = DecoderCache(layers=2)
    steps = [model.decoder.step(target[:, place], memory, cache) for place in range(6)]
    padded = source.clone()
    padded[0, 5:] = PAD
    alone = model(padded[:1, :5], target[:1])
    return {
        "steps_are_one_pass": are_equal(torch.stack(steps, dim=1), one_pass),
        "neighbours_change_nothing": are_equal(model(padded, target)[:1], alone),
    }


if __name__ == "__main__":
    print(json.dumps(properties()))
