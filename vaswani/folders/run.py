"""A run: the folder that a training leaves, and that averaging, decoding, scoring and packing use.

The names of its files are in this module alone. It imports neither torch nor fairseq: a packed
model is found without them.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError, nearest
from vaswani.common.files import atomic_write, read_json
from vaswani.common.find import file_stem, first_data_bin
from vaswani.common.yaml_tables import Sections, read_yaml
from vaswani.folders.data_bin import DataBin

#: the folder of runs, where they are looked for by their names
RUNS = Path("runs")
#: in a run's folder: its configuration, complete
CONFIGURATION = "config.yaml"
CHECKPOINTS = "checkpoints"
#: fairseq's names of the newest checkpoint, and of the one with the best validation
LAST, BEST = "checkpoint_last.pt", "checkpoint_best.pt"
#: a line of the statistics: fairseq's numbers by their names, with a tag
Statistics = dict[str, Any]
#: how the name of a report of scores ends
SCORES = ".score.json"

# ---- what its JSON files say; those of earlier versions are read, too ---------------------------


@dataclass(frozen=True)
class Fingerprint:
    """What identifies binarised data.

    Attributes:
        sha256: name of a file in the data-bin → its hash
    """

    sha256: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, table: object) -> "Fingerprint":
        """Read what :meth:`to_json` wrote; any other table gives an empty fingerprint."""
        return cls(table.get("sha256", {}) if isinstance(table, Mapping) else {})

    def to_json(self) -> dict[str, object]:
        """Return the fingerprint as ``env.json`` holds it."""
        return {"sha256": dict(self.sha256)}

    def changed_files(self, now: "Fingerprint") -> list[str]:
        """List the files in both fingerprints that differ, by name."""
        common = set(self.sha256) & set(now.sha256)
        return sorted(name for name in common if self.sha256[name] != now.sha256[name])

    def only(self, prefix: str) -> dict[str, str]:
        """Return the hashes of the files whose names begin with ``prefix``."""
        return {name: sha for name, sha in self.sha256.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class Start:
    """One start of a training: the command, the machine, the versions, the data.

    Attributes:
        data: of the data-bin, when it started
        is_complete: whether ``vaswani train`` wrote the record: others lack its command or data
        facts: all of the record, by name
    """

    data: Fingerprint
    is_complete: bool
    facts: Mapping[str, Any]

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "Start":
        """Read ``env.json``; an empty table gives an empty record."""
        data = Fingerprint.from_json(table.get("data"))
        return cls(data, {"command", "data"} <= set(table), table)

    def with_earlier(self) -> list[Mapping[str, Any]]:
        """Return the facts of the starts before this one, then its own; empty without a record."""
        facts = dict(self.facts)
        earlier: list[Mapping[str, Any]] = facts.pop("earlier_starts", [])
        return [*earlier, facts] if facts else earlier


@dataclass(frozen=True)
class Ending:
    """How a training ended.

    Attributes:
        num_updates: that were done
        seconds: of training, in all starts
        reason: the option that ended it
        perplexity: of the last validation; None without one
        stop: a hash of the options that decide when it ends
    """

    num_updates: int
    seconds: float | None = None
    reason: str | None = None
    perplexity: float | None = None
    stop: str | None = None

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "Ending | None":
        """Read ``finished.json``; return None if it does not exist, or lacks the updates."""
        if "num_updates" not in table:
            return None
        names = ("num_updates", "seconds", "reason", "perplexity", "stop")
        return cls(**{name: table[name] for name in names if name in table})


@dataclass(frozen=True)
class TranslationRecord:
    """What ``vaswani generate`` records of a subset's translations.

    Attributes:
        checkpoint: its path
        sha256: name of a file that was read → its hash; earlier versions wrote none
        data: the data-bin, as ``task.data`` names it; earlier versions wrote none
        options: of the search, by name; earlier versions wrote none
        precision: of the matrix products
        facts: all of the record, by name
    """

    checkpoint: str
    sha256: Mapping[str, str]
    data: str | None
    options: Mapping[str, Any] | None
    precision: str
    facts: Mapping[str, Any]

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "TranslationRecord | None":
        """Read SUBSET.json; return None if it does not exist."""
        if not table:
            return None
        return cls(
            checkpoint=table.get("checkpoint", ""),
            sha256=table.get("sha256", {}),
            data=table.get("data"),
            options=table.get("options"),
            precision=table.get("precision", "fp32"),
            facts=table,
        )


# ---- translations and scores ---------------------------------------------------------------------


@dataclass(frozen=True)
class Translations:
    """The files of one subset.

    Attributes:
        folder: need not exist yet
        subset: train, valid, test …
    """

    folder: Path
    subset: str

    @property
    def tokens(self) -> Path:
        """The translations as tokens, or as SentencePiece's pieces, in the order of the source."""
        return self.folder / f"{self.subset}.hyp.tok"

    @property
    def text(self) -> Path:
        """The translations as text."""
        return self.folder / f"{self.subset}.hyp"

    @property
    def log(self) -> Path:
        """The log, in the format of fairseq-generate."""
        return self.folder / f"{self.subset}.log"

    @property
    def record_file(self) -> Path:
        """The record of how the translations were made."""
        return self.folder / f"{self.subset}.json"

    @property
    def scores_file(self) -> Path:
        """The report of their scores."""
        return self.folder / f"{self.subset}{SCORES}"

    def record(self) -> TranslationRecord | None:
        """Read how the translations were made; return None if there are none."""
        return TranslationRecord.from_json(read_json(self.record_file))

    def scores(self) -> Mapping[str, Any]:
        """Read the report of their scores; return an empty table if there is none."""
        return read_json(self.scores_file)


