"""Does this checkout still do what COMMIT did?  python scripts/same_as.py COMMIT [--keep FOLDER]

Runs the commands of ``same_as_steps.py`` with copies of both, beside each other in a temporary
folder (two to four minutes on two cores), and compares:

- every command: its exit code, and what it printed
- every file that the commands made: text, subwords, codes, data-bins, translations, packed models,
  exports and pictures byte by byte; checkpoints value by value, bit by bit, with the configuration
  in them; YAML, JSON, model cards and logs of decoding as text
- a training of 20 updates with one of 10 and 10, which has to be the same
- a training in two processes, what every training logged (train.log), and the meters in checkpoints

Left out is what differs between two runs of one program: times and speeds (keys of JSON, words of
printed lines: ``TIMES`` and ``VOLATILE``), the path of the folder and of the source tree, the
commit, process numbers, and hashes of files that hold such things. Exit status 1 if anything
differs. Differences that a change intends are named in its commit.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

ROOT = Path(__file__).resolve().parents[1]
STEPS = Path(__file__).with_name("same_as_steps.py")
OUTPUTS = "outputs"
#: keys of JSON, without a prefix such as ``train_``, whose values are times, speeds or hashes
TIMES = ("time", "seconds", "wall", "wps", "ups", "gb_free", "commit", "load", "date")
#: what a command prints of them
VOLATILE = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*"), "TIME"),
    (re.compile(r"\b\d+:\d\d(:\d\d)?\b left"), "TIME left"),
    (re.compile(r"\b[\d.,]+ (s|min|ms)\b"), "TIME"),
    (re.compile(r"\bwps [\d,.]+|\b[\d,]+ pairs/s"), "SPEED"),
    (re.compile(r"\blargest process \d+ MB"), "MEMORY"),
    (re.compile(r"\bprocess \d+ on \S+"), "PROCESS"),
    (re.compile(r"(?<=at )0x[0-9a-f]+"), "ADDRESS"),
    (re.compile(r"\bin [\d.]+ seconds|\btook [\d.]+ seconds"), "in TIME"),
    (re.compile(r'"(\w*_)?(wps|ups|wall|train_wall|gb_free)": "[\d.]+"'), r'"\2": "TIME"'),
    (re.compile(r"(?<=\.py):\d+(?=:)"), ":LINE"),
    # how far a training is, every 30 seconds; other such lines have the values of a validation
    (re.compile(r"^update [\d,]+ of [\d,]+(?!.* valid_).*\n?", re.MULTILINE), ""),
]
HASH = re.compile(r"\b[0-9a-f]{64}\b")
#: files of locks, and the file in which two processes of a training meet
NOT_COMPARED = {"lock", ".lock", "rendezvous"}
TEXT = {".json", ".jsonl", ".yaml", ".md", ".html", ".out", ".err", ".code", ".log", ""}
#: the entry of a checkpoint's ``extra_state`` that measures time; meters do, too: see ``meters``
TIMED = "previous_training_time"
#: lines of a difference that are shown
SHOWN = 6


@dataclass
class Side:
    """One source tree, the folder that its commands ran in, and the files that they made there."""

    root: Path
    work: Path

    def run(self) -> None:
        """Run all commands; ``work.log`` has the output of no single command."""
        self.work.mkdir()
        environment = dict(os.environ, PYTHONPATH=str(self.root), OMP_NUM_THREADS="1")
        with open(f"{self.work}.log", "w") as log:
            line = [sys.executable, str(STEPS), OUTPUTS]
            subprocess.run(line, cwd=self.work, env=environment, stdout=log, stderr=log, check=True)

    def files(self) -> dict[str, Path]:
        """Return the files to compare, by their path in the folder."""
        paths = sorted(path for path in self.work.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.work)): path
            for path in paths
            if path.name not in NOT_COMPARED and "__pycache__" not in path.parts
        }

    def hashes(self) -> dict[str, str]:
        """Return SHA-256 → the name of the file that has it."""
        return {
            hashlib.sha256(path.read_bytes()).hexdigest(): name
            for name, path in self.files().items()
        }


class Comparison:
    """The comparison of two sides.

    Args:
        here: this checkout
        there: the commit's
    """

    def __init__(self, here: Side, there: Side) -> None:
        self.here = here
        self.there = there
        self.hashes = {side.work: side.hashes() for side in (here, there)}

    def differences(self) -> Iterator[str]:
        """Yield each file that differs or is on one side only, with its first lines that differ."""
        ours = self.here.files()
        theirs = self.there.files()
        for name in sorted(ours.keys() | theirs.keys()):
            if name not in theirs:
                yield f"only here: {name}"
            elif name not in ours:
                yield f"only there: {name}"
            else:
                yield from self.difference(name, ours[name], theirs[name])
        whole = ours["runs/whole/checkpoints/checkpoint_last.pt"]
        parts = ours["runs/parts/checkpoints/checkpoint_last.pt"]
        for entry in ("model", "last_optimizer_state"):
            if list(differing_values(state(whole)[entry], state(parts)[entry])):
                yield f"resumed and uninterrupted training differ here: {entry}"

    def difference(self, name: str, ours: Path, theirs: Path) -> Iterator[str]:
        """Yield what differs between two files of one name; nothing if they agree."""
        if ours.read_bytes() == theirs.read_bytes():
            return
        if ours.suffix == ".pt":
            values = list(
                differing_values(
                    self.plain(state(ours), self.here), self.plain(state(theirs), self.there)
                )
            )
            if values:
                yield f"differs: {name}: {', '.join(values[:SHOWN])}"
            return
        if ours.suffix not in TEXT and ours.name != "SHA256SUMS":
            yield f"differs: {name}"
            return
        before = self.text(theirs, self.there).splitlines()
        now = self.text(ours, self.here).splitlines()
        changed = [
            line
            for line in difflib.unified_diff(before, now, lineterm="", n=0)
            if not line.startswith(("---", "+++", "@@"))
        ]
        if changed:
            command = self.command(ours)
            yield "\n    ".join([f"differs: {name}{command}", *(x[:200] for x in changed[:SHOWN])])

    def command(self, path: Path) -> str:
        """Return the command line whose output a file holds, or an empty string for other files."""
        line = path.with_suffix(".code")
        if path.parent.name != OUTPUTS or not line.is_file():
            return ""
        return f" ({line.read_text(errors='replace').splitlines()[0]})"

    def text(self, path: Path, side: Side) -> str:
        """Return a file's text without what differs between two runs of one program."""
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        if path.suffix == ".json":
            text = json.dumps(self.plain(json.loads(text), side), indent=1)
        elif path.suffix == ".jsonl":
            rows = [self.plain(json.loads(line), side) for line in text.splitlines()]
            text = "\n".join(json.dumps(row) for row in rows)
        return self.words(text, side)

    def plain(self, value: Any, side: Side) -> Any:
        """Return a value of JSON or of a checkpoint without times, paths and dependent hashes."""
        if isinstance(value, dict):
            if "checkpoint" in value and "key" in value:  # a hash of the file, too, times included
                value = {**value, "key": "KEY"}
            return {
                key: "TIME" if is_time(key) else self.plain(inner, side)
                for key, inner in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.plain(inner, side) for inner in value]
        if isinstance(value, int) and value > 10**17:  # a file's time, in nanoseconds
            return "TIME"
        return self.words(value, side) if isinstance(value, str) else value

    def words(self, text: str, side: Side) -> str:
        """Return text without what differs between any two runs: see ``plain``."""
        for path, name in ((side.work, "WORK"), (side.root, "ROOT")):
            text = text.replace(str(path), name)
        for pattern, name in VOLATILE:
            text = pattern.sub(name, text)
        names = self.hashes[side.work]
        return HASH.sub(lambda match: names.get(match[0], match[0]), text)


