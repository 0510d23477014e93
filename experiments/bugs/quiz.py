"""What a planted bug looks like in training: the demo's loss curve and score.

    python -m experiments.bugs.quiz                the right code, then the quiz of docs/bugs.md
    python -m experiments.bugs.quiz --published    those from published code, 600 updates
    python -m experiments.bugs.quiz attention-not-scaled dropout-on-the-residual
    python -m experiments.bugs.quiz --updates 20 --out /tmp/bugs

A bug is a patch in tests/mutants, planted in a temporary copy of the sources. There the usual
commands train, average, decode and score the demo with one thread; its data is made once, in
data/demo_en_de, as by ``make demo``. The results are OUT/NAME.json and OUT/NAME.log; a bug whose
JSON exists is not run again. If OUT is not given, the figures are put into docs/bugs.md; of the
quiz, OUT/curves.png is drawn each time.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from scripts.demo_report import SHOWN, share
from tests.mutants import run as mutants
from vaswani.common.errors import UserError, nearest
from vaswani.common.files import atomic_write, read_json
from vaswani.common.signals import signals_as_interrupts

RIGHT = "right"
"""The name of the run without a bug."""
QUIZ = (
    "embedding-not-scaled",
    "causal-mask-missing",
    "positions-missing",
    "warmup-missing",
    "step-at-the-next-position",
    "labels-not-shifted",
    "residual-missing",
    "dropout-in-evaluation",
    "kernel-not-scaled",
    "padding-not-masked",
)
"""The bugs of docs/bugs.md, in its order."""
PUBLISHED = (
    "norm-before-the-sublayer",
    "decoder-attends-to-itself-twice",
    "padding-masks-swapped-in-decoding",
    "softmax-without-the-maximum",
    "embedding-not-scaled",
    "positions-by-the-batch",
    "loss-averaged-over-padding",
)
"""Its bugs from published code that show in training or in the score."""
READABLE = "softmax-without-the-maximum"
"""The one in a form that the demo does not compute by unless told to."""
PUBLISHED_UPDATES = 600
DEMO = "demo_en_de"
RESULTS = Path(__file__).parent / "records" / "quiz"
PUBLISHED_RESULTS = RESULTS.with_name("published")
PAGE = Path(__file__).parents[2] / "docs" / "bugs.md"
LETTERS = "ABCDEFGHIJ"
SHOWN_AT = (100, 200, 400, 900, 1800)
"""Updates for which the page gives the loss."""
PUBLISHED_SHOWN_AT = (100, 200, 400, 600)
LONGEST_SHOWN = 72
"""Characters of a translation that the page gives."""
VERBS = (("average", "--last", "5"), ("generate",), ("score",))
"""The commands after ``vaswani train``; each takes the run's name as its first argument."""


def parser() -> argparse.ArgumentParser:
    """Which bugs, how long, and where the results go."""
    options = argparse.ArgumentParser(
        prog="python -m experiments.bugs.quiz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="in tests/mutants, or 'right' (default: those of docs/bugs.md)",
    )
    options.add_argument("--updates", type=int, metavar="N", help="(default: the demo's 1,800)")
    options.add_argument("--published", action="store_true", help="those from published code")
    options.add_argument(
        "--out", metavar="DIR", type=Path, help="(default: a folder of experiments/bugs/records)"
    )
    return options


