"""What a planted bug looks like in training: the demo's loss curve and score.

    python -m experiments.bugs.quiz                the right code, then the quiz of docs/bugs.md
    python -m experiments.bugs.quiz --published    those from published code, 600 updates
    python -m experiments.bugs.quiz attention-not-scaled dropout-on-the-residual
    python -m experiments.bugs.quiz --updates 20 --out /tmp/bugs
    python -m experiments.bugs.quiz --properties   what needs no training: one minute

A bug is a patch in tests/mutants, planted in a temporary copy of the sources. There the usual
commands train, average, decode and score the demo with one thread; its data is made once, in
data/demo_en_de, as by ``make demo``. The results are in OUT/record.json, by name, the commands'
output in OUT/logs.tar.xz, while a bug runs in OUT/NAME.log; a bug that has a result is not run
again. If OUT is not given, the figures are put into docs/bugs.md; of the
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

from experiments.bugs.page import (
    CORRECT,
    PAGE,
    PROPERTIES,
    PUBLISHED,
    QUIZ,
    RESULTS,
    draw_quiz,
    fill_in,
    fill_in_published,
    outcome,
    results_of,
)
from experiments.demo_measures import share
from experiments.record_files import record_files, write_record_files
from experiments.records import read_record, write_figures
from scripts import planted_bugs as mutants
from vaswani import cli
from vaswani.common.environment import machine
from vaswani.common.errors import UserError, nearest
from vaswani.common.files import atomic_write, read_json
from vaswani.common.signals import signals_as_interrupts

READABLE = "softmax-without-the-maximum"
"""The one in a form that the demo does not compute by unless told to."""
PUBLISHED_UPDATES = 600
DEMO = "demo_en_de"
RECORDS = Path(__file__).parent / "records" / "quiz"
PUBLISHED_RECORDS = RECORDS.with_name("published")
EXAMPLES = 5
"""Translations that a result keeps, evenly spaced in the test."""
COMMANDS = (
    ["average", DEMO, "--last", "5"],
    ["generate", DEMO],
    ["score", DEMO],
)
"""After ``vaswani train``."""


def parser() -> argparse.ArgumentParser:
    """Return the parser: which bugs, how many updates, and where the results go."""
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
        "--properties", action="store_true", help="measure the properties of the quiz alone"
    )
    options.add_argument(
        "--out", metavar="DIR", type=Path, help="(default: a folder of experiments/bugs/records)"
    )
    return options


# ---- one run -----------------------------------------------------------------------------------


class Demo:
    """The demo in a copy of the sources.

    Args:
        place: the copy
        log: the file for the commands' output
    """

    def __init__(self, place: Path, log: Path) -> None:
        self.place = place
        self.log = log
        (place / "data").symlink_to(Path("data").resolve(), target_is_directory=True)

    def vaswani(self, *arguments: str) -> str:
        """Run a command, and return the last line of its output if it failed, else nothing."""
        command = [sys.executable, "-m", "vaswani", *arguments]
        variables = {**mutants.environment(self.place), "OMP_NUM_THREADS": "1"}
        with open(self.log, "a", encoding="utf-8") as stream:
            print(f"$ vaswani {' '.join(arguments)}", file=stream, flush=True)
            done = subprocess.run(
                command,
                cwd=self.place,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        if done.returncode == 0:
            return ""
        return self.log.read_text(encoding="utf-8").splitlines()[-1]

    def train_and_score(self, changes: Sequence[str]) -> str:
        """Train, average, decode and score; return the last line of a command that failed."""
        for arguments in (["train", DEMO, *changes], *COMMANDS):
            failure = self.vaswani(*arguments)
            if failure:
                return failure
        return ""

    def run(self, updates: int | None, readable: bool) -> dict[str, Any]:
        """Train and score, and return the results.

        Args:
            updates: None: as many as the demo's
            readable: attention is computed by the readable form
        """
        changes = []
        if readable:
            changes.append("model.attention_impl=readable")
        if updates:  # still saves five checkpoints
            interval = max(1, updates // 5)
            changes.append(f"optimization.max_update={updates}")
            changes.append(f"checkpoint.save_interval_updates={interval}")
        failure = self.train_and_score(changes)
        run = self.place / "runs" / DEMO
        result: dict[str, Any] = {"curves": read_curves(run / "train.jsonl")}
        if failure:
            result["failed"] = failure.replace(f"{self.place}/", "")
            return result
        return {**result, **self.scores(run / "eval")}

    def scores(self, evaluation: Path) -> dict[str, Any]:
        """Return BLEU, exact matches and some of the translations."""
        text = self.place / "data" / DEMO / "text"
        translations = lines_of(evaluation / "test.hyp")
        sources = lines_of(text / "test.en")
        references = lines_of(text / "test.de")
        pairs = zip(translations, references, strict=True)
        step = max(1, len(sources) // EXAMPLES)
        examples = [
            {
                "source": sources[line],
                "translation": translations[line],
                "reference": references[line],
            }
            for line in range(0, len(sources), step)[:EXAMPLES]
        ]
        return {
            "bleu": read_json(evaluation / "test.score.json")["bleu"],
            "exact_match": share(translation == reference for translation, reference in pairs),
            "examples": examples,
        }


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text."""
    return path.read_text(encoding="utf-8").splitlines()


