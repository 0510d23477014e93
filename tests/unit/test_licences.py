"""docs/licences.md names what is in this repository and is not ours, and nothing else."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from experiments.record_files import ARCHIVE, record_files
from tests.files import needs_records

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
#: files of translations or parses
TRANSLATIONS = re.compile(r"\.hyp(\.tok)?(\.gz)?$|\.trees(\.gz)?$|_generate\.log(\.gz)?$")
#: records whose translations are of the demo's text, which is ours
OF_THE_DEMO = ("experiments/neighbours/records/**/*", "benchmarks/results/*_unspaced/*")


def patterns() -> list[str]:
    """Return the paths in the column "where", links and patterns alike."""
    found = []
    for line in PAGE.splitlines():
        if line.startswith("|"):
            where = line.split("|")[2]
            found += re.findall(r"`([^` ]*/[^` ]*)`|\]\(([^)]+)\)", where)
    return [code or link.removeprefix("../") for code, link in found]


@cache
def files_in_archives() -> dict[str, bytes]:
    """Return the files in the archives of all records, by the paths to which they unpack."""
    contents = {}
    for top in ("benchmarks", "experiments"):
        for archive in ROOT.glob(f"{top}/**/{ARCHIVE}"):
            folder = archive.parent.relative_to(ROOT)
            for name, content in record_files(archive.parent).items():
                contents[(folder / name).as_posix()] = content
    return contents


@cache
def files() -> list[str]:
    """Return every file that the page may name, those in archives among them."""
    paths = list(files_in_archives())
    for top in ("benchmarks", "experiments", "models", "tests"):
        on_disk = (path for path in (ROOT / top).rglob("*") if path.is_file())
        paths += [path.relative_to(ROOT).as_posix() for path in on_disk]
    return paths


def files_of(patterns: Iterable[str]) -> list[str]:
    """Return every file that a pattern matches, once for each pattern."""
    named = []
    for pattern in patterns:
        expression = re.compile(expression_of(pattern))
        named += [path for path in files() if expression.fullmatch(path)]
    return named


def expression_of(pattern: str) -> str:
    """Return the regular expression of a pattern of paths."""
    parts = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*"}
    pieces = re.split(r"(\*\*/|\*\*|\*)", pattern)
    return "".join(parts.get(piece, re.escape(piece)) for piece in pieces)


@needs_records
def test_every_file_that_the_page_names_is_there() -> None:
    assert len(patterns()) > 15
    named = [pattern for pattern in patterns() if not (ROOT / pattern).exists()]
    assert [pattern for pattern in named if not files_of([pattern])] == []


@needs_records
def test_every_file_of_translations_is_in_one_row_of_the_page() -> None:
    """Or is of the demo's text. 118 files of Tatoeba's sentences were in none."""
    named = files_of(patterns())
    demo = files_of(OF_THE_DEMO)
    folders = ("benchmarks/results", "experiments")
    in_records = [path for path in files() if path.startswith(folders)]
    translations = [path for path in in_records if TRANSLATIONS.search(path)]
    assert len(translations) > 200
    wrong = []
    for path in translations:
        rows = 0 if path in demo else 1
        if named.count(path) != rows:
            wrong.append(f"{path}: {named.count(path)} rows")
    assert wrong == []
    # logs of trainings that have sentences of their validation text
    with_text = [path for path, log in files_in_archives().items() if b'"valid_sample"' in log]
    assert with_text and [path for path in with_text if path not in named] == []


def test_every_shipped_model_that_is_not_under_the_mit_licence_is_named() -> None:
    for card in (ROOT / "models").glob("*/README.md"):
        licence = re.search(r"^license: (.*)$", card.read_text(encoding="utf-8"), re.MULTILINE)
        if licence is None or licence[1].lower() != "mit":
            assert card.relative_to(ROOT).as_posix() in patterns(), card
