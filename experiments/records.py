"""A record: what an experiment found, on which machine, with the logs and translations behind it.

experiments/NAME/records/DATE_MACHINE/
    record.json                machine, expectation, figures of every run
    page.md, picture.png       made from it
    logs.tar.xz                each run's statistics, scores and translations (record_files.py), and
                               the counts of each test sentence, if there are any (sentences.py)
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.record_files import ARCHIVE, Files, record_files, write_record_files
from experiments.tables import join_tables
from vaswani.common.environment import hardware_name, machine
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, read_json

if TYPE_CHECKING:
    from experiments.harness import Experiment

EXPERIMENTS = Path(__file__).parent
"""The folder of the experiments; a run of another record names that record below it."""
Record = dict[str, Any]
"""With ``machine``, ``table``, ``expected`` and ``rows``: a row's name → its ``runs`` and more."""
ORIGIN = ("cpu", "gpus", "commit")
"""What a record says of the machine and the commit that a run was trained with."""
RECORD_FILE, PAGE, PICTURE = "record.json", "page.md", "picture.png"


def read_record(folder: Path) -> Record:
    """Return the figures of a record; empty if there is none."""
    return read_json(folder / RECORD_FILE)


def record_of(experiment: "Experiment", folder: Path) -> Record:
    """Return the figures of a record of an experiment.

    Raises:
        UserError: the folder has none, or that of another experiment.
    """
    record = read_record(folder)
    if record.get("table") != experiment.name or not isinstance(record.get("rows"), dict):
        has = f"that of {record['table']}" if "table" in record else "none"
        raise UserError(
            f"{folder} has no {RECORD_FILE} of {experiment.name}, but {has}: give the folder of "
            f"one of its records, as in experiments/{experiment.name}/records"
        )
    return record


def collect_record(experiment: "Experiment", earlier: Path | None = None) -> Record:
    """Collect the figures of runs on this machine, and of the runs of an earlier record.

    Args:
        earlier: the folder of a record of this experiment

    Raises:
        UserError: it is none, or nothing is trained.
    """
    before = record_of(experiment, earlier)["rows"] if earlier else {}
    rows: dict[str, Any] = {}
    for row in experiment.rows:
        earlier_row = before.get(row.name, {"runs": []})
        runs = {run["run"]: run for run in earlier_row["runs"]}
        for folder in experiment.runs(row):
            trained = read_json(folder / "env.json")
            origin = {key: trained[key] for key in ORIGIN if key in trained}
            runs[str(folder)] = {"run": str(folder), **experiment.measure(folder), **origin}
        if runs:
            in_order = [runs[name] for name in sorted(runs)]
            rows[row.name] = {**earlier_row, **experiment.describe(row), "runs": in_order}
    if not rows:
        raise UserError(
            f"nothing of {experiment.name} is trained: python -m experiments {experiment.name}"
        )
    record = {
        "machine": {**machine("cpu"), "command": f"python -m experiments {experiment.name}"},
        "table": experiment.name,
        "expected": experiment.expected,
        "rows": rows,
    }
    experiment.complete(record, earlier)
    return record


def write_record(
    experiment: "Experiment", record: Record, records: Path, earlier: Path | None
) -> Path:
    """Write a record with its page, picture and files, and return its folder."""
    facts = record["machine"]
    folder = records / f"{facts['time'][:10]}_{hardware_name(facts)}"
    folder.mkdir(parents=True, exist_ok=True)
    files = record_files(folder)
    for row in record["rows"].values():
        for entry in [*row["runs"], *row.get("rates", [])]:
            files |= files_of_entry(experiment, entry, earlier)
    write_record_files(folder, files)
    write_figures(record, folder)
    experiment.draw(record, folder)
    write_page(experiment, folder)
    return folder


def files_of_entry(experiment: "Experiment", entry: dict[str, Any], earlier: Path | None) -> Files:
    """Return the files of a run: from its folder if it is here, else from another record."""
    run = Path(entry["run"])
    borrowed_from = entry.get("record")
    if run.is_dir() and not borrowed_from:
        return {name: path.read_bytes() for name, path in experiment.files(run).items()}
    other_record = EXPERIMENTS / borrowed_from if borrowed_from else earlier
    if not other_record:
        return {}
    files = record_files(other_record)
    return {name: files[name] for name in files if name.startswith(f"{run.name}.")}


def write_figures(record: Record, folder: Path) -> None:
    """Write the record to ``record.json``."""
    with atomic_write(folder / RECORD_FILE) as stream:
        json.dump(record, stream, indent=1)


def write_page(experiment: "Experiment", folder: Path) -> None:
    """Make a record's page from its figures, after adding those that follow from its files.

    Raises:
        UserError: there is no record of this experiment.
    """
    record = record_of(experiment, folder)
    before = json.dumps(record)
    experiment.derive(record, folder)
    if json.dumps(record) != before:
        write_figures(record, folder)
    with atomic_write(folder / PAGE) as stream:
        stream.write(page(experiment, folder))


def page(experiment: "Experiment", folder: Path) -> str:
    """Return the text of a record's page."""
    record = read_record(folder)
    facts = record["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    parts = [
        f"# {experiment.title}",
        experiment.question,
        "## Expected, written before the first run",
        f"{record['expected'].rstrip('.')}.",
        "## Found",
        join_tables(experiment.tables(record)),
    ]
    if (folder / PICTURE).is_file():
        parts.append(f"![{experiment.title}]({PICTURE})")
    parts.append(
        f"`{facts['command']}`, commit `{facts['commit']}`, {facts['cpu']}, {facts['cores']} "
        f"processors, one thread, beside other work; {versions}. [Figures]({RECORD_FILE}), "
        f"[logs and translations]({ARCHIVE})."
    )
    parts += origin_sentences(record)
    return "\n\n".join(parts) + "\n"


def origin_sentences(record: Record) -> list[str]:
    """Return a sentence for each machine and commit that runs were trained on, where known."""
    origins: dict[tuple[str, str], list[str]] = {}
    for row in record["rows"].values():
        for run in row["runs"]:
            if run.get("cpu"):
                device = ", ".join(run.get("gpus", [])) or run["cpu"]
                origin = device, run["commit"]
                origins.setdefault(origin, []).append(Path(run["run"]).name)
    return [
        f"Trained on {device}, commit `{commit}`: {', '.join(names)}."
        for (device, commit), names in origins.items()
    ]
