"""What ``vaswani generate`` leaves of a subset: all of it of one decoding, or none.

Four files cannot be replaced in one step. So they are written into a folder ``.SUBSET.part``, the
report last. Once that is there, the rest is moving them, which whoever comes next completes after a
kill. The report knows its files by their hashes: what was edited or cut short is not taken for its.
"""

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

from vaswani.errors import UserError
from vaswani.files import atomic_write, read_json, sha256_of

#: of a subset: the tokens, the text, what fairseq-generate prints; beside them SUBSET.json
ENDS = (".hyp.tok", ".hyp", ".log")


class Translations:
    """The results of one subset in a folder.

    Args:
        folder: need not exist yet
        subset: train, valid, test …
    """

    def __init__(self, folder: Path, subset: str) -> None:
        self.folder = folder
        self.subset = subset
        self.report_file = folder / f"{subset}.json"
        self.files = [folder / f"{subset}{end}" for end in ENDS]
        self.part = folder / f".{subset}.part"
        self.new_report = self.part / "report.json"

    def report(self) -> Dict[str, Any]:
        """What was said of the translations that are there; empty if nothing was, or not by us."""
        found = read_json(self.report_file)
        return found if {"checkpoint", "data"} <= set(found) else {}

    def changed(self) -> List[Path]:
        """The files that are there, but not as the report has them; without a report, all.

        (A report of an earlier version knows no hashes: what stands beside it is taken for its.)
        """
        report = self.report()
        there = [path for path in self.files if path.exists()]
        if not report:
            return there + [path for path in [self.report_file] if path.exists()]
        hashes = report.get("files")
        if hashes is None:
            return []
        return [path for path in there if hashes.get(path.name) != sha256_of(path)]

    def are_of(self, key: str) -> bool:
        """Whether all is there, as it was made under this key."""
        report = self.report()
        hashes = report.get("files") or {}
        return report.get("key") == key and all(
            path.is_file() and hashes.get(path.name) == sha256_of(path) for path in self.files
        )

    def refuse_strangers(self) -> None:
        """Raises UserError where the folder has files of these names that are nobody's we know."""
        if not self.report() and self.changed():
            raise UserError(
                f"{self.changed()[0]} is there and was not left by 'vaswani generate', which would "
                "replace it: give another folder with --out, or move the file away"
            )

    def forget(self) -> None:
        """Let the subset be translated again, whatever the key."""
        self.settle()
        report = self.report()
        if report:
            with atomic_write(self.report_file) as stream:
                json.dump({**report, "key": ""}, stream, indent=1)

    @contextlib.contextmanager
    def aside(self) -> Iterator[Path]:
        """An empty folder for the files of a new decoding, which have the final names there.

        What is in it when the block ends, and was not finished, is removed.
        """
        self.settle()
        self.remove_part()
        self.part.mkdir(parents=True)
        try:
            yield self.part
        finally:
            if not self.new_report.exists():
                self.remove_part()

    def remove_part(self) -> None:
        """Remove what a decoding has made so far."""
        if self.part.exists():
            shutil.rmtree(self.part)

    def finish(self, report: Dict[str, Any]) -> None:
        """Put what was made in place of what was there. What somebody changed there is kept."""
        hashes = {path.name: sha256_of(self.part / path.name) for path in self.files}
        for path in self.changed():
            kept = free_name(path)
            path.rename(kept)
            print(f"warning: {path} was not as it was translated: kept as {kept}", file=sys.stderr)
        with atomic_write(self.new_report) as stream:
            json.dump({**report, "files": hashes}, stream, indent=1)
        self.settle()

    def settle(self) -> None:
        """Complete a replacement that was interrupted, if there is one."""
        if not self.new_report.is_file():
            return
        for path in self.files:
            if (self.part / path.name).is_file():
                (self.part / path.name).replace(path)
        self.new_report.replace(self.report_file)
        self.remove_part()


def free_name(path: Path) -> Path:
    """``path`` with the first number behind it that no file has."""
    number = 1
    while (kept := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return kept
