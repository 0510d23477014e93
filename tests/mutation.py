"""Plants the bugs of ``tests/mutants.py`` and runs their tests.

Each bug is planted in a copy of the sources, in a temporary folder, and its tests are run there:
the working tree is only read, and an interrupt leaves nothing behind.
"""

import argparse
import ast
import contextlib
import difflib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from vaswani.common.errors import UserError
from vaswani.common.signals import signals_as_interrupts

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    *("transformer_plugin", "vaswani", "tests", "configs", "constraints"),
    *("examples", "scripts", "docs"),
    *("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"),
)
"""What the tests need."""
AT_MOST = 600
"""Seconds for the tests of one bug; generous, as the machine may be busy."""
NO_TEST = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError", "IndentationError")
"""Errors with which a test has tested nothing: the planted code itself is wrong."""
FAILED = re.compile(r"^(?P<kind>FAILED|ERROR) (?P<test>\S.*?)(?: - (?P<reason>.*))?$", re.MULTILINE)
"""A line at the end of pytest's output."""


class Mutant(NamedTuple):
    """A bug to plant."""

    name: str
    file: str
    """from the repository's root"""
    old: str
    """occurs exactly once in the file"""
    new: str
    breaks: str
    """the sentence of the paper with its section, or the promise"""
    tests: Tuple[str, ...]
    """pytest's names of the tests that must fail, relative to the folder ``tests``"""


class Result(NamedTuple):
    """The outcome of trying a bug."""

    mutant: Mutant
    verdict: str
    """caught, survived, skipped, error"""
    detail: str
    """the first test that failed, or what went wrong"""
    seconds: float


@lru_cache(maxsize=None)
def functions_in(path: Path) -> Set[str]:
    """The functions of a test file; none if there is no such file."""
    tree = ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def why_stale(mutant: Mutant, root: Path = ROOT) -> str:
    """How an entry no longer fits the sources; empty if it can be planted."""
    path = root / mutant.file
    if not path.is_file():
        return f"there is no file {mutant.file}"
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"its old text occurs {text.count(mutant.old)} times in {mutant.file}, not once"
    if mutant.new == mutant.old:
        return "its new text is the old one"
    try:
        if path.suffix == ".py":
            compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    except SyntaxError as error:
        return f"with its new text {mutant.file} is not Python: {error}"
    if not mutant.tests:
        return "no test is named"
    for test in mutant.tests:
        file, _, name = test.partition("::")
        if not (root / "tests" / file).is_file():
            return f"there is no file tests/{file}"
        if name and name.partition("[")[0] not in functions_in(root / "tests" / file):
            return f"there is no test {test}"
    return ""


def copy_sources(folder: Path, root: Optional[Path] = None) -> Path:
    """Copy what can be imported and tested into a new folder, which is returned."""
    folder.mkdir()
    root = root or ROOT
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=leave)
        else:
            shutil.copy(root / name, folder / name)
    return folder


def plant(mutant: Mutant, root: Path) -> None:
    """Put the bug into a copy."""
    assert root != ROOT, "never into the working tree"
    path = root / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def environment(folder: Path) -> Dict[str, str]:
    """Variables that make Python use the copy, and put temporary files into it, too."""
    return {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder),
        "COLUMNS": "200",  # pytest truncates its lines
    }


class Laboratory:
    """Copies of the sources in a temporary folder, and the pytest processes that run in them.

    The first copy is made at once, and the others from it, so you can go on editing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = copy_sources(folder / "sources")
        self.lock = threading.Lock()
        self.running: Set[subprocess.Popen] = set()
        self.closed = False

    def pytest(
        self, name: str, tests: Sequence[str], *options: str, mutant: Optional[Mutant] = None
    ) -> Tuple[int, str]:
        """Exit status and output of pytest on tests, in a copy with the bug or without one."""
        place = copy_sources(self.folder / name, self.sources)
        if mutant:
            plant(mutant, place)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        command += [f"--basetemp={place / 'basetemp'}", *(f"tests/{test}" for test in tests)]
        try:
            return self.output_of(command, place, AT_MOST if mutant else None)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def output_of(
        self, command: List[str], place: Path, at_most: Optional[float]
    ) -> Tuple[int, str]:
        """Run a command that :meth:`close` can end; status -1 if it exceeded ``at_most``."""
        with self.lock:
            if self.closed:
                return -1, "ended"
            process = subprocess.Popen(
                command,
                cwd=place,
                env=environment(place),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                start_new_session=True,
            )
            self.running.add(process)
        try:
            output, _ = process.communicate(timeout=at_most)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -1, f"not done after {at_most} seconds"
        finally:
            with self.lock:
                self.running.discard(process)

    def close(self) -> None:
        """End all running processes, and start no more."""
        with self.lock:
            self.closed = True
            for process in self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def try_out(self, mutant: Mutant) -> Result:
        """Whether a test notices the bug."""
        begun = time.monotonic()
        code, output = self.pytest(mutant.name, mutant.tests, "-x", mutant=mutant)
        verdict, detail = judged(code, output)
        return Result(mutant, verdict, detail, time.monotonic() - begun)

    def unchanged(self, number: int, tests: Sequence[str]) -> List[str]:
        """Names and reasons of the tests that fail although nothing is planted.

        Raises:
            UserError: pytest could not run them.
        """
        code, output = self.pytest(f"unchanged-{number}", tests)
        if code not in (0, 1):
            raise UserError(f"pytest stopped with status {code} before any bug:\n{output}")
        return [line for line in output.splitlines() if FAILED.match(line)]


def judged(code: int, output: str) -> Tuple[str, str]:
    """Verdict and detail from pytest's exit status and output."""
    failed = FAILED.search(output)
    if code == 1 and failed and failed["kind"] == "FAILED":
        reason = failed["reason"] or ""
        if not reason.startswith(NO_TEST):
            return "caught", failed["test"]
        return "error", f"{failed['test']} ended with {reason}: it tested nothing"
    if code == 0:
        ran = re.search(r"\d+ passed", output)
        return ("survived", "") if ran else ("skipped", "its tests are skipped here")
    return "error", f"pytest's status is {code}: {output.strip().splitlines()[-1:]}"


