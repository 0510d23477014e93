"""A run's records of its training: config.yaml, env.json, finished.json, checkpoints."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from transformer_plugin.checkpoints import (
    CheckpointError,
    checkpoint_metadata,
    trained_checkpoints,
)
from transformer_plugin.compat.resuming import newest_checkpoint
from vaswani.common.environment import environment
from vaswani.common.errors import UserError
from vaswani.common.files import Table, atomic_write, read_json
from vaswani.common.find import RUN_CONFIG, file_stem, is_run
from vaswani.common.yaml_tables import read_yaml
from vaswani.training.launch import Launch, on_cpu, precision_of
from vaswani_transformer.precision import tf32

FINISHED = "finished.json"
STATISTICS = "train.jsonl"
RECORDS = ("config.yaml", "env.json")
#: what the ``extra_state`` of a checkpoint holds that was saved only because of a stop
STOPPED = "stopped"
#: and of each reset that came before it, the text that it was asked for with
RESETS_DONE = "resets_done"
#: fairseq's options that leave out a part of the checkpoint that a training starts from
RESETS = ("reset_dataloader", "reset_lr_scheduler", "reset_meters", "reset_optimizer")
#: model options that change neither the parameters nor the function: a run may change them
HOW_IT_COMPUTES = ("attention_impl", "checkpoint_activations", "compile", "init", "precision")
#: what a trained model depends on, besides its data: sections of its experiment, or keys of one
DECIDING = (
    *(("model", None), ("criterion", None), ("optimizer", None), ("lr_scheduler", None)),
    *(("optimization", None), ("dataset", "max_tokens"), ("common", "seed")),
)


def split_run(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """Separate ``run=NAME`` from the overrides of the configuration; UserError without a name."""
    names = [item[len("run=") :] for item in overrides if item.startswith("run=")]
    if "" in names:  # a variable of the shell that is not set: runs/ itself would be the run
        raise UserError("run= is empty: give a name, for example run=second")
    return names[-1] if names else None, [o for o in overrides if not o.startswith("run=")]


def run_folder(config: DictConfig, name: str | None, path: Path) -> Path:
    """``run=NAME``, or the folder above ``checkpoint.save_dir``, or runs/ and the config's name."""
    if name is not None:
        return Path(name) if "/" in name else Path("runs") / name
    save_dir = Path(str(config.checkpoint.save_dir))
    if save_dir.name == "checkpoints" and save_dir.parent.name:
        return save_dir.parent
    return Path("runs") / file_stem(path.stem)


def statistics(log: Path) -> Iterator[Table]:
    """The readable lines of a run's train.jsonl: a full disk leaves half a line.

    There are none if the file does not exist.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def last_checkpoint(folder: Path) -> Path:
    """Where a run's newest state is."""
    return folder / "checkpoints" / "checkpoint_last.pt"


def has_checkpoints(folder: Path) -> bool:
    """Whether a run's folder has checkpoints, even if the last one is missing."""
    return bool(trained_checkpoints(folder / "checkpoints"))


def remove_half_written(folder: Path) -> None:
    """Remove half-written checkpoints of a killed training of this run.

    Files that 'vaswani average' may be writing there are left alone.
    """
    for pattern in (".checkpoint*.pt.part", "checkpoint*.pt.tmp"):  # the plugin's; fairseq's
        for path in (folder / "checkpoints").glob(pattern):
            if not path.name.startswith(".checkpoint_average"):
                path.unlink(missing_ok=True)


def stop_key(config: DictConfig) -> str:
    """A hash of what decides when a training ends."""
    decides = [OmegaConf.to_container(config.optimization), config.checkpoint.patience]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


# ---- what may not be trained into a folder ----------------------------------------------------


def refuse_foreign_folder(folder: Path) -> None:
    """Raises UserError if a folder's config.yaml or env.json is not of 'vaswani train'."""
    of_a_run = {"command", "data"} <= set(read_json(folder / "env.json"))
    records = [folder / name for name in RECORDS if (folder / name).exists()]
    if records and not of_a_run:
        raise UserError(
            f"{folder} has a {records[0].name}, which 'vaswani train' would replace, but no "
            "env.json that it wrote: if this is a run, put its env.json back; if not, choose "
            "another folder with run=NAME"
        )


