"""Average the parameters of several checkpoints of one run into one checkpoint (section 6.1).

The paper averages the last 5 checkpoints of the base model and the last 20 of the big one, ten
minutes apart. Given a run, the last N are chosen by the update count inside the files; given
files, those are taken. fairseq-generate decodes the result; it holds no optimizer state, so
training cannot go on from it.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from vaswani.errors import UserError
from vaswani.experiment import spelt
from vaswani.files import atomic_write

DEFAULT_LAST = 5
#: the names that fairseq-train gives its checkpoints; averages have others
TRAINED = re.compile(r"checkpoint(\d+|_\d+_\d+|_last|_best|\.best_.+)\.pt")
#: what decoding needs of a checkpoint besides its parameters
KEPT = ("args", "cfg", "criterion", "optimizer_history", "task_state")
#: model options that change how, not what, is computed: a resumed run may change them
MAY_CHANGE = {"attention_impl", "init", "precision"}


@dataclass(frozen=True)
class Checkpoint:
    """What is known of a checkpoint without its tensors.

    ``run``: option → value, equal in all checkpoints of one run (see ``run_options``).
    """

    path: Path
    updates: int
    run: Mapping[str, Any]
    is_average: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``vaswani average``."""
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="RUN|CHECKPOINT",
        help="one run (a folder, or its name under runs/), or two or more checkpoint files",
    )
    parser.add_argument(
        "--last",
        type=int,
        metavar="N",
        help=f"of a run, how many checkpoints, counted from its end (default {DEFAULT_LAST})",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="the checkpoint to write (default checkpoint_average_lastN.pt beside the inputs)",
    )


def run(args: argparse.Namespace) -> int:
    """Choose, average, write."""
    import torch

    chosen, name = choose(args.inputs, args.last)
    check_one_run(chosen)
    output = Path(args.output) if args.output else chosen[-1].path.with_name(name)
    check_output(output)
    averaged = averaged_checkpoint(chosen)
    with atomic_write(output, "wb") as stream:
        torch.save(averaged, stream)
    updates = ", ".join(str(checkpoint.updates) for checkpoint in chosen)
    print(f"{output}: the average of {len(chosen)} checkpoints (updates {updates})")
    return 0


# ---- choosing -------------------------------------------------------------------------------


def choose(inputs: Sequence[str], last: Optional[int]) -> Tuple[List[Checkpoint], str]:
    """The checkpoints to average, fewest updates first, and a name for the result."""
    folder = run_folder(inputs[0]) if len(inputs) == 1 else None
    if folder is not None:
        count = DEFAULT_LAST if last is None else last
        names = sorted(path for path in folder.glob("*.pt") if TRAINED.fullmatch(path.name))
        found = select_last([describe(path) for path in names], count, str(folder))
        return found, f"checkpoint_average_last{count}.pt"
    if last is not None:
        raise UserError("--last chooses within one run: leave it out with checkpoint files")
    for path in map(Path, inputs):
        if path.is_dir():
            raise UserError(f"{path} is a folder: give one run, or checkpoint files only")
        if not path.is_file():
            raise UserError(f"there is no checkpoint or run '{path}'")
    found = select_named([describe(Path(path)) for path in inputs])
    return found, f"checkpoint_average_of{len(found)}.pt"


def run_folder(name: str) -> Optional[Path]:
    """The folder of a run's checkpoints, given as a path or as a name under ./runs; or None."""
    for folder in (Path(name), Path("runs") / name, Path("runs") / spelt(name)):
        if folder.is_dir():
            inside = folder / "checkpoints"
            return inside if inside.is_dir() else folder
    return None


def select_last(checkpoints: Sequence[Checkpoint], count: int, where: str) -> List[Checkpoint]:
    """The last ``count`` by updates, fewest first; files of the same update count once.

    (checkpoint_last.pt and checkpoint_best.pt are copies of others, or stand alone where an
    epoch's file was not kept.)

    Raises:
        UserError: fewer than two asked for, or more than there are.
    """
    if count < 2:
        raise UserError(f"--last must be at least 2, not {count}: there is nothing to average")
    by_updates: Dict[int, Checkpoint] = {}
    for checkpoint in checkpoints:
        by_updates.setdefault(checkpoint.updates, checkpoint)
    updates = sorted(by_updates)
    if len(updates) < count:
        listed = f" (updates: {', '.join(map(str, updates))})" if updates else ""
        remedy = f"give --last {len(updates)}, or train longer" if updates[1:] else "train longer"
        raise UserError(
            f"{count} checkpoints were asked for, but {where} has {len(updates)}{listed}: {remedy}"
        )
    return [by_updates[number] for number in updates[-count:]]


