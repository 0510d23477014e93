"""What a run records of its training, and what may not be trained into it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
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
from vaswani.common.find import file_stem
from vaswani.folders.run import RUNS, Ending, Fingerprint, Run
from vaswani.training.launch import Launch, on_cpu, precision_of
from vaswani_transformer.precision import tf32

#: what the ``extra_state`` of a checkpoint holds that was saved only because of a stop
STOPPED = "stopped"
#: and of each reset that came before it, the text that it was asked for with
RESETS_DONE = "resets_done"
#: fairseq's options that leave out a part of the checkpoint that a training starts from
RESETS = ("reset_dataloader", "reset_lr_scheduler", "reset_meters", "reset_optimizer")
#: model options that change neither the parameters nor the function: a run may change them
HOW_IT_COMPUTES = ("attention_impl", "checkpoint_activations", "compile", "init", "precision")
#: what a trained model depends on, besides its data: sections of its configuration, or keys of one
DECIDING = (
    *(("model", None), ("criterion", None), ("optimizer", None), ("lr_scheduler", None)),
    *(("optimization", None), ("dataset", "max_tokens"), ("common", "seed")),
)


def split_run(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """Separate ``run=NAME`` from the overrides; raise UserError if NAME is missing."""
    names = [item[len("run=") :] for item in overrides if item.startswith("run=")]
    if "" in names:  # a variable of the shell that is not set: runs/ itself would be the run
        raise UserError("run= is empty: give a name, for example run=second")
    return names[-1] if names else None, [o for o in overrides if not o.startswith("run=")]


def run_of(config: DictConfig, name: str | None, path: Path) -> Run:
    """Return ``run=NAME``, or the folder above ``save_dir``, or runs/ and the config's name."""
    if name is not None:
        return Run(Path(name) if "/" in name else RUNS / name)
    saved = Run.of_save_dir(Path(str(config.checkpoint.save_dir)))
    return saved or Run(RUNS / file_stem(path.stem))


def has_checkpoints(run: Run) -> bool:
    """Return whether a run has checkpoints, even if the last one is missing."""
    return bool(trained_checkpoints(run.checkpoints))


def remove_half_written(run: Run) -> None:
    """Remove half-written checkpoints of a killed training of this run.

    Files that 'vaswani average' may be writing there are left alone.
    """
    for pattern in (".checkpoint*.pt.part", "checkpoint*.pt.tmp"):  # the plugin's; fairseq's
        for path in run.checkpoints.glob(pattern):
            if not path.name.startswith(".checkpoint_average"):
                path.unlink(missing_ok=True)


def stop_key(config: DictConfig) -> str:
    """Return a hash of the options that decide when a training ends."""
    decides = [OmegaConf.to_container(config.optimization), config.checkpoint.patience]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


# ---- what may not be trained into a folder ----------------------------------------------------


def refuse_foreign_folder(run: Run) -> None:
    """Raise UserError if a folder has a file of a run that 'vaswani train' did not write."""
    records = [path for path in (run.configuration_file, run.environment_file) if path.exists()]
    if records and not run.start().is_complete:
        record = run.environment_file.name
        raise UserError(
            f"{run} has {records[0].name}, which 'vaswani train' would replace, but no complete "
            f"{record}: if the folder is a run, restore {record}, or choose another folder with "
            "run=NAME"
        )