class Demo:
    """The demo in a copy of the sources.

    Args:
        place: the copy
        log: the file for the commands' output
    """

    def __init__(self, place: Path, log: Path) -> None:
        self.place, self.log = place, log
        (place / "data").symlink_to(Path("data").resolve(), target_is_directory=True)

    def vaswani(self, *arguments: str) -> str:
        """Run a command; returns the last line of its output if it failed, else nothing."""
        command = [sys.executable, "-m", "vaswani", *arguments]
        variables = {**mutants.environment(self.place), "OMP_NUM_THREADS": "1"}
        with open(self.log, "a", encoding="utf-8") as stream:
            print(f"$ vaswani {' '.join(arguments)}", file=stream, flush=True)
            done = subprocess.run(
                command, cwd=self.place, env=variables, stdin=subprocess.DEVNULL,
                stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return lines[-1] if done.returncode else ""

    def run(self, updates: int, readable: bool) -> dict[str, Any]:
        """Train, average, decode, score; returns the results."""
        more = ["model.attention_impl=readable"] * readable
        if updates:  # still saves five checkpoints
            interval = max(1, updates // 5)
            more += [
                f"optimization.max_update={updates}",
                f"checkpoint.save_interval_updates={interval}",
            ]
        failed = self.vaswani("train", DEMO, *more)
        for verb in () if failed else VERBS:
            failed = failed or self.vaswani(verb[0], DEMO, *verb[1:])
        folder = self.place / "runs" / DEMO
        result: dict[str, Any] = {"curves": curves(folder / "train.jsonl")}
        if failed:
            return {**result, "failed": failed.replace(f"{self.place}/", "")}
        translations, source_lines, reference_lines = (
            path.read_text(encoding="utf-8").splitlines()
            for path in (
                folder / "eval" / "test.hyp",
                *(self.place / "data" / DEMO / "text" / f"test.{lang}" for lang in ("en", "de")),
            )
        )
        picked = range(0, len(source_lines), max(1, len(source_lines) // SHOWN))[:SHOWN]
        return {
            **result,
            "bleu": read_json(folder / "eval" / "test.score.json")["bleu"],
            "exact_match": share(
                hyp == ref for hyp, ref in zip(translations, reference_lines, strict=True)
            ),
            "examples": [
                {
                    "source": source_lines[i],
                    "translation": translations[i],
                    "reference": reference_lines[i],
                }
                for i in picked
            ],
        }


def curves(log: Path) -> dict[str, list[tuple[int, float]]]:
    """(update, nll in bits per token) of training and of validation."""
    found: dict[str, list[tuple[int, float]]] = {"train": [], "valid": []}
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


def measure(name: str, args: argparse.Namespace, sources: Path, place: Path) -> None:
    """Run one bug in a copy of ``sources``, and save its results."""
    begun = time.monotonic()
    log = args.out / f"{name}.log"
    log.write_text("", encoding="utf-8")
    shutil.copytree(sources, place)
    facts: dict[str, Any] = {"name": name}
    if name != RIGHT:
        if not mutants.plant(name, place):
            raise UserError(f"tests/mutants/{name}.patch no longer applies to the sources")
        facts = mutants.read(name)._asdict()
    demo = Demo(place, log)
    facts.update(demo.run(args.updates or 0, name == READABLE))
    facts.update(seconds=round(time.monotonic() - begun), machine=machine("cpu"))
    with atomic_write(args.out / f"{name}.json") as stream:
        json.dump(facts, stream)
    shutil.rmtree(place)


def outcome(result: dict[str, Any]) -> str:
    """The score, or "no score"."""
    return "no score" if "failed" in result else f"BLEU {result['bleu']['score']:.1f}"


def picture(out: Path) -> None:
    """One panel for each bug of the quiz, without its name: its curves and the correct ones."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    right = read_json(out / f"{RIGHT}.json")
    figure, axes = pyplot.subplots(2, 5, figsize=(15, 6), sharex=True, sharey=True)
    for letter, name, axis in zip(LETTERS, QUIZ, axes.flat, strict=True):
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
        axis.set_yscale("log")
        axis.set_ylim(0.05, 14)
        axis.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    for axis in axes[1]:
        axis.set_xlabel("updates")
    for axis in axes[:, 0]:
        axis.set_ylabel("nll, bits per token")
    figure.tight_layout()
    figure.savefig(out / "curves.png", dpi=100)
    pyplot.close(figure)


def loss_at(points: Sequence[Sequence[float]], update: int) -> str:
    """The loss at the first point from this update on, or a dash."""
    return next((f"{nll:.2f}" for number, nll in points if number >= update), "–")


def losses(result: dict[str, Any], updates: Sequence[int]) -> list[str]:
    """The training loss after these updates, and the last validation loss; dashes if not run."""
    curves = result.get("curves", {"train": [], "valid": []})
    last = f"{curves['valid'][-1][1]:.2f}" if curves["valid"] else "–"
    return [*(loss_at(curves["train"], update) for update in updates), last]


def scores(result: dict[str, Any]) -> list[str]:
    """BLEU and exact matches; dashes if the run failed or is still to come."""
    if "bleu" not in result:
        return ["–", "–"]
    return [f"{result['bleu']['score']:.2f}", f"{result['exact_match']:.1f}%"]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in Markdown, the header first."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def losses_and_scores(results: dict[str, dict[str, Any]], updates: Sequence[int]) -> str:
    """The table of these runs by their titles."""
    first, *others = (f"{update:,}" for update in updates)
    header = ["", f"training loss after {first}", *others]
    header[-1] += " updates"
    header += ["validation", "BLEU", "exactly right"]
    rows = [[title, *losses(one, updates), *scores(one)] for title, one in results.items()]
    return table([header, *rows])


def translations(results: dict[str, dict[str, Any]]) -> str:
    """The table of what each run makes of two sentences."""
    sources = [example["source"] for example in next(iter(results.values()))["examples"][:2]]
    rows = [["", *sources]]
    for title, result in results.items():
        said = [one["translation"] for one in result.get("examples", [])[:2]]
        cells = [
            text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + " …" for text in said
        ]
        rows.append([title, *(cells or [result.get("failed", "not run yet"), ""])])
    return table(rows)


def fill_in(page: str, out: Path) -> str:
    """The page with the figures of the correct code and of each letter."""
    names = {"correct": RIGHT, **dict(zip(LETTERS, QUIZ, strict=True))}
    results = {title: read_json(out / f"{name}.json") for title, name in names.items()}
    page = put(page, "scores", losses_and_scores(results, SHOWN_AT))
    return put(page, "translations", translations(results))


def put(page: str, label: str, text: str) -> str:
    """The page with a text between the marks of this label."""
    begin, end = f"<!-- results:{label} -->\n", f"\n<!-- /results:{label} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"the page has no marks for {label}"
    return before + begin + text + end + after


def fill_in_published(page: str, out: Path) -> str:
    """The page with the table of the bugs from published code."""
    results = {"the correct code": read_json(out / f"{RIGHT}.json")}
    results |= {f"`{name}`": read_json(out / f"{name}.json") for name in PUBLISHED}
    return put(page, "published", losses_and_scores(results, PUBLISHED_SHOWN_AT))


def names_to_run(given: Sequence[str], default: Sequence[str] = QUIZ) -> list[str]:
    """The bugs asked for, or those of the quiz (or another default).

    Raises:
        UserError: there is no bug of that name.
    """
    names = list(dict.fromkeys(given)) or [RIGHT, *default]
    known = [RIGHT, *mutants.names()]
    for name in names:
        if name not in known:
            raise UserError(f"there is no planted bug '{name}'{nearest(name, known)}")
    return names


def main(arguments: Sequence[str]) -> int:
    """Run what has no results yet, one bug after the other; draw, and fill in the page."""
    from vaswani import cli

    args = parser().parse_args(arguments)
    recorded = args.out is None
    args.out = args.out or (PUBLISHED_RESULTS if args.published else RESULTS)
    try:
        if args.updates and recorded:
            raise UserError("--updates does not give the figures of docs/bugs.md: give --out, too")
        names = names_to_run(args.names, PUBLISHED if args.published else QUIZ)
        if args.published:
            args.updates = args.updates or PUBLISHED_UPDATES
        if cli.main(["prepare", DEMO]):
            return 1
        args.out.mkdir(parents=True, exist_ok=True)
        with (
            signals_as_interrupts(),
            tempfile.TemporaryDirectory(prefix="demo-with-a-bug-") as folder,
        ):
            sources = mutants.copy_sources(Path(folder) / "sources")
            for name in names:
                path = args.out / f"{name}.json"
                if not path.is_file():
                    print(f"{name}: running", flush=True)
                    measure(name, args, sources, Path(folder) / name)
                print(f"{name}: {outcome(read_json(path))}", flush=True)
                if not args.published:
                    picture(args.out)
                if recorded:
                    fill = fill_in_published if args.published else fill_in
                    text = fill(PAGE.read_text(encoding="utf-8"), args.out)
                    with atomic_write(PAGE) as stream:
                        stream.write(text)
    except UserError as error:
        print(f"bugs: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bugs: interrupted; finished results are kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
