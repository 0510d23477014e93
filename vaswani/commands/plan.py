"""Works out what a training will take on given hardware; nothing that is trained for it is kept.

    vaswani plan demo_en_de                             on this machine; a CPU's speed is measured
    vaswani plan wmt14_en_de_base --gpus 2
    vaswani plan wmt14_en_de_big --gpus 8 --memory 80 --tokens-per-second 500000

The batch is the experiment's (task.batch_tokens; without it, what the experiment gives on one GPU),
divided among the GPUs by what fits into their memory. Its tokens are counted in the batches that
fairseq makes from the data; if there is no data yet, they are estimated. Memory is an estimate.
"""

import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from vaswani.common.artifact import is_report, output_file, writing
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write
from vaswani.common.options import argument, option
from vaswani.experiment.build_errors import named_by_section
from vaswani.experiment.find import find_config, known_configs
from vaswani.planning import arithmetic, on_cpu
from vaswani.planning.batching import (
    Batch,
    choose_batch,
    count_parameters,
    kept_by,
    most_tokens,
    training_text,
)
from vaswani.planning.conditions import memory_of_machine
from vaswani.planning.disk_plan import disk, disk_text, whole_disk

#: section 5.2: seconds per update and hours (12; 3.5 days) on 8 P100; Table 2: operations
PAPER = {"base": (0.4, 12, 3.3e18), "big": (1.0, 84, 2.3e19)}
GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Options:
    """An experiment, and the hardware."""

    config: str = argument("CONFIG", "a name in configs/, or a YAML file", known=known_configs)
    overrides: List[str] = argument("key=value", "changes, as for 'vaswani train'", default=[])
    gpus: Optional[int] = option(
        metavar="N", help="GPUs in all (this machine's; without any, its CPU)"
    )
    memory: Optional[float] = option(
        metavar="GB", help="memory per GPU (with --gpus 16, a P100's; else this machine's)"
    )
    data: Optional[str] = option(metavar="DIR", help="use this data-bin, not the experiment's")
    tokens_per_second: Optional[float] = option(
        metavar="X",
        help="target tokens per second on all GPUs together, as training logs them (wps)",
    )
    json: Optional[str] = option(metavar="FILE", help="also write the plan to FILE")


def run(options: Options) -> int:
    """Work out the plan and print it."""
    for name, value in (
        ("--gpus", options.gpus),
        ("--memory", options.memory),
        ("--tokens-per-second", options.tokens_per_second),
    ):
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{name} must be a number above 0, not {value:g}")
    path = None
    if options.json:
        path = output_file(
            Path(options.json),
            [find_config(options.config)],
            lambda there: is_report(there, "experiment", "gpus"),
            "plan",
        )
    found = plan(options)
    print(table(found))
    if path:
        with writing(path), atomic_write(path) as stream:
            json.dump(found, stream, indent=1)
    return 0