def changed_data(config: DictConfig, data: Fingerprint, run: Run) -> list[str]:
    """Return the changes of the data since the run began, one sentence each.

    Its model, languages, seed, dictionary and training text may not.

    Raises:
        UserError: the folder has a different training; names the first difference.
    """
    if not has_checkpoints(run) or not run.exists:
        return []

    advice = "give the other training its own folder with run=NAME"
    before = run.configuration()
    now = OmegaConf.to_container(config)
    assert isinstance(now, dict)
    # options that did not exist when the run began had their default's effect
    keys = [("model", key) for key in before["model"] if key not in HOW_IT_COMPUTES]
    keys += [("task", "source_lang"), ("task", "target_lang")]
    keys += [("optimizer", "_name"), ("common", "seed")]
    for section, key in keys:
        old, new = before[section].get(key), now[section].get(key)
        if old != new:
            raise UserError(f"{run} was trained with {section}.{key}={old}, not {new}: {advice}")
    changes = []
    for name in run.start().data.changed_files(data):
        if name.startswith("dict."):
            raise UserError(f"{run} was trained with a different {name}: {advice}")
        if not name.startswith(f"{config.dataset.train_subset}."):
            changes.append(f"{name} is not what {run} was started with")
        elif config.checkpoint.reset_dataloader:
            changes.append(f"{name} has changed: starting at epoch 1 of it")
        else:
            raise UserError(
                f"{run} was trained on another text ({name} has changed since): {advice}, or "
                "checkpoint.reset_dataloader=true to continue with epoch 1 of the new text"
            )
    return changes


def training_difference(config: DictConfig, data: Fingerprint, run: Run) -> str:
    """Return how a run's training differs from a configuration: the first key, or file of the data.

    Empty if it does not, or if nothing was trained there. Options that only one of them has are
    left out: the versions of fairseq do not have the same.
    """
    if not run.exists:
        return ""
    before = run.configuration()
    now = OmegaConf.to_container(config)
    assert isinstance(now, dict)
    for section, checked in DECIDING:
        old, new = before[section], now[section]
        for key in [checked] if checked else ["_name", *old]:
            if key in old and key in new and old[key] != new[key]:
                return f"{section}.{key}={old[key]}, not {new[key]}"
    files = run.start().data.changed_files(data)
    return f"another {files[0]} than is now in {config.task.data}" if files else ""


# ---- resets -----------------------------------------------------------------------------------
# A reset belongs to the start that it was given for: the command that is repeated after a stop has
# it, too, and would begin anew each time. Each checkpoint says which resets it comes after.


def requested_resets(config: DictConfig, data: Fingerprint) -> dict[str, str]:
    """Return the resets that a configuration asks for, each with a hash of the training text."""
    text = data.only(f"{config.dataset.train_subset}.")
    digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()
    return {name: digest for name in RESETS if config.checkpoint[name]}


def finished_resets(requested: dict[str, str], run: Run) -> tuple[str, ...]:
    """Return the resets after which the run's newest checkpoint was saved.

    The position in a text that has changed since is reset again.
    """
    if not requested:
        return ()

    try:
        saved = checkpoint_metadata(run.last)
    except CheckpointError:
        newest = newest_checkpoint(run.checkpoints)
        saved = checkpoint_metadata(newest[1]) if newest else {}
    done = (saved.get("extra_state") or {}).get(RESETS_DONE, {})
    return tuple(
        name
        for name, text in requested.items()
        if name in done and (name != "reset_dataloader" or done[name] == text)
    )


# ---- records ----------------------------------------------------------------------------------


def records_of(config: DictConfig, data: Fingerprint, run: Run, launch: Launch) -> dict[Path, str]:
    """Return the records of a start and its configuration: file → text."""
    now = {**environment(), "processes": launch.world_size, "started_by": launch.kind}
    device = "cpu" if on_cpu(config) else "cuda"
    now.update(device=device, precision=precision_of(config), tf32=tf32())
    now.update(data=data.to_json(), earlier_starts=run.start().with_earlier())
    return {
        run.environment_file: json.dumps(now, indent=1),
        run.configuration_file: OmegaConf.to_yaml(config),
    }


def finish(run: Run, ending: Ending) -> None:
    """Record why a training ended; without a further update, keep its earlier time and loss.

    Args:
        run: its folder
        ending: of this start
    """
    before = run.ending()
    if before and before.num_updates == ending.num_updates:
        seconds = ending.seconds if before.seconds is None else before.seconds
        perplexity = ending.perplexity if before.perplexity is None else before.perplexity
        ending = replace(ending, seconds=seconds, perplexity=perplexity)
    run.write_ending(ending)
