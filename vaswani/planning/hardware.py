"""The hardware that a training is planned for, as options of a command."""

from dataclasses import dataclass

from vaswani.common.options import Checked, option


@dataclass(frozen=True, kw_only=True)
class Hardware(Checked):
    """What the training would run on; a command adds these to its options."""

    gpus: int | None = option(
        metavar="N",
        help="number of GPUs (default: those of this machine, or its CPU if it has none)",
        least=1,
    )
    memory: float | None = option(
        metavar="GB",
        help="memory per GPU (default: 16 GB with --gpus, else this machine's)",
        above=0,
    )
    tokens_per_second: float | None = option(
        metavar="X",
        help="training speed in target tokens per second, of all GPUs together (wps in "
        "the training log)",
        above=0,
    )