def read_curves(log: Path) -> dict[str, list[tuple[int, float]]]:
    """Read (update, nll in bits per token) of training and of validation from a log.

    Both are empty if there is no log.
    """
    curves: dict[str, list[tuple[int, float]]] = {"train": [], "valid": []}
    if not log.is_file():
        return curves
    for line in lines_of(log):
        row = json.loads(line)
        if row.get("tag") == "train_inner":
            curves["train"].append((row["num_updates"], row["nll_loss"]))
        elif row.get("tag") == "valid":
            curves["valid"].append((row["valid_num_updates"], row["valid_nll_loss"]))
    return curves


def run_bug(name: str, updates: int | None, out: Path, sources: Path, place: Path) -> None:
    """Run one bug in a copy of ``sources``, made in ``place``, and add it to the record ``out``.

    Raises:
        UserError: its patch does not apply.
    """
    begun = time.monotonic()
    log = out / f"{name}.log"
    log.write_text("", encoding="utf-8")
    shutil.copytree(sources, place)
    result: dict[str, Any] = {"name": name}
    if name != CORRECT:
        if not mutants.plant(name, place):
            raise UserError(f"tests/mutants/{name}.patch no longer applies to the sources")
        result = mutants.read(name)._asdict()
    result.update(Demo(place, log).run(updates, readable=name == READABLE))
    result["seconds"] = round(time.monotonic() - begun)
    result["machine"] = machine("cpu")
    write_record_files(out, {**record_files(out), log.name: log.read_bytes()})
    add_to_record(out, RESULTS, {name: result})
    log.unlink()
    shutil.rmtree(place)


def add_to_record(folder: Path, key: str, figures: dict[str, Any]) -> None:
    """Add figures, by the names of bugs, to one of the tables in a record."""
    record = read_record(folder)
    record[key] = {**record.get(key, {}), **figures}
    write_figures(record, folder)


def measure_properties(out: Path) -> None:
    """Add the result of experiments.bugs.properties for each bug of the quiz to a record."""
    properties = {}
    with tempfile.TemporaryDirectory(prefix="bugs-") as folder:
        sources = mutants.copy_sources(Path(folder) / "sources")
        for name in (CORRECT, *QUIZ):
            place = Path(folder) / name
            shutil.copytree(sources, place)
            if name != CORRECT and not mutants.plant(name, place):
                raise UserError(f"tests/mutants/{name}.patch no longer applies to the sources")
            done = subprocess.run(
                [sys.executable, "-m", "experiments.bugs.properties"],
                cwd=place,
                env=mutants.environment(place),
                capture_output=True,
                text=True,
                check=True,
            )
            properties[name] = json.loads(done.stdout)
            print(f"{name}: {done.stdout.strip()}", flush=True)
    add_to_record(out, PROPERTIES, properties)


# ---- all of them -------------------------------------------------------------------------------


def check_names(names: Sequence[str]) -> None:
    """Raise UserError if there is no bug with one of these names."""
    bugs = [CORRECT, *mutants.names()]
    for name in names:
        if name not in bugs:
            raise UserError(f"there is no planted bug '{name}'{nearest(name, bugs)}")


def fill_in_page(published: bool, results: Path) -> None:
    """Put the figures of some results into docs/bugs.md."""
    fill = fill_in_published if published else fill_in
    text = fill(PAGE.read_text(encoding="utf-8"), results)
    with atomic_write(PAGE) as stream:
        stream.write(text)


def run(args: argparse.Namespace) -> None:
    """Run the bugs without results, one after the other; draw, and fill in the page.

    Raises:
        UserError: there is no such bug, or its figures would not be those of the page.
    """
    if args.properties:
        out = args.out or RECORDS
        out.mkdir(parents=True, exist_ok=True)
        measure_properties(out)
        return
    if args.updates and args.out is None:
        raise UserError("--updates does not give the figures of docs/bugs.md: give --out, too")
    names = list(dict.fromkeys(args.names))
    check_names(names)
    updates = args.updates
    if args.published and not updates:
        updates = PUBLISHED_UPDATES
    if not names:
        names = [CORRECT, *(PUBLISHED if args.published else QUIZ)]
    out = args.out or (PUBLISHED_RECORDS if args.published else RECORDS)
    if cli.main(["prepare", DEMO]):
        raise UserError(f"{DEMO} could not be prepared")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="demo-with-a-bug-") as folder:
        sources = mutants.copy_sources(Path(folder) / "sources")
        for name in names:
            if name not in read_record(out).get(RESULTS, {}):
                print(f"{name}: running", flush=True)
                run_bug(name, updates, out, sources, Path(folder) / name)
            (result,) = results_of(out, [name])
            print(f"{name}: {outcome(result)}", flush=True)
            if not args.published:
                draw_quiz(out)
            if args.out is None:
                fill_in_page(args.published, out)


def main(arguments: Sequence[str]) -> int:
    """Run the bugs that the arguments name, and return the exit code."""
    args = parser().parse_args(arguments)
    try:
        with signals_as_interrupts():
            run(args)
    except UserError as error:
        print(f"bugs: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bugs: interrupted; finished results are kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
