"""Estimates a training on given hardware; nothing is trained.

    vaswani plan demo_en_de                             on this machine
    vaswani plan wmt14_en_de_base --gpus 2
    vaswani plan wmt14_en_de_big --gpus 8 --memory 80 --tokens-per-second 500000

The batch is the experiment's (task.batch_tokens; without it, what the experiment gives on one GPU),
divided among the GPUs by what fits into their memory. Its tokens are counted in the batches that
fairseq makes from the data; if there is no data yet, they are estimated. Memory is an estimate.
"""

from dataclasses import dataclass

from vaswani.common.options import argument
from vaswani.planning.hardware import Hardware


@dataclass(frozen=True, kw_only=True)
class Options(Hardware):
    """An experiment, and the hardware."""

    config: str = argument("CONFIG", "a name in configs/, or a YAML file")
    overrides: list[str] = argument("key=value", "changes, as for 'vaswani train'", default=[])


def run(options: Options) -> int:
    """Work out the plan and print it."""
    from vaswani.planning.training_plan import table, training_plan

    print(table(training_plan(options.config, options.overrides, options)))
    return 0
