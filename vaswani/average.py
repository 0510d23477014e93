"""Average the parameters of several checkpoints of one run into one checkpoint (section 6.1).

The paper averages the last 5 checkpoints of the base model and the last 20 of the big one, ten
minutes apart. Given a run, the last N are chosen by the update count inside the files; given
files, it averages those. fairseq-generate can decode the result; it holds no optimizer state, so
training cannot continue from it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from vaswani.checkpoints import (
    DEFAULT_LAST,
    Checkpoint,
    check_one_run,
    choose,
    describe,
    is_name_of_training,
)
from vaswani.errors import UserError
from vaswani.options import argument, option
from vaswani.outputs import output_file, writing

#: what decoding needs of a checkpoint besides its parameters
KEPT = ("args", "cfg", "criterion", "optimizer_history", "task_state")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to average, and where to write it."""

    inputs: List[str] = argument(
        "RUN|CHECKPOINT",
        "one run (a folder, or its name under runs/), or two or more checkpoint files",
    )
    last: Optional[int] = option(
        metavar="N",
        help=f"how many of a run's last checkpoints to average (default {DEFAULT_LAST})",
    )
    output: Optional[str] = option(
        metavar="FILE",
        help="the checkpoint to write (default checkpoint_average_lastN.pt beside the inputs)",
    )


def run(options: Options) -> int:
    """Choose, average, write."""
    chosen, name = choose(options.inputs, options.last)
    check_one_run(chosen)
    output = Path(options.output) if options.output else chosen[-1].path.with_name(name)
    place = check_output(output, chosen)
    write(averaged_checkpoint(chosen), place)
    updates = ", ".join(str(checkpoint.updates) for checkpoint in chosen)
    print(f"{output}: the average of {len(chosen)} checkpoints (updates {updates})")
    return 0


def check_output(output: Path, chosen: Sequence[Checkpoint]) -> Path:
    """The file to write; raises UserError if it would replace anything but an older average."""
    if is_name_of_training(output):
        raise UserError(
            f"{output} is a name that training gives its own checkpoints: choose another --output"
        )
    return output_file(output, [one.path for one in chosen], is_average, "average")


def is_average(path: Path) -> bool:
    """Whether a file is an averaged checkpoint."""
    from transformer_plugin.checkpoints import CheckpointError

    try:
        return describe(path).averaged > 0
    except (CheckpointError, UserError):
        return False


def write(state: Dict[str, Any], path: Path) -> None:
    """Save a checkpoint, complete or not at all.

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    from transformer_plugin.compat.saving import write_checkpoint

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(state, str(path))


# ---- averaging ------------------------------------------------------------------------------


def averaged_checkpoint(checkpoints: Sequence[Checkpoint]) -> Dict[str, Any]:
    """One checkpoint with the averaged parameters; the rest is the last one's, for decoding.

    Two models are in memory at a time: the mean so far, and the one being added.
    """
    from transformer_plugin.checkpoints import load_checkpoint

    rest: Dict[str, Any] = {}

    def models() -> Iterator[Tuple[str, Mapping[str, Any]]]:
        for checkpoint in checkpoints:
            state = load_checkpoint(checkpoint.path, mapped=True)
            model = state.pop("model")
            rest.update((key, state[key]) for key in KEPT if key in state)
            del state  # with it, the optimizer's two numbers per parameter
            yield str(checkpoint.path), model
            del model

    rest["model"] = average_models(models())
    rest["extra_state"] = {}  # fairseq looks for it
    rest["averaged_updates"] = [checkpoint.updates for checkpoint in checkpoints]
    return rest


def average_models(models: Iterable[Tuple[str, Mapping[str, Any]]]) -> Dict[str, Any]:
    """The mean of every floating-point tensor over (label, name → tensor); the last's integers.

    It is a running mean: mean += (x - mean) / k, in float32 (float64 for float64); half precision
    is rounded once, at the end. The terms added are differences, far smaller than the parameters,
    so float32 loses nothing that matters, and the mean of equal checkpoints is exactly the same.
    Names that share one tensor (tied embeddings) are averaged once and stay shared.

    Raises:
        UserError: names, shapes or sharing differ, or there is a NaN or infinity; the sentence
            starts with the label.
    """
    import torch

    from transformer_plugin.checkpoints.parameters import not_finite

    mean: Dict[str, Any] = {}
    owner: Dict[str, str] = {}
    types: Dict[str, Any] = {}
    k = 0
    for label, model in models:
        for name, tensor in model.items():
            if not isinstance(tensor, torch.Tensor):
                raise UserError(f"{label}: {name} is not a tensor, so it cannot be averaged")
        bad = not_finite(model)
        if bad:
            raise UserError(
                f"{label} has NaN or infinity in {bad}: its training diverged; average others"
            )
        k += 1  # noqa: SIM113 (enumerate() would hold on to a model while the next is read)
        if k == 1:
            owner, types = owners(model), {name: tensor.dtype for name, tensor in model.items()}
            for name in set(owner.values()):
                half = types[name] in (torch.float16, torch.bfloat16)
                mean[name] = model[name].to(torch.float32 if half else types[name], copy=True)
        else:
            check_same_shape(label, model, mean, owner)
            for name, tensor in mean.items():
                if tensor.is_floating_point():
                    tensor.lerp_(model[name].to(tensor.dtype), 1 / k)
                else:
                    tensor.copy_(model[name])
        del model
    final = {name: tensor.to(types[name]) for name, tensor in mean.items()}
    return {name: final[first] for name, first in owner.items()}


def owners(model: Mapping[str, Any]) -> Dict[str, str]:
    """Each name → the first name that shares its tensor (its own, if it shares none)."""
    first: Dict[Tuple, str] = {}
    return {
        name: first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name)
        if tensor.numel()
        else name
        for name, tensor in model.items()
    }


def check_same_shape(
    label: str, model: Mapping[str, Any], mean: Mapping[str, Any], owner: Mapping[str, str]
) -> None:
    """Raises UserError unless ``model`` has the names, shapes and sharing of the mean so far."""
    import torch

    for name in sorted(set(owner) ^ set(model)):
        where = "lacks" if name in owner else "has"
        raise UserError(f"{label} {where} {name}, unlike the checkpoints before it")
    for name, first in owner.items():
        here, there = tuple(model[name].shape), tuple(mean[first].shape)
        if here != there:
            raise UserError(f"{label}: {name} is {here}, but {there} in the checkpoints before it")
        if name != first and not torch.equal(model[name], model[first]):
            raise UserError(
                f"{label}: {name} and {first} differ, but are shared in the checkpoints before it"
            )
