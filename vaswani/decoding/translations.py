"""What ``vaswani generate`` writes for a subset: everything from one decoding, or nothing.

Four files cannot be replaced in one step. So they are written into a folder ``.SUBSET.part``, the
report last. Once that exists, they only need to be moved; after a kill, the next command does this.
The report knows its files by their hashes, so edited or truncated files are recognised.
"""

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, read_json, sha256_of

#: a subset's files: tokens, text, what fairseq-generate prints; beside them SUBSET.json
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
        """The report on the translations that exist; empty if there is none, or it is not ours."""
        found = read_json(self.report_file)
        return found if {"checkpoint", "data"} <= set(found) else {}

    def changed(self) -> List[Path]:
        """The files that differ from the report; without a report, all files.

        (A report of an earlier version has no hashes: the files beside it are assumed to be its.)
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
        """Whether everything exists as it was made under this key."""
        report = self.report()
        hashes = report.get("files") or {}
        return report.get("key") == key and all(
            path.is_file() and hashes.get(path.name) == sha256_of(path) for path in self.files
        )

    def refuse_strangers(self) -> None:
        """Raises UserError if the folder has files of these names that are not ours."""
        if not self.report() and self.changed():
            raise UserError(
                f"{self.changed()[0]} exists and was not made by 'vaswani generate', which would "
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
        """An empty folder for the files of a new decoding, under their final names.

        If the decoding is not finished when the block ends, the folder is removed.
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
        """Replace the earlier files by the new ones. Files that were edited are kept."""
        hashes = {path.name: sha256_of(self.part / path.name) for path in self.files}
        for path in self.changed():
            kept = free_name(path)
            path.rename(kept)
            print(f"warning: {path} had changed since translation: kept as {kept}", file=sys.stderr)
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
    """``path`` with the first number appended that no file has."""
    number = 1
    while (kept := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return kept
