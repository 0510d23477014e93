"""The mean of several checkpoints' parameters (section 6.1): exact, and in little memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from transformer_plugin.checkpoints import load_checkpoint, not_finite
from vaswani.common.errors import UserError
from vaswani.training.checkpoints import Checkpoint

#: what decoding needs of a checkpoint besides its parameters
FOR_DECODING = ("args", "cfg", "criterion", "optimizer_history", "task_state")


def averaged_checkpoint(checkpoints: Sequence[Checkpoint]) -> dict[str, object]:
    """Return a checkpoint for decoding: the mean of the parameters, and the rest of the last one.

    Two models are in memory at a time: the mean so far, and the one being added.
    """
    models = ((str(checkpoint.path), model_of(checkpoint)) for checkpoint in checkpoints)
    mean = average_models(models)
    last = load_checkpoint(checkpoints[-1].path, mapped=True)
    return {
        **{key: last[key] for key in FOR_DECODING if key in last},
        "model": mean,
        "extra_state": {},  # fairseq looks for it
        "averaged_updates": [checkpoint.updates for checkpoint in checkpoints],
    }


def model_of(checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """Return a checkpoint's parameters, without the optimizer's two numbers for each of them."""
    model: Mapping[str, Tensor] = load_checkpoint(checkpoint.path, mapped=True)["model"]
    return model


def average_models(models: Iterable[tuple[str, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    """Average each floating-point tensor over (label, name → tensor); take the last integers.

    See :func:`running_means`, of which this is the last.
    """
    mean: dict[str, Tensor] = {}
    for mean in running_means(models):  # noqa: B007
        pass
    return mean


def running_means(
    models: Iterable[tuple[str, Mapping[str, Tensor]]],
) -> Iterator[dict[str, Tensor]]:
    """Yield the mean so far after each model; the next model changes it in place.

    mean += (x - mean) / k, in float32 (float64 for float64); half precision is rounded once, at the
    end. The terms added are differences, far smaller than the parameters, so float32 loses nothing
    that matters, and the mean of equal checkpoints is exactly the same. Names that share one tensor
    (tied embeddings) are averaged once and stay shared.

    Raises:
        UserError: there is a NaN or infinity; the sentence starts with the label.
    """
    mean: dict[str, Tensor] = {}
    owner: dict[str, str] = {}
    k = 0
    for label, model in models:
        bad = not_finite(model)
        if bad:
            raise UserError(f"{label} has NaN or infinity in {bad}: average other checkpoints")
        k += 1  # noqa: SIM113 (enumerate() would hold on to a model while the next is read)
        if k == 1:
            owner = owners(model)
            halves = (torch.float16, torch.bfloat16)
            for name in owner.values():
                half = model[name].dtype in halves
                mean[name] = model[name].to(torch.float32 if half else model[name].dtype, copy=True)
        else:
            for name, tensor in mean.items():
                if tensor.is_floating_point():
                    tensor.lerp_(model[name].to(tensor.dtype), 1 / k)
                else:
                    tensor.copy_(model[name])
        final = {name: tensor.to(model[name].dtype) for name, tensor in mean.items()}
        del model
        yield {name: final[first] for name, first in owner.items()}


def owners(model: Mapping[str, Tensor]) -> dict[str, str]:
    """Return each name → the first name of the same tensor, which may be itself."""
    first: dict[tuple, str] = {}
    return {
        name: first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name)
        if tensor.numel()
        else name
        for name, tensor in model.items()
    }
