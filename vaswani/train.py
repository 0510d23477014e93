"""Trains one experiment; leaves runs/NAME/{checkpoints/,config.yaml,env.json,train.jsonl,train.log}

    vaswani train demo_en_de
    vaswani train multi30k_en_de optimization.max_update=2000 run=short

The configuration, the training loop and the result are fairseq's own. A run that was stopped
continues; a run that is finished is left alone unless its stopping conditions change. All GPUs of
the machine are used; several machines, or several processes on a CPU: docs/training.md.
"""

import argparse
import json
import logging
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from vaswani.corpus.stage import key_of
from vaswani.distributed import BY_HAND, TORCHRUN, Launch, find_launch, heard, own_error
from vaswani.errors import UserError
from vaswani.experiment import find_config, read_yaml, spelt
from vaswani.files import atomic_write, locked, read_json
from vaswani.progress import TrainingProgress

FINISHED = "finished.json"

HOW_IT_COMPUTES = ("attention_impl", "compile", "precision")
"""Options of the model that change neither its parameters nor what it is: a run may change them."""


class Order(NamedTuple):
    """What rank 0 tells the others: whether to train, and whether from a checkpoint."""

    go: bool
    resumes: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An experiment and what to change in it."""
    parser.add_argument("config", metavar="CONFIG", help="a name in configs/, or a YAML file")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="section.key=value changes the experiment; run=NAME the folder runs/NAME",
    )


def run(args: argparse.Namespace) -> int:
    """Check everything that can be checked first, then train."""
    path = find_config(args.config)
    name, overrides = split_run(args.overrides)

    from vaswani import data_bin
    from vaswani.fairseq_config import experiment_config

    config = experiment_config(path, overrides)

    import torch

    launch = find_launch(config, os.environ, torch.cuda.device_count())
    folder = run_folder(config, name, path)
    config.checkpoint.save_dir = str(folder / "checkpoints")
    remarks = data_bin.check_data(config)
    if launch.rank == 0:
        for remark in remarks:
            print(f"warning: {remark}", file=sys.stderr)
        lead(config, folder, launch)
    else:
        start(config, folder, launch, None)
    return 0


def lead(config: Any, folder: Path, launch: Launch) -> None:
    """Rank 0: decide whether there is anything to train, keep the records, train.

    Options that are refused before the first update leave no new folder.
    """
    from transformer_plugin.config import ConfigError
    from vaswani import data_bin

    is_new = not folder.exists()
    data = data_bin.fingerprint(config)
    with locked(folder / ".lock", f"{folder} is being trained"):
        refuse_another_model(config, data, folder)
        finished = read_json(folder / FINISHED)
        resumes = last_checkpoint(folder).is_file()
        if resumes and finished.get("stop") == stop_key(config):
            if launch.kind in (TORCHRUN, BY_HAND):  # the others wait to hear it
                start(config, folder, launch, Order(False, resumes))
            print(
                f"{folder}: already trained, {finished['num_updates']:,} updates", file=sys.stderr
            )
            return
        record(config, data, folder, launch)
        try:
            start(config, folder, launch, Order(True, resumes))
        except ConfigError:
            if is_new:
                shutil.rmtree(folder)
            raise
    print(f"{folder}: trained; next: vaswani average {folder}", file=sys.stderr)


def split_run(overrides: Sequence[str]) -> Tuple[Optional[str], List[str]]:
    """``run=NAME`` apart from the overrides of the configuration."""
    names = [item[len("run=") :] for item in overrides if item.startswith("run=")]
    if "" in names:
        raise UserError("run= is empty: give a name, for example run=second")
    return names[-1] if names else None, [o for o in overrides if not o.startswith("run=")]


def run_folder(config: Any, name: Optional[str], path: Path) -> Path:
    """``run=NAME``, or the folder above ``checkpoint.save_dir``, or runs/ and the config's name."""
    if name is not None:
        return Path(name) if "/" in name else Path("runs") / name
    save_dir = Path(str(config.checkpoint.save_dir))
    return (
        save_dir.parent
        if save_dir.name == "checkpoints" and save_dir.parent.name
        else (Path("runs") / spelt(path.stem))
    )


def last_checkpoint(folder: Path) -> Path:
    """Where a run's newest state lies."""
    return folder / "checkpoints" / "checkpoint_last.pt"


def stop_key(config: Any) -> str:
    """A hash of what decides when a training ends."""
    from omegaconf import OmegaConf

    return key_of([OmegaConf.to_container(config.optimization), config.checkpoint.patience])