def dealt(mutants: Sequence[Mutant], groups: int) -> List[List[str]]:
    """All their tests, in groups; tests of one file stay together, as they share slow fixtures."""
    files: Dict[str, List[str]] = {}
    for test in dict.fromkeys(test for mutant in mutants for test in mutant.tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    found = list(files.values())
    return [sum(found[first::groups], []) for first in range(min(groups, len(found)))]


def broken_by_nothing(mutant: Mutant, failed: Sequence[str]) -> str:
    """The first of the bug's tests that fails without the bug, or an empty string."""
    for line in failed:
        match = FAILED.match(line)
        assert match
        name = match["test"].removeprefix("tests/")
        for test in mutant.tests:
            if name == test or name.startswith((f"{test}[", f"{test}::")):
                return name
    return ""


def run(mutants: Sequence[Mutant], jobs: int) -> List[Result]:
    """Try all, several at a time; prints one line for each as it ends."""
    with signals_as_interrupts(), tempfile.TemporaryDirectory(prefix="planted-bugs-") as folder:
        laboratory = Laboratory(Path(folder))
        with ThreadPoolExecutor(jobs) as pool:
            try:
                groups = dealt(mutants, jobs)
                print(f"{sum(map(len, groups))} tests with nothing planted", flush=True)
                failed = sum(pool.map(laboratory.unchanged, range(len(groups)), groups), [])
                sound = [one for one in mutants if not broken_by_nothing(one, failed)]
                results = [
                    Result(one, "error", f"{broken_by_nothing(one, failed)} fails without it", 0.0)
                    for one in mutants
                    if one not in sound
                ]
                tried = [pool.submit(laboratory.try_out, mutant) for mutant in sound]
                for number, future in enumerate(as_completed(tried), start=1):
                    results.append(future.result())
                    print(f"{number:3} of {len(sound)}  {told(results[-1])}", flush=True)
            except BaseException:
                laboratory.close()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return sorted(results, key=lambda result: mutants.index(result.mutant))


def told(result: Result) -> str:
    """A result in one line."""
    return (
        f"{result.verdict:<9}{result.mutant.name:<32}{result.seconds:5.0f} s  {result.detail}"
    ).rstrip()


def chosen(mutants: Sequence[Mutant], names: Sequence[str]) -> List[Mutant]:
    """The bugs with these names, or all.

    Raises:
        UserError: there is no bug of that name.
    """
    known = {mutant.name: mutant for mutant in mutants}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.0)[0]
            raise UserError(
                f"there is no planted bug '{name}': the nearest name is '{near}', and --list "
                "prints all"
            )
    return [known[name] for name in dict.fromkeys(names)] or list(mutants)


def main(mutants: Sequence[Mutant], arguments: Optional[Sequence[str]] = None) -> int:
    """``python -m tests.mutants``; returns 1 if a bug survived or an entry is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Plants bugs, each of which a test must notice."
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="which bugs (all)")
    parser.add_argument("--list", action="store_true", help="print names and what is broken")
    parser.add_argument("--jobs", default="auto", metavar="N", help="at a time (auto: 1 per core)")
    args = parser.parse_args(arguments)
    try:
        wanted = chosen(mutants, args.names)
        if args.list:
            for mutant in wanted:
                print(f"{mutant.name:<32}{mutant.file:<40}{mutant.breaks}")
            return 0
        stale = [f"{mutant.name}: {why}" for mutant in wanted if (why := why_stale(mutant))]
        if stale:
            raise UserError("entries that are stale:\n  " + "\n  ".join(stale))
        begun = time.monotonic()
        results = run(wanted, number_of(args.jobs))
    except UserError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("mutants: interrupted; nothing is left behind", file=sys.stderr)
        return 130
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = spent.ru_utime + spent.ru_stime  # the better measure on a busy machine
    print(f"\n{summary(results)}\n{time.monotonic() - begun:.0f} seconds, {cpu:.0f} of CPU")
    return int(any(result.verdict in ("survived", "error") for result in results))


def number_of(jobs: str) -> int:
    """How many at a time; raises UserError if it is not a number."""
    if jobs == "auto":
        return os.cpu_count() or 1
    if not jobs.isdecimal() or not int(jobs):
        raise UserError(f"--jobs must be a number above 0, or auto, not {jobs}")
    return int(jobs)


def summary(results: Sequence[Result]) -> str:
    """All results in lines, the bugs that survived in detail, and the count of each verdict."""
    lines = [told(result) for result in results]
    for result in results:
        if result.verdict == "survived":
            one = result.mutant
            lines += ["", f"{one.name} in {one.file} survived {', '.join(one.tests)}", one.breaks]
    verdicts = [result.verdict for result in results]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
    return "\n".join([*lines, "", ", ".join(counts)])