def is_time(key: object) -> bool:
    """Return whether a JSON key names a time, a speed or a similar value."""
    return isinstance(key, str) and re.sub("^(train_|valid_|cum_)*", "", key) in TIMES


def state(path: Path) -> dict[str, Any]:
    """Return a checkpoint without its times; its parts as dictionaries and lists."""
    content = torch.load(path, map_location="cpu", weights_only=False)
    extra = content.get("extra_state") or {}
    extra = {key: value for key, value in extra.items() if key != TIMED}
    if "metrics" in extra:
        extra["metrics"] = meters(extra["metrics"])
    content["extra_state"] = extra
    return {key: as_table(value) for key, value in content.items()}


def meters(metrics: dict[str, list[tuple[int, str, str, dict[str, Any]]]]) -> dict[str, Any]:
    """Return fairseq's meters in a checkpoint without those of times and speeds.

    Args:
        metrics: aggregator → (priority, name, class, values) of each of its meters

    Returns:
        aggregator → name → (priority, class, values)
    """
    return {
        aggregator: {
            name: [priority, kind, values]
            for priority, name, kind, values in entries
            if not is_time(name)
        }
        for aggregator, entries in metrics.items()
    }


def as_table(value: Any) -> Any:
    """Convert every Namespace and configuration in a value to a dictionary."""
    if isinstance(value, DictConfig):
        return as_table(OmegaConf.to_container(value))
    if isinstance(value, Namespace):
        return as_table(vars(value))
    if isinstance(value, dict):
        return {key: as_table(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_table(inner) for inner in value]
    return value


def differing_values(here: Any, there: Any, name: str = "") -> Iterator[str]:
    """Yield the paths of values that differ between two tables."""
    if isinstance(here, dict) and isinstance(there, dict):
        if list(here) != list(there) and set(here) == set(there):
            yield f"{name}: the order of keys"
        for key in [*here, *(key for key in there if key not in here)]:
            if key in here and key in there:
                yield from differing_values(here[key], there[key], f"{name}/{key}")
            else:
                yield f"{name}/{key} (only {'here' if key in here else 'there'})"
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for number, (mine, yours) in enumerate(zip(here, there, strict=True)):
            yield from differing_values(mine, yours, f"{name}/{number}")
    elif isinstance(here, torch.Tensor) and isinstance(there, torch.Tensor):
        if here.dtype != there.dtype or not torch.equal(here, there):
            yield name
    elif repr(here) != repr(there):
        yield f"{name} ({str(there)[:60]} there, {str(here)[:60]} here)"


def compare_with_commit(commit: str, folder: Path) -> int:
    """Run both sides in a folder, and print what differs."""
    here = Side(folder / "here-source", folder / "here")
    there = Side(folder / "there-source", folder / "there")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout
    for side, pack, names_of_files in (
        (here, ["tar", "-c", "--null", "-T", "-", "--ignore-failed-read"], names),
        (there, ["git", "archive", commit], b""),
    ):
        archive = subprocess.run(
            pack, cwd=ROOT, check=True, input=names_of_files, capture_output=True
        )
        side.root.mkdir()
        unpack = ["tar", "-x", "-C", str(side.root)]
        subprocess.run(unpack, input=archive.stdout, check=True)
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(side.run) for side in (here, there)]
    for side, run in zip((here, there), runs, strict=True):
        if run.exception():
            print(Path(f"{side.work}.log").read_text()[-2000:], file=sys.stderr)
            print(f"same_as: {side.work.name}: {run.exception()}", file=sys.stderr)
            return 1
    differences = list(Comparison(here, there).differences())
    for difference in differences:
        print(difference)
    codes = len(list((here.work / OUTPUTS).glob("*.code")))
    print(
        f"{codes} commands and {len(here.files())} files compared with {commit}: "
        f"{len(differences)} differences"
    )
    return 1 if differences else 0


def main() -> int:
    """Compare in a temporary folder, or in one that is kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", metavar="COMMIT")
    parser.add_argument("--keep", metavar="FOLDER", help="run in this folder, and keep all files")
    options = parser.parse_args()
    if options.keep:
        folder = Path(options.keep).resolve()
        folder.mkdir(parents=True)
        return compare_with_commit(options.commit, folder)
    with tempfile.TemporaryDirectory(prefix="same_as-") as folder_name:
        return compare_with_commit(options.commit, Path(folder_name))


if __name__ == "__main__":
    raise SystemExit(main())
