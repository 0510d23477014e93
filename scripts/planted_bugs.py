"""Plants the bugs of tests/mutants, one at a time, and runs the tests that must notice each.

    python -m scripts.planted_bugs [--jobs N] [NAME …]     make mutants

A bug is ``NAME.patch``, a ``git diff`` below two lines that ``git apply`` skips: ``breaks:`` the
sentence of the paper or the promise, and ``tests:`` what must fail (tests/FILE or FILE::TEST). It
is planted in a copy of the sources, in a temporary folder.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PATCHES = ROOT / "tests" / "mutants"
COPIED = (
    "vaswani_transformer",
    "transformer_check",
    "transformer_plugin",
    "vaswani",
    "tests",
    "configs",
    "benchmarks",
    "experiments",
    "models",
    "examples",
    "scripts",
    "docs",
    ".github",
    ".ci",
)
FILES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "CONTRIBUTING.md",
    "CITATION.cff",
    "Makefile",
    "CHANGELOG.md",
)
#: with these, a test has tested nothing: the planted code itself is wrong
NO_TEST = re.compile(r"^FAILED .* - (ImportError|ModuleNotFoundError|NameError)", re.MULTILINE)


class Mutant(NamedTuple):
    """A planted bug."""

    name: str
    file: str
    breaks: str
    tests: list[str]


def read(name: str) -> Mutant:
    """Return the bug of this name."""
    text = patch_of(name).read_text(encoding="utf-8")
    breaks, tests, file = (
        re.search(pattern, text, re.MULTILINE)[1]  # type: ignore[index]
        for pattern in (r"^breaks: (.+)", r"^tests: (.+)", r"^\+\+\+ b/(.+)")
    )
    return Mutant(name, file, breaks, tests.split())


def patch_of(name: str) -> Path:
    """Return the file of a bug."""
    return PATCHES / f"{name}.patch"


def names() -> list[str]:
    """Return the names of all planted bugs, sorted."""
    return sorted(path.stem for path in PATCHES.glob("*.patch"))


def missing_tests(mutant: Mutant) -> list[str]:
    """Return the tests of a bug that no longer exist."""
    missing = []
    for test in mutant.tests:
        file, _, name = test.partition("::")
        path = ROOT / "tests" / file
        if not path.is_file() or (name and f"def {name}(" not in path.read_text(encoding="utf-8")):
            missing.append(test)
    return missing


def copy_sources(folder: Path) -> Path:
    """Copy the files that the tests need into a new folder, and return it."""
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info", "results")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return variables that make Python import from a copy, which git takes for no repository."""
    own = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder)}
    return {**os.environ, **own, "GIT_CEILING_DIRECTORIES": str(folder.parent)}


def plant(name: str, folder: Path) -> bool:
    """Apply a bug to a copy of the sources; return False if it no longer applies."""
    command = ["git", "apply", "-C1", str(patch_of(name))]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True)
    return done.returncode == 0


def try_out(mutant: Mutant) -> str:
    """Test a bug, and return the verdict: caught, survived, does not apply, or another failure."""
    missing = missing_tests(mutant)
    if missing:
        return f"no such test: {' '.join(missing)}"
    with tempfile.TemporaryDirectory(prefix="planted-bug-") as name:
        folder = copy_sources(Path(name) / "sources")
        if not plant(mutant.name, folder):
            return "does not apply"
        command = [sys.executable, "-m", "pytest", "-qx", "-m", "slow or not slow", "-p"]
        command += ["no:cacheprovider", *(f"tests/{test}" for test in mutant.tests)]
        done = subprocess.run(
            command, cwd=folder, env=environment(folder), capture_output=True, text=True
        )
        if done.returncode == 0:
            return "survived" if " passed" in done.stdout else "its tests are skipped here"
        if done.returncode == 1 and "\nFAILED " in done.stdout and not NO_TEST.search(done.stdout):
            return "caught"
        return f"error: {(done.stdout + done.stderr).strip().splitlines()[-1]}"


def main(arguments: Sequence[str] = ()) -> int:
    """Test the bugs; return 1 if one is not caught."""
    parser = argparse.ArgumentParser(prog="python -m scripts.planted_bugs", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help="(default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="(default: one per core)")
    args = parser.parse_args(arguments or None)
    unknown = set(args.names) - set(names())
    if unknown:
        parser.error(f"there is no planted bug {' '.join(sorted(unknown))}")
    mutants = [read(name) for name in args.names or names()]
    with ThreadPoolExecutor(args.jobs) as pool:
        verdicts = []
        for mutant, verdict in zip(mutants, pool.map(try_out, mutants), strict=True):
            verdicts.append(verdict)
            print(f"{mutant.name}: {verdict}", flush=True)
            if verdict != "caught":
                print(f"    {mutant.file}: {mutant.breaks}\n    {' '.join(mutant.tests)}")
    print(f"{verdicts.count('caught')} of {len(verdicts)} are caught")
    return int(set(verdicts) != {"caught"})


if __name__ == "__main__":
    sys.exit(main())