def changed_data(config: DictConfig, data: Table, folder: Path) -> list[str]:
    """What has changed in the data since the run began, one sentence each.

    Its model, languages, seed, dictionary and training text may not.

    Raises:
        UserError: the folder has a different training; names the first difference.
    """
    if not has_checkpoints(folder) or not (folder / "config.yaml").is_file():
        return []

    advice = "give the other training its own folder with run=NAME"
    before = read_yaml(folder / "config.yaml")
    now = OmegaConf.to_container(config)
    assert isinstance(now, dict)
    # options that did not exist when the run began had their default's effect
    keys = [("model", key) for key in before["model"] if key not in HOW_IT_COMPUTES]
    keys += [("task", "source_lang"), ("task", "target_lang")]
    keys += [("optimizer", "_name"), ("common", "seed")]
    for section, key in keys:
        old, new = before[section].get(key), now[section].get(key)
        if old != new:
            raise UserError(f"{folder} was trained with {section}.{key}={old}, not {new}: {advice}")
    changes = []
    for name in changed_files(read_json(folder / "env.json").get("data", {}), data):
        if name.startswith("dict."):
            raise UserError(f"{folder} was trained with a different {name}: {advice}")
        if not name.startswith(f"{config.dataset.train_subset}."):
            changes.append(f"{name} is not what {folder} was started with")
        elif config.checkpoint.reset_dataloader:
            changes.append(f"{name} has changed: starting at epoch 1 of it")
        else:
            raise UserError(
                f"{folder} was trained on another text ({name} has changed since): {advice}, or "
                "checkpoint.reset_dataloader=true to continue with epoch 1 of the new text"
            )
    return changes


def trained_differently(config: DictConfig, data: Table, folder: Path) -> str:
    """How a run's training differs from an experiment: the first key, or file of the data.

    Empty if it does not, or if nothing was trained there. Options that only one of them has are
    left out: the versions of fairseq do not have the same.
    """
    if not is_run(folder):
        return ""
    before = read_yaml(folder / RUN_CONFIG)
    now = OmegaConf.to_container(config)
    assert isinstance(now, dict)
    for section, one in DECIDING:
        old, new = before[section], now[section]
        for key in [one] if one else ["_name", *old]:
            if key in old and key in new and old[key] != new[key]:
                return f"{section}.{key}={old[key]}, not {new[key]}"
    files = changed_files(read_json(folder / "env.json").get("data", {}), data)
    return f"another {files[0]} than is now in {config.task.data}" if files else ""


def changed_files(before: Table, now: Table) -> list[str]:
    """The files of a data-bin that differ between two records which both list them, by name."""
    old, new = before.get("sha256", {}), now.get("sha256", {})
    return sorted(name for name in set(old) & set(new) if old[name] != new[name])


# ---- resets -----------------------------------------------------------------------------------
# A reset belongs to the start that it was given for: the command that is repeated after a stop has
# it, too, and would begin anew each time. Each checkpoint says which resets it comes after.


def requested_resets(config: DictConfig, data: Table) -> dict[str, str]:
    """The resets that a configuration asks for, each with a hash of the training text."""
    prefix = f"{config.dataset.train_subset}."
    text = {name: digest for name, digest in data["sha256"].items() if name.startswith(prefix)}
    digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()
    return {name: digest for name in RESETS if config.checkpoint[name]}


def finished_resets(requested: dict[str, str], folder: Path) -> tuple[str, ...]:
    """Those that the run's newest checkpoint comes after.

    The position in a text that has changed since is reset again.
    """
    if not requested:
        return ()

    try:
        saved = checkpoint_metadata(last_checkpoint(folder))
    except CheckpointError:
        newest = newest_checkpoint(folder / "checkpoints")
        saved = checkpoint_metadata(newest[1]) if newest else {}
    done = (saved.get("extra_state") or {}).get(RESETS_DONE, {})
    return tuple(
        name
        for name, text in requested.items()
        if name in done and (name != "reset_dataloader" or done[name] == text)
    )


# ---- records ----------------------------------------------------------------------------------


def records_of(config: DictConfig, data: Table, folder: Path, launch: Launch) -> dict[str, str]:
    """The texts of env.json, with earlier starts in it, and config.yaml (complete, as trained)."""
    before = read_json(folder / "env.json")
    earlier = before.pop("earlier_starts", []) + ([before] if before else [])
    now = {**environment(), "processes": launch.world_size, "started_by": launch.kind}
    device = "cpu" if on_cpu(config) else "cuda"
    now.update(device=device, precision=precision_of(config), tf32=tf32())
    now.update(data=data, earlier_starts=earlier)
    return {"env.json": json.dumps(now, indent=1), "config.yaml": OmegaConf.to_yaml(config)}


def finish(folder: Path, stop: str, summary: Table) -> None:
    """Write finished.json; if there was nothing left to train, what it says of that is kept.

    Args:
        folder: the run's
        stop: ``stop_key`` of the configuration
        summary: num_updates, seconds, reason and perplexity
    """
    before = read_json(folder / FINISHED)
    if before.get("num_updates") == summary["num_updates"]:
        summary = {**summary, **{k: before[k] for k in ("seconds", "perplexity") if k in before}}
    with atomic_write(folder / FINISHED) as stream:
        json.dump({**summary, "stop": stop}, stream)
