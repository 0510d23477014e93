"""The record of a benchmark on a GPU, which is written again after each figure."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu_training import compare_with_fairseq
from benchmarks.table import Row, cell, markdown
from benchmarks.worker import log_progress
from vaswani.common.files import atomic_write

LEGEND = """Medians (least–most) of rounds. *tokens/s*: real target tokens. *real tokens*: the
share of the target's positions that are not padding. *GB reserved*: by torch, at most. *kernels*:
of an update, without copies and fills of memory. *busy*: the sum of their times in a profile, to
the time of an update without one. *MFU*: the model's operations per second, to those of the fastest
square product. fairseq's rows are without cuDNN's attention
(`torch.backends.cuda.enable_cudnn_sdp(False)`), but for "as it comes"."""
LONGEST = 4
"""Kernels that the Markdown names for each system; the JSON has all."""


@dataclass
class Section:
    """The figures of one table."""

    rows: list[Row] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """What was tried → why it failed."""
    measured: dict[str, Any] = field(default_factory=dict)
    """System → what its row was computed from."""
    curves: dict[str, Any] = field(default_factory=dict)
    """Training → its losses."""


class BenchmarkRecord:
    """Figures by section.

    Args:
        facts: the machine, versions and data
        path: of the record, without ``.json`` and ``.md``
        title: what was measured
        legend: what the columns are
    """

    def __init__(
        self, facts: dict[str, Any], path: Path, title: str = "gpu-check", legend: str = LEGEND
    ) -> None:
        self.facts = facts
        self.path = path
        self.title = title
        self.legend = legend
        self.sections: dict[str, Section] = {}
        self.notes: list[str] = []
        self.started = time.monotonic()

    def add(self, section: str, row: Row, measured: dict[str, Any] | None = None) -> None:
        """Show a row, and write the record."""
        table = self.section(section)
        table.rows.append(row)
        if measured:
            table.measured[row["system"]] = measured
        figures = ", ".join(f"{name} {cell(value)}" for name, value in row.items())
        self.show(f"{section}: {figures}")

    def note(self, text: str) -> None:
        """Add a line at the end of the record."""
        self.notes.append(text)
        self.show(text)

    @contextmanager
    def stage(self, section: str, what: str) -> Iterator[None]:
        """Continue after a failure in the block, whatever it is, and record it."""
        try:
            yield
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.section(section).failed[what] = lines[-1]
            self.show(f"{section}: {what} failed: {lines[-1]}")

    def section(self, name: str) -> Section:
        """Return the section of that name, and add it if it is new."""
        return self.sections.setdefault(name, Section())

    def has_failures(self) -> bool:
        """Return whether any stage failed."""
        return any(section.failed for section in self.sections.values())

    def show(self, text: str) -> None:
        """Print a line with the seconds since the start, and write the record."""
        seconds = time.monotonic() - self.started
        log_progress(f"[{seconds:4.0f} s] {text}")
        self.facts["seconds"] = round(seconds)
        results = {name: vars(section) for name, section in self.sections.items()}
        document = {"machine": self.facts, "notes": self.notes, "results": results}
        with atomic_write(self.path.with_name(f"{self.path.name}.json")) as stream:
            json.dump(document, stream, indent=1)
        with atomic_write(self.path.with_name(f"{self.path.name}.md")) as stream:
            stream.write(self.report())

    def report(self) -> str:
        """Return the record as Markdown."""
        facts = self.facts
        name = facts["cpu"] if facts["device"] == "cpu" else ", ".join(facts["gpus"])
        versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
        lines = [
            f"# {self.title} on {name}",
            "",
            f"`{facts['command']}`, {facts['time']}, commit `{facts['commit']}`, {versions}.",
            f"{facts['seconds']} s. Data: {facts['data']}.",
            "",
            self.legend,
        ]
        for title, section in self.sections.items():
            lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
            trainings = section.measured
            rows = compare_with_fairseq(section.rows) if trainings else section.rows
            lines += [markdown(rows)] if rows else []
            points = [f"- failed: {what}: {why}" for what, why in section.failed.items()]
            points += kernel_lines(section)
            lines += ["", *points] if points else []
        lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


def kernel_lines(section: Section) -> list[str]:
    """Return a line for each system of a training: the kernels that take longest."""
    lines = []
    for system, figures in section.measured.items():
        milliseconds = figures["profile"]["by_name"]
        longest = list(milliseconds)[:LONGEST]
        kernels = ", ".join(f"`{name[:60]}` {milliseconds[name]:.3g}" for name in longest)
        lines.append(f"- {system}, ms of an update: {kernels}")
    return lines
