"""LICENSES.md names what is in this repository and is not ours, and nothing else."""

import gzip
import re
from collections.abc import Iterable
from pathlib import Path

from tests.files import needs_records

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "LICENSES.md").read_text(encoding="utf-8")
RECORDS = [ROOT / "benchmarks" / "results", ROOT / "experiments"]
#: files of translations or parses
TRANSLATIONS = re.compile(r"\.hyp(\.tok)?(\.gz)?$|\.trees(\.gz)?$|_generate\.log\.gz$")
#: records whose translations are of the demo's text, which is ours
OF_THE_DEMO = ("experiments/neighbours/records/**/*", "benchmarks/results/*_unspaced/*")


def patterns() -> list[str]:
    """The paths in the column "where", links and patterns alike."""
    found = []
    for line in PAGE.splitlines():
        if line.startswith("|"):
            where = line.split("|")[2]
            found += re.findall(r"`([^` ]*/[^` ]*)`|\]\(([^)]+)\)", where)
    return [code or link for code, link in found]


def files_of(patterns: Iterable[str]) -> list[Path]:
    """Every file that a pattern matches, once for each pattern that does."""
    return [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]


def has_sentences(path: Path) -> bool:
    """Whether a training's log has sentences of its validation text."""
    return b'"valid_sample"' in gzip.decompress(path.read_bytes())


@needs_records
def test_every_file_that_the_page_names_is_there() -> None:
    assert len(patterns()) > 15
    assert [pattern for pattern in patterns() if not any(ROOT.glob(pattern))] == []


@needs_records
def test_every_file_of_translations_is_in_one_row_of_the_page() -> None:
    """Or is of the demo's text. 118 files of Tatoeba's sentences were in none."""
    named = files_of(patterns())
    demo = files_of(OF_THE_DEMO)
    files = [path for folder in RECORDS for path in folder.rglob("*") if path.is_file()]
    translations = [path for path in files if TRANSLATIONS.search(path.name)]
    assert len(translations) > 200
    wrong = []
    for path in translations:
        rows = 0 if path in demo else 1
        if named.count(path) != rows:
            wrong.append(f"{path.relative_to(ROOT)}: {named.count(path)} rows")
    assert wrong == []
    logs = [path for path in files if path.name.endswith(".jsonl.gz")]
    with_text = [path for path in logs if has_sentences(path)]
    assert [path for path in with_text if path not in named] == []


def test_every_shipped_model_that_is_not_under_the_mit_licence_is_named() -> None:
    for card in (ROOT / "models").glob("*/README.md"):
        licence = re.search(r"^license: (.*)$", card.read_text(encoding="utf-8"), re.MULTILINE)
        if licence is None or licence[1].lower() != "mit":
            assert card.relative_to(ROOT).as_posix() in patterns(), card