def plan(options: Options) -> Dict[str, Any]:
    """The plan as a table of plain values: bytes, seconds, tokens, operations.

    Raises:
        UserError: the experiment or data is invalid, or the hardware too small or too large for it.
    """
    from vaswani.experiment.fairseq_config import experiment_config

    path = find_config(options.config)
    overrides = [item for item in options.overrides if not item.startswith("run=")]
    config = experiment_config(path, overrides)
    if not config.dataset.max_tokens or config.optimization.max_update <= 0:
        raise UserError(f"{path}: a plan needs dataset.max_tokens and optimization.max_update")
    with named_by_section(config):
        text = training_text(config, options.data)
        sizes = arithmetic.sizes_of(config.model, len(text.task.target_dictionary))
        parameters = count_parameters(config, text.task)
    kept = kept_by(config)
    gpus, memory = hardware(options, config.common.cpu)
    most = most_tokens(sizes, parameters, memory, kept) if gpus else int(config.dataset.max_tokens)
    batch = choose_batch(config, text, max(1, gpus), most)
    found = {
        "experiment": path.stem,
        "gpus": gpus,
        "memory_gb": memory,
        "data": None if text.folder is None else str(text.folder),
        "vocabulary": sizes.vocabulary,
        "parameters": parameters,
        **vars(batch),
        "updates": config.optimization.max_update,
        "precision": "fp32" if kept.narrow == 4 else "16 bits",
        "memory_bytes": arithmetic.memory_bytes(sizes, parameters, batch.max_tokens, kept),
        "token_bytes": arithmetic.activation_bytes(sizes, kept),
        "output_bytes": arithmetic.output_bytes(sizes, batch.max_tokens, kept),
        "flops": arithmetic.training_flops(
            sizes,
            config.optimization.max_update,
            batch.source_tokens,
            batch.target_tokens,
            text.lengths,
        ),
        **disk(config.checkpoint, parameters, config.optimization.max_update, batch),
    }
    speed = options.tokens_per_second
    if not gpus:
        found.update(measured_updates=None, memory_bytes=None)
        if not speed and text.folder is not None:
            one_batch = found["flops"] / found["updates"] / batch.update_freq
            measured, speed = on_cpu.measure(path, changes(options, batch), one_batch)
            found.update(measured)
    found.update(time_and_cost(config, batch, gpus, speed))
    found.update(whole_disk(options.config, found["disk_bytes"], text.folder is None))
    found["command"] = command(options, batch, text.folder is not None)
    return found


def hardware(options: Options, cpu: bool) -> Tuple[int, float]:
    """GPUs, and GB of each (of the machine if there are none): as asked for, or this machine's.

    ``cpu``: whether the experiment leaves this machine's GPUs unused, if there are any.
    """
    import torch

    gpus = options.gpus or (0 if cpu else torch.cuda.device_count())
    if options.memory:
        return gpus, options.memory
    return gpus, 16.0 if options.gpus else memory_of_machine(gpus)


# ---- time and operations ------------------------------------------------------------------------


def paper_size(config: Any) -> Optional[str]:
    """``base`` or ``big`` if the model has those sizes; None: the paper gives no time for it."""
    model = config.model
    layers, inner = (
        (model.encoder_layers, model.decoder_layers),
        (model.encoder_ffn_embed_dim, model.decoder_ffn_embed_dim),
    )
    if layers == (6, 6):
        for name, width in (("base", 512), ("big", 1024)):
            if model.encoder_embed_dim == width and inner == (4 * width, 4 * width):
                return name
    return None


def time_and_cost(
    config: Any, batch: Batch, gpus: int, tokens_per_second: Optional[float]
) -> Dict[str, Any]:
    """Seconds, and the paper's operations: time × GPUs × sustained operations per second (Table 2).

    Without a speed, the time is for as many of the paper's P100s (5.2) as there are GPUs; for other
    sizes or a batch unlike the paper's it is not known.
    """
    updates = config.optimization.max_update
    size = paper_size(config) if getattr(config.task, "batch_tokens", 0) == 25_000 else None
    found: Dict[str, Any] = {"paper_size": size, "seconds": None, "paper_flops": None}
    found["tokens_per_second"] = tokens_per_second
    if size and gpus:
        an_update, hours, _ = PAPER[size]
        all_gpus = arithmetic.PAPER_GPUS * arithmetic.P100_FLOPS
        found["paper_flops"] = 3600 * hours * all_gpus
        found["seconds"] = updates * an_update * arithmetic.PAPER_GPUS / gpus
    if tokens_per_second:
        found["seconds"] = updates * batch.target_tokens / tokens_per_second
    return found


def command(options: Options, batch: Batch, prepared: bool) -> str:
    """The command line that trains as planned, preparing the data first if it is not there yet."""
    first = "" if prepared else f"{shlex.join(['vaswani', 'prepare', options.config])} && "
    return first + shlex.join(["vaswani", "train", options.config, *changes(options, batch)])


def changes(options: Options, batch: Batch) -> List[str]:
    """The changes to the experiment that were given or chosen."""
    chosen = [f"task.data={options.data}"] if options.data else []
    chosen.append(f"dataset.max_tokens={batch.max_tokens}")
    chosen.append(f"optimization.update_freq=[{batch.update_freq}]")
    return [*options.overrides, *chosen]