def select_named(checkpoints: Sequence[Checkpoint]) -> List[Checkpoint]:
    """All of them, fewest updates first; UserError for one, an average, or an update twice."""
    if len(checkpoints) < 2:
        raise UserError(
            f"{checkpoints[0].path} is a single checkpoint: give a run, or two checkpoints or more"
        )
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.updates)
    for checkpoint in ordered:
        if checkpoint.is_average:
            raise UserError(f"{checkpoint.path} is an average itself: give what it was made of")
    for before, after in zip(ordered, ordered[1:], strict=False):
        if before.updates == after.updates:
            raise UserError(
                f"{before.path} and {after.path} are of the same update ({after.updates}) and "
                "would count twice: leave one out"
            )
    return ordered


def describe(path: Path) -> Checkpoint:
    """Read what ``Checkpoint`` tells of a file; CheckpointError or UserError if it cannot be."""
    from transformer_plugin.checkpoints import load_checkpoint

    state = load_checkpoint(path, mapped=True)
    updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    if updates is None:
        raise UserError(f"{path} does not tell after how many updates it was saved")
    return Checkpoint(path, updates, run_options(state), "averaged_updates" in state)


def run_options(state: Mapping[str, Any]) -> Dict[str, Any]:
    """What marks a run: the model's name and options, the languages, and the seed.

    The size of the dictionaries shows in the shapes of the parameters. fairseq's own
    architectures store all options of the command line as the model's; those that belong to
    another section (save_dir, max_update …) are left out, since a resumed run may change them.
    """
    cfg = state.get("cfg") or {}
    model = cfg.get("model") or state.get("args") or {}
    model = model if isinstance(model, dict) else vars(model)
    sections = {name: part for name, part in cfg.items() if isinstance(part, dict)}
    elsewhere = {key for name, part in sections.items() if name != "model" for key in part}
    elsewhere |= {*cfg, *MAY_CHANGE, "_name", "arch"}
    options = {name: value for name, value in model.items() if name not in elsewhere}
    options["architecture"] = model.get("_name", model.get("arch"))
    for section, name in (("common", "seed"), ("task", "source_lang"), ("task", "target_lang")):
        options[name] = sections.get(section, {}).get(name)
    return options


def check_one_run(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises UserError, naming the first option that differs, unless all are of one run."""
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for name in sorted(set(first.run) | set(other.run)):
            here, there = first.run.get(name), other.run.get(name)
            if here != there:
                raise UserError(
                    f"{first.path} and {other.path} are of different runs "
                    f"({name} is {here} and {there}): average checkpoints of one run"
                )


def check_output(output: Path) -> None:
    """Raises UserError if the result would replace anything but an older average."""
    from transformer_plugin.checkpoints import CheckpointError

    if not output.exists():
        return
    try:
        replaceable = describe(output).is_average
    except (CheckpointError, UserError):
        replaceable = False
    if not replaceable:
        raise UserError(f"{output} exists and is no average: choose another --output")


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

    The mean runs: mean += (x - mean) / k, in float32 (float64 for float64), and half precision is
    rounded once, at the end. What is added are differences, far smaller than the parameters, so
    float32 loses nothing that counts, and equal checkpoints have exactly themselves as mean.
    Names that share one tensor (tied embeddings) are averaged once and stay shared.

    Raises:
        UserError: names, shapes or sharing differ; the sentence starts with the label.
    """
    import torch

    mean: Dict[str, Any] = {}
    owner: Dict[str, str] = {}
    types: Dict[str, Any] = {}
    k = 0
    for label, model in models:
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
                f"{label}: {name} and {first} differ, but are one in the checkpoints before it"
            )
