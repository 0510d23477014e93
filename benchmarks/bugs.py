"""What a planted bug looks like to whoever trains with it: the demo's loss curve and score.

    python -m benchmarks.bugs                      the right code, then the bugs of docs/bugs.md
    python -m benchmarks.bugs attention-not-scaled dropout-on-the-residual
    python -m benchmarks.bugs --updates 20 --out /tmp/bugs

A bug is an entry of tests/mutants.py, planted in a temporary copy of the sources. There the demo is
trained, averaged, decoded and scored by the usual verbs, with one thread; its data is made once, in
data/demo_en_de as by ``make demo``. Kept are OUT/NAME.json and OUT/NAME.log; a bug whose JSON is
there is not run again. OUT/curves.png is drawn anew each time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from benchmarks.machine import machine
from tests.mutants import MUTANTS
from tests.mutation import chosen, copy_sources, environment, plant, why_stale
from vaswani.demo_report import SHOWN, share
from vaswani.errors import UserError
from vaswani.files import atomic_write, read_json
from vaswani.signals import heard

RIGHT = "right"
"""Nothing planted."""
QUIZ = (
    "embedding-not-scaled",
    "causal-mask-missing-in-kernel",
    "positions-missing",
    "warmup-missing",
    "step-at-the-next-position",
    "labels-not-shifted",
    "residual-missing",
    "dropout-in-evaluation",
    "attention-not-scaled",
    "padding-not-masked",
)
"""The bugs of docs/bugs.md, in its order."""
DEMO = "demo_en_de"
RESULTS = Path(__file__).parent / "results" / "bugs"
VERBS = (("average", "--last", "5"), ("generate",), ("score",))
"""What follows ``vaswani train``; each takes the run's name after the verb."""


