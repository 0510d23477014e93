"""What a run's folder says of its training: config.yaml, env.json, finished.json, checkpoints."""

import contextlib
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from vaswani.corpus.stage import key_of
from vaswani.errors import UserError
from vaswani.experiment import read_yaml, spelt
from vaswani.files import atomic_write, read_json
from vaswani.training.distributed import Launch

FINISHED = "finished.json"
STATISTICS = "train.jsonl"
RECORDS = ("config.yaml", "env.json")
HOW_IT_COMPUTES = ("attention_impl", "compile", "init", "precision")
"""Options of the model that change neither its parameters nor what it is: a run may change them."""


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


def statistics(log: Path) -> Iterator[Dict[str, Any]]:
    """The lines of a run's train.jsonl that can be read: a full disk leaves half of one.

    None of a file that is not there.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


def last_checkpoint(folder: Path) -> Path:
    """Where a run's newest state lies."""
    return folder / "checkpoints" / "checkpoint_last.pt"


def has_checkpoints(folder: Path) -> bool:
    """Whether something was trained in a run's folder, the last checkpoint there or not."""
    from transformer_plugin.compat.resuming import trained_checkpoints

    return bool(trained_checkpoints(folder / "checkpoints"))


def remove_half_written(folder: Path) -> None:
    """Remove what a killed training of this run left of checkpoints that it was just writing.

    Not what 'vaswani average' may be writing there.
    """
    for pattern in (".checkpoint*.pt.part", "checkpoint*.pt.tmp"):  # ours; fairseq's, and before
        for path in (folder / "checkpoints").glob(pattern):
            if not path.name.startswith(".checkpoint_average"):
                path.unlink(missing_ok=True)


def stop_key(config: Any) -> str:
    """A hash of what decides when a training ends."""
    from omegaconf import OmegaConf

    return key_of([OmegaConf.to_container(config.optimization), config.checkpoint.patience])


# ---- what may not be trained into a folder ----------------------------------------------------


def refuse_foreign_folder(folder: Path) -> None:
    """Raises UserError where config.yaml or env.json of a folder is not ours to replace."""
    ours = {"command", "data"} <= set(read_json(folder / "env.json"))
    foreign = [folder / name for name in RECORDS if (folder / name).exists()]
    if foreign and not ours:
        raise UserError(
            f"{foreign[0]} is there already and was not written by 'vaswani train', which would "
            "replace it: choose another folder with run=NAME"
        )


def refuse_another_run(config: Any, data: Dict[str, Any], folder: Path) -> List[str]:
    """A run keeps its model, its languages, its seed, its dictionary and its training text.

    Returns:
        What else of the data changed, one sentence each.

    Raises:
        UserError: the folder holds a training of something else; names the first difference.
    """
    if not has_checkpoints(folder) or not (folder / "config.yaml").is_file():
        return []
    from omegaconf import OmegaConf

    advice = "give the other training a folder of its own with run=NAME"
    before, now = read_yaml(folder / "config.yaml"), OmegaConf.to_container(config)
    assert isinstance(now, dict)
    # what was no option when the run began had the default's effect
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
            raise UserError(f"{folder} was trained with another {name} than there is now: {advice}")
        if not name.startswith(f"{config.dataset.train_subset}."):
            changes.append(f"{name} is not what {folder} was begun with")
        elif config.checkpoint.reset_dataloader:
            changes.append(f"{name} has changed: beginning with epoch 1 of it")
        else:
            raise UserError(
                f"{folder} was trained on another text ({name} has changed since): {advice}, or "
                "checkpoint.reset_dataloader=true to go on with epoch 1 of the new text"
            )
    return changes


def changed_files(before: Dict[str, Any], now: Dict[str, Any]) -> List[str]:
    """The files of a data-bin that differ, as far as both records know them; in order of names."""
    differ = set()
    for kind in ("sha256", "bytes"):  # earlier versions recorded the text by size alone
        old, new = before.get(kind, {}), now.get(kind, {})
        differ |= {name for name in set(old) & set(new) if old[name] != new[name]}
    return sorted(differ)


# ---- records ----------------------------------------------------------------------------------


def record(config: Any, data: Dict[str, Any], folder: Path, launch: Launch) -> None:
    """Leave env.json, in which earlier starts stay, then config.yaml (complete, as trained)."""
    from omegaconf import OmegaConf

    from vaswani.environment import environment

    before = read_json(folder / "env.json")
    earlier = before.pop("earlier_starts", []) + ([before] if before else [])
    with atomic_write(folder / "env.json") as stream:
        now = {**environment(), "processes": launch.world_size, "started_by": launch.kind}
        json.dump({**now, "data": data, "earlier_starts": earlier}, stream, indent=1)
    with atomic_write(folder / "config.yaml") as stream:
        stream.write(OmegaConf.to_yaml(config))


def finish(folder: Path, updates: int, seconds: float, stop: str) -> None:
    """Leave finished.json; the seconds of a training that had nothing left to do stay."""
    before = read_json(folder / FINISHED)
    if before.get("num_updates") == updates:
        seconds = before.get("seconds", seconds)
    with atomic_write(folder / FINISHED) as stream:
        json.dump(
            {"num_updates": updates, "seconds": round(seconds, 1), "stop": stop},
            stream,
        )


class Undo:
    """Puts a folder back to how it was before a start that was refused.

    Args:
        folder: of the run; need not exist yet
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_new = not folder.exists()
        self.records = {
            name: (folder / name).read_bytes() for name in RECORDS if (folder / name).is_file()
        }
        self.checkpoints = self._checkpoints()

    def _checkpoints(self) -> Dict[str, int]:
        found = (self.folder / "checkpoints").glob("*.pt")
        return {path.name: path.stat().st_mtime_ns for path in found}

    def __call__(self) -> None:
        """Bring the records back, or remove a folder that the start made; not after a save."""
        if self._checkpoints() != self.checkpoints:
            return
        for name, content in self.records.items():
            with atomic_write(self.folder / name, "wb") as stream:
                stream.write(content)
        if self.is_new:
            for path in (*self.folder.glob("train*.log"), self.folder / STATISTICS):
                path.unlink(missing_ok=True)
            for name in (*RECORDS, ".lock"):
                (self.folder / name).unlink(missing_ok=True)
            for made in (self.folder / "checkpoints", self.folder):
                if made.is_dir() and not any(made.iterdir()):
                    made.rmdir()