# ---- the run -------------------------------------------------------------------------------------


def average_name(count: int) -> str:
    """Return the file name of the average of the last ``count`` checkpoints."""
    return f"checkpoint_average_last{count}.pt"


def phase_number(phase: Path) -> int:
    """Return the number of an earlier phase, from 1, in the name of its folder."""
    return int(phase.name.removeprefix("phase-"))


@dataclass(frozen=True)
class Run:
    """A folder that a training leaves; its files need not exist yet.

    Attributes:
        folder: such as ``runs/NAME``
    """

    folder: Path

    def __fspath__(self) -> str:
        """Return the folder, so that a run can be used as a path."""
        return str(self.folder)

    def __str__(self) -> str:
        """Return the folder, as messages name the run."""
        return str(self.folder)

    # ---- which ----------------------------------------------------------------------------------

    @classmethod
    def candidates(cls, name: str) -> list["Run"]:
        """Return the runs that a name may mean: a path, or a name under ./runs."""
        return [cls(folder) for folder in (Path(name), RUNS / name, RUNS / file_stem(name))]

    @classmethod
    def find(cls, name: str) -> "Run":
        """Find a run by its path, or by its name under ./runs.

        Raises:
            UserError: there is no such folder, or nothing was trained in it.
        """
        for run in cls.candidates(name):
            if run.exists:
                return run
        names = sorted(path.parent.name for path in RUNS.glob(f"*/{CONFIGURATION}"))
        train = ": train one with 'vaswani train CONFIG'"
        offer = f" (known: {', '.join(names)})" if names else train
        raise UserError(f"there is no run '{name}'{nearest(name, names)}{offer}")

    @classmethod
    def of_checkpoint(cls, checkpoint: Path) -> "Run":
        """Return the run of a checkpoint; for a checkpoint outside runs, its folder as a run."""
        folder = checkpoint.parent
        return cls(folder.parent if folder.name == CHECKPOINTS else folder)

    @classmethod
    def of_model(cls, model: Path) -> "Run":
        """Return the folder above a packed model, which may be its run."""
        return cls(model.absolute().parent)

    @classmethod
    def of_save_dir(cls, folder: Path) -> "Run | None":
        """Return the run of a folder of checkpoints; None if the folder's name is not a run's."""
        if folder.name == CHECKPOINTS and folder.parent.name:
            return cls(folder.parent)
        return None

    @property
    def exists(self) -> bool:
        """Whether something was trained in the folder."""
        return self.configuration_file.is_file()

    # ---- the training ---------------------------------------------------------------------------

    @property
    def configuration_file(self) -> Path:
        """The complete configuration of the training."""
        return self.folder / CONFIGURATION

    @property
    def environment_file(self) -> Path:
        """The machine, the versions and the data of the last start, and of those before."""
        return self.folder / "env.json"

    @property
    def statistics_file(self) -> Path:
        """The statistics of the training, one table of JSON per line."""
        return self.folder / "train.jsonl"

    @property
    def curve(self) -> Path:
        """The picture of the statistics."""
        return self.folder / "curve.png"

    @property
    def lock(self) -> Path:
        """The lock of the training."""
        return self.folder / ".lock"

    def log(self, rank: int = 0) -> Path:
        """Return the log of all libraries; of processes but the first, the log of warnings."""
        return self.folder / (f"train.rank{rank}.log" if rank else "train.log")

    def ending_file(self, phase: Path | None = None) -> Path:
        """Return the file that says why the training, or a phase in this folder, ended."""
        return (phase or self.folder) / "finished.json"

    def configuration(self) -> Sections:
        """Read the sections of the configuration; empty if nothing was trained here.

        Raises:
            UserError: the file was edited, and is no YAML.
        """
        return read_yaml(self.configuration_file) if self.exists else {}

    def start(self) -> Start:
        """Read the record of the last start."""
        return Start.from_json(read_json(self.environment_file))

    def statistics(self) -> Iterator[Statistics]:
        """Yield the lines of the statistics, if any; a full disk leaves half a line, left out."""
        try:
            lines = self.statistics_file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    def ending(self) -> Ending | None:
        """Read why the training ended; None if it has not."""
        return Ending.from_json(read_json(self.ending_file()))

    def write_ending(self, ending: Ending) -> None:
        """Write why the training ended."""
        with atomic_write(self.ending_file()) as stream:
            json.dump(asdict(ending), stream)

    # ---- the checkpoints ------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / CHECKPOINTS

    @property
    def last(self) -> Path:
        """The newest state of the training."""
        return self.checkpoints / LAST

    @property
    def best(self) -> Path:
        """The checkpoint with the best validation."""
        return self.checkpoints / BEST

    def average(self, count: int) -> Path:
        """Return the file of the average of the last ``count`` checkpoints."""
        return self.checkpoints / average_name(count)

    def averages(self) -> list[Path]:
        """Return the averages in the run, by name."""
        return sorted(self.checkpoints.glob("checkpoint_average*.pt"))

    def phases(self) -> list[Path]:
        """Return the folders of earlier phases (``checkpoint.reset_optimizer``), in order."""
        folders = self.checkpoints.glob("phase-*")
        phases = [path for path in folders if re.fullmatch(r"phase-\d+", path.name)]
        return sorted(phases, key=phase_number)

    # ---- what was made of it --------------------------------------------------------------------

    @property
    def evaluation(self) -> Path:
        """The folder of translations and scores."""
        return self.folder / "eval"

    def translations(self, subset: str = "test") -> Translations:
        """Return the translations of a subset, and their scores."""
        return Translations(self.evaluation, subset)

    def scored_translations(self) -> list[Translations]:
        """Return the translations that have a report of scores."""
        reports = sorted(self.evaluation.glob(f"*{SCORES}"))
        return [self.translations(path.name.removesuffix(SCORES)) for path in reports]

    @property
    def model(self) -> Path:
        """The packed model."""
        return self.folder / "model"

    @property
    def data_bin(self) -> DataBin:
        """The (first) data-bin that it was trained on."""
        return DataBin(first_data_bin(self.configuration()["task"]["data"]))