def refuse_another_model(config: Any, data: Dict[str, Any], folder: Path) -> None:
    """A run keeps its model, its languages and its dictionary.

    Raises:
        UserError: the folder holds a training of something else; names the first difference.
    """
    if not last_checkpoint(folder).is_file() or not (folder / "config.yaml").is_file():
        return
    from omegaconf import OmegaConf

    advice = "give the other training a folder of its own with run=NAME"
    before, now = read_yaml(folder / "config.yaml"), OmegaConf.to_container(config)
    assert isinstance(now, dict)
    # what was no option when the run began had the default's effect
    keys = [("model", key) for key in before["model"] if key not in HOW_IT_COMPUTES]
    keys += [("task", "source_lang"), ("task", "target_lang"), ("optimizer", "_name")]
    for section, key in keys:
        old, new = before[section].get(key), now[section].get(key)
        if old != new:
            raise UserError(f"{folder} was trained with {section}.{key}={old}, not {new}: {advice}")
    trained_on = read_json(folder / "env.json").get("data", {}).get("sha256", {})
    for name, digest in data["sha256"].items():
        if name.startswith("dict.") and trained_on.get(name, digest) != digest:
            raise UserError(f"{folder} was trained with another {name} than there is now: {advice}")


def record(config: Any, data: Dict[str, Any], folder: Path, launch: Launch) -> None:
    """Leave config.yaml (complete, as trained) and env.json; earlier starts stay in the latter."""
    from omegaconf import OmegaConf

    from vaswani.environment import environment

    with atomic_write(folder / "config.yaml") as stream:
        stream.write(OmegaConf.to_yaml(config))
    before = read_json(folder / "env.json")
    earlier = before.pop("earlier_starts", []) + ([before] if before else [])
    with atomic_write(folder / "env.json") as stream:
        now = {**environment(), "processes": launch.world_size, "started_by": launch.kind}
        json.dump({**now, "data": data, "earlier_starts": earlier}, stream, indent=1)


def start(config: Any, folder: Path, launch: Launch, order: Optional[Order]) -> None:
    """Take this process's place in fairseq's training; ``order`` is None but for rank 0."""
    from fairseq.distributed import utils as distributed_utils
    from omegaconf import OmegaConf
    from torch.multiprocessing.spawn import ProcessException

    config.common.log_format = "json"
    config.distributed_training.update(launch.section)
    # official fairseq's omegaconf otherwise answers None to getattr(section, key, default)
    OmegaConf.set_struct(config, True)
    if launch.world_size == 1:
        train_process(config, str(folder), order)
        return
    try:
        distributed_utils.call_main(config, train_process, folder=str(folder), order=order)
    except ProcessException as failure:
        raise own_error(failure) from None


def train_process(config: Any, folder: str, order: Optional[Order]) -> None:
    """One process of the training, with the others if there are any; rank 0 keeps the logs.

    Raises:
        UserError: the training diverged, or a machine does not see the run's folder.
    """
    from vaswani.fairseq_config import load_plugin

    load_plugin()
    rank = config.distributed_training.distributed_rank or 0
    order = heard(order)[0]
    assert order is not None
    if not order.go:
        return
    sees = order.resumes == last_checkpoint(Path(folder)).is_file()
    # all learn of it, so that none waits for one that is gone
    blind = [who for who in heard(None if sees else f"{rank}, on {socket.gethostname()},") if who]
    if blind:
        raise UserError(
            f"process {blind[0]} does not see the {folder} of process 0: the machines of a "
            "training need one folder that all of them share"
        )
    if rank:
        Path(folder).mkdir(parents=True, exist_ok=True)
        log = log_file(Path(folder) / f"train.rank{rank}.log", logging.WARNING)
        run_fairseq(config, [log])
        return
    progress = TrainingProgress(Path(folder) / "train.jsonl", config.optimization.max_update)
    run_fairseq(config, [log_file(Path(folder) / "train.log", logging.INFO), progress])
    finished = {
        "num_updates": progress.last_update,
        "seconds": round(progress.seconds(), 1),
        "stop": stop_key(config),
    }
    with atomic_write(Path(folder) / FINISHED) as stream:
        json.dump(finished, stream)


def run_fairseq(config: Any, handlers: List[logging.Handler]) -> None:
    """fairseq's own training; all that is logged, by whatever library, goes to the handlers.

    Raises:
        UserError: the training diverged.
    """
    from vaswani.fairseq_config import fairseq_logs, hand_over

    root = logging.getLogger()
    before, level = root.handlers, root.level
    root.handlers, root.level = handlers, logging.INFO
    fairseq_logs(logging.INFO)
    logging.captureWarnings(True)
    try:
        # only now: importing it sets up logging to the terminal unless there are handlers already
        from fairseq_cli.train import main

        main(hand_over(config))
    except FloatingPointError as error:
        raise UserError(f"the training diverged ({error}): lower the learning rate") from None
    finally:
        logging.captureWarnings(False)
        root.handlers, root.level = before, level
        fairseq_logs(logging.WARNING)
        for handler in handlers:
            handler.close()


def log_file(path: Path, level: int) -> logging.Handler:
    """A handler that appends messages to a file, which is made when there is one."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    return handler