def parser() -> argparse.ArgumentParser:
    """Which bugs, how long, and where the results go."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.bugs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("names", metavar="NAME", nargs="*", help="of tests/mutants.py, or 'right'")
    options.add_argument("--updates", type=int, metavar="N", help="fewer than the demo's 1,800")
    options.add_argument("--out", metavar="DIR", type=Path, default=RESULTS)
    return options


class Demo:
    """The demo in a copy of the sources.

    Args:
        place: an empty folder
        log: gets what the commands print
    """

    def __init__(self, place: Path, log: Path) -> None:
        self.place, self.log = place, log
        copy_sources(place)
        data = Path("data").resolve()
        (place / "data").symlink_to(data, target_is_directory=True)

    def vaswani(self, *arguments: str) -> str:
        """Run a verb; the last line of what it said if it failed, else nothing."""
        command = [sys.executable, "-m", "vaswani.cli", *arguments]
        variables = {**environment(self.place), "OMP_NUM_THREADS": "1"}
        with open(self.log, "a", encoding="utf-8") as stream:
            print(f"$ vaswani {' '.join(arguments)}", file=stream, flush=True)
            done = subprocess.run(
                command, cwd=self.place, env=variables, stdin=subprocess.DEVNULL,
                stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return lines[-1] if done.returncode else ""

    def run(self, updates: int) -> Dict[str, Any]:
        """Train, average, decode, score; what came of it."""
        more = []
        if updates:  # and five checkpoints all the same
            every = max(1, updates // 5)
            more = [
                f"optimization.max_update={updates}",
                f"checkpoint.save_interval_updates={every}",
            ]
        failed = self.vaswani("train", DEMO, *more)
        for verb in () if failed else VERBS:
            failed = failed or self.vaswani(verb[0], DEMO, *verb[1:])
        folder = self.place / "runs" / DEMO
        result: Dict[str, Any] = {"curves": curves(folder / "train.jsonl")}
        if failed:
            return {**result, "failed": failed.replace(f"{self.place}/", "")}
        said, asked, wanted = (
            path.read_text(encoding="utf-8").splitlines()
            for path in (
                folder / "eval" / "test.hyp",
                *(self.place / "data" / DEMO / "text" / f"test.{lang}" for lang in ("en", "de")),
            )
        )
        picked = range(0, len(asked), max(1, len(asked) // SHOWN))[:SHOWN]
        return {
            **result,
            "bleu": read_json(folder / "eval" / "test.score.json")["bleu"],
            "exact_match": share(hyp == ref for hyp, ref in zip(said, wanted, strict=True)),
            "examples": [
                {"source": asked[i], "translation": said[i], "reference": wanted[i]} for i in picked
            ],
        }


def curves(log: Path) -> Dict[str, List[Tuple[int, float]]]:
    """(update, nll in bits per token) of training and of validation."""
    found: Dict[str, List[Tuple[int, float]]] = {"train": [], "valid": []}
    names = {
        "train_inner": ("train", "num_updates", "nll_loss"),
        "valid": ("valid", "valid_num_updates", "valid_nll_loss"),
    }
    for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else []:
        row = json.loads(line)
        if row.get("tag") in names:
            kind, update, loss = names[row["tag"]]
            found[kind].append((row[update], row[loss]))
    return found


def measure(name: str, args: argparse.Namespace) -> None:
    """Run one bug in a temporary copy, and keep its results."""
    begun = time.monotonic()
    log = args.out / f"{name}.log"
    log.write_text("", encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="demo-with-a-bug-") as folder:
        demo = Demo(Path(folder) / "copy", log)
        facts: Dict[str, Any] = {"name": name}
        if name != RIGHT:
            (mutant,) = chosen(MUTANTS, [name])
            plant(mutant, demo.place)
            facts = mutant._asdict()
        result = demo.run(args.updates or 0)
    seconds = round(time.monotonic() - begun)
    with atomic_write(args.out / f"{name}.json") as stream:
        json.dump({**facts, **result, "seconds": seconds, "machine": machine("cpu")}, stream)


def outcome(result: Dict[str, Any]) -> str:
    """The score, or that there is none."""
    return "no score" if "failed" in result else f"BLEU {result['bleu']['score']:.1f}"


def picture(out: Path, names: Sequence[str]) -> None:
    """One panel for each bug, without its name: its curves beside the right ones."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    right = read_json(out / f"{RIGHT}.json")
    figure, axes = pyplot.subplots(2, 5, figsize=(15, 6), sharex=True, sharey=True)
    for letter, name, axis in zip("ABCDEFGHIJ", names, axes.flat, strict=True):
        result = read_json(out / f"{name}.json")
        for curve, color, label in ((right, "0.6", "right"), (result, "C3", letter)):
            for kind, style in (("train", "-"), ("valid", "o--")):
                points = curve.get("curves", {}).get(kind, [])
                axis.plot(
                    [update for update, _ in points], [nll for _, nll in points],
                    style, color=color, markersize=3, linewidth=1,
                    label=f"{label}, {'training' if kind == 'train' else 'validation'}",
                )  # fmt: skip
        axis.set_title(f"{letter}: {outcome(result) if result else 'not run'}")
        axis.set_ylim(0, 12)
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    for axis in axes[1]:
        axis.set_xlabel("updates")
    for axis in axes[:, 0]:
        axis.set_ylabel("nll, bits a token")
    figure.tight_layout()
    figure.savefig(out / "curves.png", dpi=100)
    pyplot.close(figure)


def main(arguments: Sequence[str]) -> int:
    """Run what is not there yet, one after the other, and draw."""
    from vaswani import cli

    args = parser().parse_args(arguments)
    names = args.names or [RIGHT, *QUIZ]
    try:
        planted = chosen(MUTANTS, [name for name in names if name != RIGHT] or [QUIZ[0]])
        for mutant in planted:
            if why := why_stale(mutant):
                raise UserError(f"{mutant.name} in tests/mutants.py is stale: {why}")
    except UserError as error:
        print(f"bugs: {error}", file=sys.stderr)
        return 1
    if cli.main(["prepare", DEMO]):
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        with heard():
            for name in names:
                path = args.out / f"{name}.json"
                if not path.is_file():
                    print(f"{name}: running", flush=True)
                    measure(name, args)
                result = read_json(path)
                print(f"{name}: {outcome(result)}, {result['seconds']} s", flush=True)
    except KeyboardInterrupt:
        print("bugs: interrupted; what was done is kept", file=sys.stderr)
        return 130
    picture(args.out, QUIZ)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