# ---- the table ------------------------------------------------------------------------------


def table(found: Dict[str, Any]) -> str:
    """The plan in lines of ``what  how much``, the command last."""
    if found["gpus"]:
        head = f"{found['experiment']} on {found['gpus']} GPUs of {found['memory_gb']:g} GB"
        takes = [("memory", memory_text(found)), *time_rows(found)]
    else:
        head, takes = on_cpu.head(found), on_cpu.rows(found)
    rows = [*batch_rows(found), *takes, ("disk", disk_text(found))]
    lines = [f"  {name:<13}{value}" for name, value in rows]
    return "\n".join([head, *lines, "", found["command"]])


def batch_rows(found: Dict[str, Any]) -> List[Tuple[str, str]]:
    """The options to give, and the tokens that each update then sees."""
    padded = found["max_tokens"] * found["update_freq"] * max(1, found["gpus"])
    if found["data"]:
        source = f"measured on {found['data']}"
    else:
        source = "estimated from WMT14's mean lengths: there is no data yet"
    rows = [
        ("max tokens", f"{found['max_tokens']:,} per {'GPU and ' * bool(found['gpus'])}batch"),
        ("update freq", f"{found['update_freq']:,}: {padded:,} padded tokens per update"),
        (
            "real tokens",
            f"{found['source_tokens']:,.0f} source and {found['target_tokens']:,.0f} target per "
            f"update, {source}",
        ),
    ]
    updates = f"{found['updates']:,}"
    if found["updates_an_epoch"]:
        updates += f", {found['updates_an_epoch']:,} per epoch"
    if found["left_out"]:
        updates += f"; {found['left_out']:,} sentences are too long for a batch and are left out"
    return [*rows, ("updates", updates)]


def memory_text(found: Dict[str, Any]) -> str:
    """The estimate, and its parts."""
    reserved, output = arithmetic.RESERVED_BYTES / GB, found["output_bytes"] / GB
    tokens = found["max_tokens"] * found["token_bytes"] / GB
    model = found["memory_bytes"] / GB - reserved - output - tokens
    return (
        f"about {found['memory_bytes'] / GB:.1f} GB of {found['memory_gb']:g} per GPU (an estimate "
        f"for {found['precision']}): {found['parameters'] / 1e6:.1f}M parameters × "
        f"{model * 1e9 / found['parameters']:.0f} bytes = {model:.1f}, {found['max_tokens']:,} "
        f"tokens × {found['token_bytes'] / 1e3:,.0f} kB = {tokens:.1f}, output and loss "
        f"{output:.1f}, reserved {reserved:.1f}"
    )


def time_rows(found: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Hours and operations, each beside the paper's."""
    size, seconds, own = found["paper_size"], found["seconds"], found["flops"]
    if seconds is None:
        time = "not known for this model: give --tokens-per-second"
    elif found["tokens_per_second"]:
        time = f"{seconds / 3600:,.1f} hours at {found['tokens_per_second']:,.0f} target tokens/s"
    else:
        time = (
            f"{seconds / 3600:,.1f} hours on {found['gpus']} of the paper's P100 "
            f"({PAPER[size][0]} s per update on {arithmetic.PAPER_GPUS}, 5.2); for other hardware "
            "give --tokens-per-second"
        )
    operations = f"{own:.1e} by the model's arithmetic, {own / found['updates']:.1e} per update"
    if seconds:
        operations += f": {own / seconds / found['gpus'] / 1e12:.1f} TFLOP/s per GPU"
    rows = [("time", time), ("operations", operations)]
    if size:
        _, hours, stated = PAPER[size]
        formula = (
            f"{hours} hours × {arithmetic.PAPER_GPUS} P100 × {arithmetic.P100_FLOPS / 1e12} TFLOP/s"
        )
        cost = f"{found['paper_flops']:.1e}"
        rows.append(("the paper's", f"{formula} = {cost} operations; Table 2 has {stated:.1e}"))
    return rows
