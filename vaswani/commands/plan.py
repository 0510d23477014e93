"""Estimates a training on given hardware; nothing is trained.

    vaswani plan demo_en_de                             on this machine
    vaswani plan wmt14_en_de_base --gpus 2
    vaswani plan wmt14_en_de_big --gpus 8 --memory 80 --tokens-per-second 500000

The batch is the experiment's (task.batch_tokens; without it, what the experiment gives on one GPU),
divided among the GPUs by what fits into their memory. Its tokens are counted in the batches that
fairseq makes from the data; if there is no data yet, they are estimated. Memory is an estimate.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.artifact import is_report, output_file, writing
from vaswani.common.files import atomic_write
from vaswani.common.options import argument, option
from vaswani.experiment.find import find_config
from vaswani.planning.training_plan import Hardware, table, training_plan


@dataclass(frozen=True, kw_only=True)
class Options(Hardware):
    """An experiment, and the hardware."""

    config: str = argument("CONFIG", "a name in configs/, or a YAML file")
    overrides: list[str] = argument("key=value", "changes, as for 'vaswani train'", default=[])
    data: str | None = option(metavar="DIR", help="use this data-bin, not the experiment's")
    json: str | None = option(metavar="FILE", help="also write the plan to FILE")


def run(options: Options) -> int:
    """Work out the plan and print it."""
    path = None
    if options.json:
        path = output_file(
            Path(options.json),
            [find_config(options.config)],
            lambda there: is_report(there, "experiment", "gpus"),
            "plan",
        )
    plan = training_plan(options.config, options.overrides, options, options.data)
    print(table(plan))
    if path:
        with writing(path), atomic_write(path) as stream:
            json.dump(plan, stream, indent=1)
    return 0
