"""What ``vaswani generate`` writes for a subset: everything from one decoding, or nothing.

The four files are one artifact (``common/artifact.py``), the report last: it knows the others by
their hashes, so edited or truncated files are recognised, and kept.
"""

import contextlib
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

from vaswani.common.artifact import Artifact, hashes_of, keep
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, read_json, sha256_of
from vaswani.experiment.find import RUN_CONFIG, read_yaml
from vaswani.model_folder.search_options import BEAM_OPTIONS, flag

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
        self.artifact = Artifact(
            [*self.files, self.report_file], self.clear_the_way, folder / f".{subset}.part"
        )

    def report(self) -> Dict[str, Any]:
        """The report on the translations that exist; empty if there is none, or it is another's."""
        report = read_json(self.report_file)
        return report if {"checkpoint", "data"} <= set(report) else {}

    def changed(self) -> List[Path]:
        """The files that differ from the report; without a report, all files."""
        paths = [*self.files, self.report_file]
        return [path for path in paths if path.exists() and not self.is_as_reported(path)]

    def is_as_reported(self, path: Path) -> bool:
        """Whether a file is the one in the report; before there were hashes, it was."""
        report = self.report()
        hashes = report.get("files")
        if path == self.report_file or hashes is None:
            return bool(report)
        return bool(hashes.get(path.name) == sha256_of(path))

    def are_of(self, key: str) -> bool:
        """Whether everything exists as it was made under this key."""
        report = self.report()
        complete = "files" in report and all(path.is_file() for path in self.files)
        return complete and report.get("key") == key and not self.changed()

    def check_replaceable(self) -> None:
        """Raises UserError if the folder has files of these names from elsewhere."""
        if not self.report() and self.changed():
            raise UserError(
                f"{self.changed()[0]} exists and was not made by 'vaswani generate', which would "
                "replace it: give another folder with --out, or move the file away"
            )

    def clear_the_way(self, path: Path) -> None:
        """Keep a file under another name if it is not as the report has it."""
        if not self.is_as_reported(path):
            keep(path)

    def recover(self) -> None:
        """Complete a replacement that was interrupted, if there is one."""
        self.artifact.recover()

    def redo(self) -> None:
        """Have the subset translated again, whatever the key."""
        self.recover()
        report = self.report()
        if report:
            with atomic_write(self.report_file) as stream:
                json.dump({**report, "key": ""}, stream, indent=1)

    @contextlib.contextmanager
    def making(self) -> Iterator[Path]:
        """An empty folder for the files of a new decoding, under their final names.

        When the block ends they replace the earlier ones, if :meth:`finish` was called in it.
        """
        with self.artifact.making() as part:
            self.part = part
            yield part

    def finish(self, report: Dict[str, Any]) -> None:
        """Write the report on the files that were made."""
        hashes = hashes_of(self.part, [path.name for path in self.files])
        with atomic_write(self.part / self.report_file.name) as stream:
            json.dump({**report, "files": hashes}, stream, indent=1)


# ---- whether they are as an experiment says -----------------------------------------------------


def decoding(config: Any) -> Dict[str, Any]:
    """What an experiment says about decoding: the search's options, and the data."""
    search = {name: config["generation"][name] for name in BEAM_OPTIONS}
    penalty = config["task"].get("length_penalty") or "fairseq"
    return {**search, "length_penalty": penalty, "data": str(config["task"]["data"])}


def decoding_options(folder: Path, config: Any) -> List[str]:
    """What 'vaswani generate' has to be told to decode as an experiment says, not as trained."""
    usual, wanted = decoding(read_yaml(folder / RUN_CONFIG)), decoding(config)
    changed = {name: value for name, value in wanted.items() if value != usual[name]}
    return [word for name, value in changed.items() for word in (flag(name), str(value))]


def is_decoded(folder: Path, checkpoint: Path, config: Any, subset: str = "test") -> bool:
    """Whether a run's translations are by this checkpoint as an experiment says, and scored."""
    made = read_json(folder / "eval" / f"{subset}.json")
    scored = read_json(folder / "eval" / f"{subset}.score.json").get("translation")
    if not made or made != scored:
        return False
    used = {**made, **made["options"]}
    wanted = {**decoding(config), "precision": "fp32"}
    same = all(used.get(name) == value for name, value in wanted.items())
    return same and Path(made["checkpoint"]).name == checkpoint.name
