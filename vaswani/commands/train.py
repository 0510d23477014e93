"""Trains one experiment; writes runs/NAME/{checkpoints/,config.yaml,env.json,train.jsonl,train.log}

    vaswani train demo_en_de
    vaswani train multi30k_en_de optimization.max_update=2000 run=short

The configuration, the training loop and the result are fairseq's own. A run that was stopped
continues; a run that is finished is left alone unless its stopping conditions change. All GPUs of
the machine are used. For several machines, or several processes on a CPU, see docs/training.md.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.find import find_config
from vaswani.common.options import argument


@dataclass(frozen=True, kw_only=True)
class Options:
    """An experiment, and changes to it."""

    config: str = argument("CONFIG", "a name in configs/, or a YAML file")
    overrides: list[str] = argument(
        "key=value",
        "section.key=value changes the experiment; run=NAME sets the folder to runs/NAME",
        default=[],
    )


def run(options: Options) -> int:
    """Check everything that can be checked first, then train."""
    from vaswani.configuration.fairseq_config import complete, experiment_config
    from vaswani.data import data_bin
    from vaswani.folders.search_options import check_experiment
    from vaswani.training import launch, run_record
    from vaswani.training.training import start_rank, train_or_skip
    from vaswani_transformer.fast.malloc import keep_freed_memory

    path = find_config(options.config)
    name, overrides = run_record.split_run(options.overrides)
    config = experiment_config(path, overrides)
    check_experiment(config)
    launch.check_machine(config)
    for key in ("finetune_from_model", "continue_once"):
        start = config.checkpoint.get(key)
        if start and not Path(start).is_file():
            raise UserError(f"checkpoint.{key}: there is no checkpoint {start}")
    target = run_record.run_of(config, name, path)
    config, remarks = data_bin.with_data_options(config)
    config = complete(config, {"checkpoint": {"save_dir": str(target.checkpoints)}})
    data = data_bin.fingerprint(config)
    keep_freed_memory()
    place = launch.find_launch(config, os.environ, launch.gpus_to_use(config))
    if place.rank == 0:
        for remark in remarks:
            print(f"warning: {remark}", file=sys.stderr)
        train_or_skip(config, data, target, place)
    else:
        start_rank(config, data, target, place, None)
    return 0
