"""How much is learned per update and per hour: read from training logs; nothing is trained.

    make bench BENCH=learning                                  the table benchmarks/learning.yaml
    make bench BENCH='learning GROUPS.yaml --record TRAIN.json --work "tiny, 4,096 max-tokens"'
    make bench BENCH="learning runs/a runs/b/train.jsonl fairseq_train.log.gz"

A log is one of fairseq's (``--log-format json``), a train.jsonl, or a run's folder; gzipped or not.
Each log given as a path is a separate group; a table groups the seeds of one training::

    record: results/NAME.json            # from 'make bench BENCH=train', for the seconds (--record)
    work: tiny, 4,096 max-tokens         # which training in it (--work)
    groups:
      fairseq: logs/fairseq_s*.log.gz    # the label also names the record's system by default
      ours, their values: {logs: [a_*/train.jsonl, b.jsonl], system: "ours, bf16"}

Seconds are updates × tokens per update (from the log) ÷ tokens per second (from the record,
measured alone): they leave out validation, checkpoints and whatever else the machine was doing.
It writes RESULTS/HARDWARE_DATE_learning.json, .md and .png.
"""

import argparse
import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.curves import Group, curve_of, curve_rows, read_log, row_of
from benchmarks.table import markdown
from vaswani.common.errors import UserError, nearest
from vaswani.common.files import read_json
from vaswani.experiment.yaml_tables import read_yaml

TABLE = Path(__file__).parent / "learning.yaml"


class RequestedGroup(NamedTuple):
    """A group as requested: its logs, and the record's system with the same speed."""

    label: str
    paths: list[Path]
    system: str | None


def parser(results: Path) -> argparse.ArgumentParser:
    """Which logs, and the speed from which their seconds are computed."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.run learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "logs",
        metavar="GROUPS.yaml|LOG",
        nargs="*",
        default=[str(TABLE)],
        help="(default: benchmarks/learning.yaml)",
    )
    options.add_argument("--record", metavar="FILE.json", help="from 'make bench BENCH=train'")
    options.add_argument("--work", metavar="NAME", help="which training in it the logs are of")
    options.add_argument(
        "--out", metavar="DIR", default=str(results), help="(default: benchmarks/results)"
    )
    return options


def read_groups(path: Path) -> tuple[dict[str, Any], list[RequestedGroup]]:
    """A table's other keys, and its groups. Paths are relative to the table.

    Raises:
        UserError: it is not such a table, or a pattern matches no file.
    """
    table = read_yaml(path)
    unknown = [key for key in table if key not in ("record", "work", "groups")]
    if unknown or not isinstance(table.get("groups"), dict):
        raise UserError(f"{path} should have 'groups: LABEL: LOGS' (and 'record:' and 'work:')")
    wanted = []
    for label, given in table["groups"].items():
        entry = given if isinstance(given, dict) else {"logs": given}
        patterns = entry.get("logs")
        patterns = patterns if isinstance(patterns, list) else [patterns]
        found = [Path(f) for p in patterns for f in sorted(glob.glob(str(path.parent / str(p))))]
        if not found:
            raise UserError(f"{path}, '{label}': there is no log {', '.join(map(str, patterns))}")
        wanted.append(RequestedGroup(str(label), found, entry.get("system")))
    if table.get("record"):
        table["record"] = str(path.parent / table["record"])
    return table, wanted


def read_speeds(record: str, work: str | None) -> dict[str, float]:
    """System → tokens per second, for one training in a record.

    Raises:
        UserError: it is not a training record, or does not have that training.
    """
    rows = read_json(Path(record)).get("results", {}).get("train", {}).get("rows")
    if not rows:
        raise UserError(f"{record} is no record of 'make bench BENCH=train' (its .json)")
    works = list(dict.fromkeys(row["work"] for row in rows))
    if work not in works:
        raise UserError(
            f"{record} has no training '{work}'{nearest(str(work), works)}: give --work one of "
            f"{'; '.join(works)} (with 'train --full' there are more)"
        )
    return {row["system"]: row["tokens/s"]["median"] for row in rows if row["work"] == work}


def groups_of(wanted: Sequence[RequestedGroup], speeds: dict[str, float]) -> list[Group]:
    """Read the logs; a group's speed is that of its system, by default the one its label names.

    Raises:
        UserError: a log cannot be read, or the record does not have the given system.
    """
    groups = []
    for label, paths, system in wanted:
        if speeds and system is not None and system not in speeds:
            known = "; ".join(speeds)
            raise UserError(f"'{label}': the record has no system '{system}', only {known}")
        logs = [read_log(path) for path in paths]
        groups.append(Group(label, logs, speeds.get(label if system is None else system)))
    return groups


def label_of(path: Path) -> str:
    """The label of a log given by its path: the run's name, or the file's."""
    if path.is_dir():
        return path.name
    return path.parent.name if path.name.startswith("train.") else path.name.split(".")[0]


def report(args: argparse.Namespace) -> dict[str, Any]:
    """The results for the requested logs.

    Raises:
        UserError: see :func:`read_groups`, :func:`read_speeds`, :func:`groups_of`.
    """
    tables = [path for path in args.logs if path.endswith((".yaml", ".yml"))]
    record, work = args.record, args.work
    if tables:
        if len(args.logs) > 1:
            raise UserError(f"{tables[0]} is a table of logs: give it alone")
        table, wanted = read_groups(Path(tables[0]))
        record, work = record or table.get("record"), work or table.get("work")
    else:
        paths = [Path(path) for path in args.logs]
        wanted = [RequestedGroup(label_of(path), [path], None) for path in paths]
    groups = groups_of(wanted, read_speeds(record, work) if record else {})
    logs = {w.label: [os.path.relpath(path) for path in w.paths] for w in wanted}
    source = "no record was given, so there are no seconds"
    if record:
        source = f"{os.path.relpath(record)}, {work}"
    return {
        "rows": [row_of(group) for group in groups],
        "curves": {group.label: curve_of(group) for group in groups},
        "groups": groups,
        "notes": [
            "Validation nll in bits per token, median (least–most) over the seeds:",
            markdown(curve_rows(groups)),
            f"Seconds: updates × tokens per update ÷ tokens per second alone ({source}).",
            "Logs: " + "; ".join(f"{label}: {', '.join(paths)}" for label, paths in logs.items()),
        ],
    }
