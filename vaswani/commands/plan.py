"""Estimates the batch size, memory, time and FLOPs of a training run, without training.

    vaswani plan demo_en_de                             on this machine
    vaswani plan wmt14_en_de_base --gpus 2
    vaswani plan wmt14_en_de_big --gpus 8 --memory 80 --tokens-per-second 500000

The batch size is task.batch_tokens of the configuration, or, if that is not set, the batch size of
the configuration on one GPU: dataset.max_tokens × optimization.update_freq. The batch is divided
among the GPUs so that it fits into their memory. If there is prepared data, the tokens are counted
in fairseq's batches of it, otherwise they are estimated. Memory is always an estimate.
"""

from dataclasses import dataclass

from vaswani.common.options import argument
from vaswani.planning.hardware import Hardware


@dataclass(frozen=True, kw_only=True)
class Options(Hardware):
    """An experiment, and the hardware."""

    config: str = argument("CONFIG", "a name in configs/, or a YAML file")
    overrides: list[str] = argument(
        "key=value", "section.key=value, as for 'vaswani train'", default=[]
    )


def run(options: Options) -> int:
    """Compute the plan and print it."""
    from vaswani.planning.training_plan import table, training_plan

    print(table(training_plan(options.config, options.overrides, options)))
    return 0
