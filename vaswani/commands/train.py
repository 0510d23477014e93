"""Trains CONFIG, and writes runs/NAME/{checkpoints/,config.yaml,env.json,train.jsonl,train.log}.

    vaswani train demo_en_de
    vaswani train multi30k_en_de optimization.max_update=2000 run=short

The configuration, the training loop and the result are fairseq's own. An interrupted run is
resumed. A finished run is left unchanged unless its stopping conditions change. All GPUs of the
machine are used. For several machines, or several processes on a CPU, see docs/training.md.
"""

from dataclasses import dataclass

from vaswani.common.options import argument


@dataclass(frozen=True, kw_only=True)
class Options:
    """A configuration, and changes to it."""

    config: str = argument("CONFIG", "a name in configs/, or a YAML file")
    overrides: list[str] = argument(
        "key=value",
        "section.key=value overrides a value of CONFIG; run=NAME sets the output folder to "
        "runs/NAME",
        default=[],
    )


def run(options: Options) -> int:
    """Train the run that the arguments name."""
    from vaswani.training.training import train

    train(options.config, overrides=options.overrides)
    return 0
