"""Does this checkout still compute what COMMIT computed?  python scripts/same_as.py COMMIT

Runs both in the current environment, beside each other in a temporary folder (about three minutes
on two cores), and compares:

- `prepare`: the demo, and 3,000 of its pairs with BPE and with SentencePiece: text, subwords, codes
  and binarised data, byte by byte
- `train`: 20 updates of the demo's model, and the same in two runs of 10: every parameter and every
  value of the optimizer's state, bit by bit
- `generate` from that training; `translate --scores` with the model in examples/demo_en_de
- `pack`, and `export` to its three targets: every file but cards and reports

Exit status 1 if anything differs. Differences that a change intends are named in its commit.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
PAIRS = {"train": (0, 2400), "valid": (2400, 2700), "test": (2700, 3000)}
#: reports of what was done, with times, versions and paths
REPORTS = {".json", ".jsonl", ".log", ".md", ".yaml", ".lock", ".png"}
NOT_COMPARED = {"SHA256SUMS"}  # of reports too
LANGUAGES = ["--source-lang", "en", "--target-lang", "de"]


def commands(root: Path) -> list[list[str]]:
    """What each side runs, in this order; ``root`` is its source tree."""
    model = str(root / "examples/demo_en_de")
    parts = [f"--{part}=text/{part}" for part in PAIRS]
    train = ["train", "demo_en_de", "checkpoint.save_interval_updates=10"]
    export = ["export", model, "--text", "text/test.en", "--reference", "text/test.de"]
    return [
        ["prepare", "demo_en_de"],
        ["prepare", *LANGUAGES, *parts, "--bpe", "500", "--out", "data/bpe"],
        [
            *["prepare", *LANGUAGES, *parts, "--bpe", "500", "--out", "data/sentencepiece"],
            *["--subword", "sentencepiece"],
        ],
        [*train, "run=whole", "optimization.max_update=20"],
        [*train, "run=parts", "optimization.max_update=10"],
        [*train, "run=parts", "optimization.max_update=20"],
        ["generate", "runs/whole", "--subset", "valid", "--max-len-b", "5"],
        ["pack", "runs/whole"],
        ["translate", model, "text/test.en", "--scores", "--output", "translated"],
        [*export, "--to", "ctranslate2", "--out", "exports/ctranslate2"],
        [*export, "--to", "fairseq", "--out", "exports/fairseq"],
        [*export, "--to", "huggingface", "--out", "exports/huggingface"],
    ]


def run(root: Path, work: Path) -> None:
    """Run all commands of one side in ``work``; its output is in ``work.log``."""
    work.mkdir()
    environment = dict(os.environ, PYTHONPATH=str(root), OMP_NUM_THREADS="1")
    with open(f"{work}.log", "w") as log:
        for command in commands(root):
            print(f"$ vaswani {' '.join(command)}", file=log, flush=True)
            line = [sys.executable, "-m", "vaswani", *command]
            subprocess.run(line, cwd=work, env=environment, stdout=log, stderr=log, check=True)
            if command == ["prepare", "demo_en_de"]:
                take_pairs(work)


def take_pairs(work: Path) -> None:
    """Write the pairs of the small data sets: the first of the demo's training text."""
    (work / "text").mkdir()
    for language in ("en", "de"):
        lines = (work / f"data/demo_en_de/text/train.{language}").read_bytes().splitlines(True)
        for part, (start, end) in PAIRS.items():
            (work / f"text/{part}.{language}").write_bytes(b"".join(lines[start:end]))


def compared(work: Path) -> dict[str, Path]:
    """The files to compare, by their path in ``work``."""
    return {
        str(path.relative_to(work)): path
        for path in sorted(work.rglob("*"))
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(work).parts)
        and (path.suffix not in REPORTS or "exports" in path.parts)
        and path.suffix != ".md"
        and path.name not in NOT_COMPARED
    }


def tensors(value: object, name: str = "") -> Iterator[tuple]:
    """The tensors and numbers in a checkpoint's dictionaries and lists, each with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors(inner, f"{name}/{key}")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from tensors(inner, f"{name}/{index}")
    elif isinstance(value, (torch.Tensor, int, float, str)):
        yield name, value


def state(path: Path) -> dict[str, object]:
    """What a checkpoint says of the parameters and of the optimizer."""
    content = torch.load(path, map_location="cpu", weights_only=False)
    return dict(tensors([content["model"], content.get("last_optimizer_state")]))


def same(one: Path, other: Path) -> bool:
    """Whether two files agree: checkpoints in their state, others in every byte."""
    if one.read_bytes() == other.read_bytes():
        return True
    if one.suffix != ".pt":
        return False
    first, second = state(one), state(other)
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name])
        if isinstance(value, torch.Tensor)
        else value == second[name]
        for name, value in first.items()
    )


def differences(here: Path, there: Path) -> Iterator[str]:
    """One line for each file that differs or is on one side only, and for an inexact resume."""
    ours, theirs = compared(here), compared(there)
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            yield f"only here: {name}"
        elif name not in ours:
            yield f"only there: {name}"
        elif not same(ours[name], theirs[name]):
            yield f"differs: {name}"
    whole, parts = (
        here / f"runs/{run}/checkpoints/checkpoint_last.pt" for run in ("whole", "parts")
    )
    if not same(whole, parts):
        yield "resumed and uninterrupted training differ here"


def main() -> int:
    """Run both sides, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", metavar="COMMIT")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory(prefix="same_as-") as folder:
        there, here = Path(folder) / "there", Path(folder) / "here"
        source = Path(folder) / "source"
        source.mkdir()
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
        with ThreadPoolExecutor(2) as threads:
            sides = [threads.submit(run, ROOT, here), threads.submit(run, source, there)]
        for side, work in zip(sides, (here, there), strict=True):
            if side.exception():
                print(Path(f"{work}.log").read_text()[-2000:], file=sys.stderr)
                print(f"same_as: a command failed {work.name}: {side.exception()}", file=sys.stderr)
                return 1
        found = list(differences(here, there))
        count = len(compared(here))
    print("\n".join([*found, f"{count} files compared with {commit}: {len(found)} differences"]))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
