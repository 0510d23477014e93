"""Reports a training in three forms: a bar (or a line now and then), train.jsonl and train.log.

fairseq logs its numbers as JSON messages of the module ``progress_bar`` (``log_format: json``);
a logging handler turns each into a line of train.jsonl and a step of the bar. The plugin's warnings
are shown; fairseq's own go only to train.log.
"""

import json
import logging
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, Optional

from vaswani.bar import bar, clock
from vaswani.training.run_record import statistics

#: seconds between lines if there is no terminal for a bar
LINE_EVERY = 30.0
_RESUMED = re.compile(r"Loaded checkpoint .*@ (\d+) updates")


def numbers(message: str) -> Dict[str, Any]:
    """fairseq's JSON message with its numbers as numbers; empty for any other message."""
    try:
        stats = json.loads(message)
    except ValueError:
        return {}
    plain: Dict[str, Any] = {}
    for key, value in stats.items() if isinstance(stats, dict) else ():
        try:
            plain[key] = float(value) if isinstance(value, str) else value
        except ValueError:
            plain[key] = value
        if key.endswith(("num_updates", "epoch")) and isinstance(plain[key], float):
            plain[key] = int(plain[key])
    return plain


def ends_in_half_a_line(path: Path) -> bool:
    """Whether the last line has no line end, as happens when the disk is full."""
    return path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0


class TrainingProgress(logging.Handler):
    """Writes ``jsonl`` and shows the progress of training; attach to the root logger."""

    def __init__(self, jsonl: Path, max_update: int) -> None:
        super().__init__(logging.INFO)
        self.earlier = max((line.get("seconds", 0.0) for line in statistics(jsonl)), default=0.0)
        half = ends_in_half_a_line(jsonl)
        self.stream = open(jsonl, "a", encoding="utf-8")  # noqa: SIM115  (closed in close)
        self.stream.write("\n" if half else "")
        self.total = max_update
        self.shown: Dict[str, str] = {}
        self.begun = time.monotonic()
        self.first_update: Optional[int] = None
        self.last_line = self.begun
        self.last_update = 0
        self.bar = bar(total=max_update or None, unit=" updates")

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a log record if it is a statistic, a resumed checkpoint or a warning."""
        message = record.getMessage()
        if record.levelno >= logging.WARNING and record.name.startswith("transformer_plugin"):
            self.bar.write(f"warning: {message}", file=sys.stderr)
        resumed = _RESUMED.search(message)
        if resumed:
            self.start_at(int(resumed.group(1)))
        elif record.module == "progress_bar":
            stats = numbers(message)
            if stats:
                self.write({"tag": record.name, **stats})
                self.show(record.name, stats)

    def write(self, line: Dict[str, Any]) -> None:
        """Append one line to train.jsonl, with the time of day and the seconds of training."""
        times = {"time": round(time.time(), 3), "seconds": round(self.seconds(), 1)}
        self.stream.write(json.dumps({**times, **line}) + "\n")
        self.stream.flush()

    def start_at(self, updates: int) -> None:
        """Start a resumed run at this many updates."""
        self.first_update = updates
        self.last_update = updates
        self.bar.n = self.bar.initial = updates
        self.bar.refresh()
        self.write({"tag": "resumed", "num_updates": updates})
        if self.bar.disable:
            print(f"continuing at update {updates:,}", file=sys.stderr)

    def show(self, tag: str, stats: Dict[str, Any]) -> None:
        """Move the bar, or print a line if it is time or a validation has ended."""
        validated = f"{tag}_loss" in stats and tag != "train"  # the tag is the set's name
        keys = [f"{tag}_ppl", f"{tag}_bleu"] if validated else []
        for key in ["loss", "ppl", "wps"] if tag == "train_inner" else keys:
            value = stats.get(key)
            if isinstance(value, float):
                self.shown[key] = f"{value:,.0f}" if key == "wps" else f"{value:.2f}"
        update = next((stats[key] for key in stats if key.endswith("num_updates")), None)
        if isinstance(update, int) and update >= self.last_update:
            if self.first_update is None:
                self.first_update = 0
            self.bar.update(update - self.last_update)
            self.last_update = update
        self.bar.set_postfix(self.shown, refresh=True)
        due = time.monotonic() - self.last_line >= LINE_EVERY
        if self.bar.disable and (validated or (due and tag == "train_inner")):
            self.last_line = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """``update 300 of 8,000 | loss 7.95 | … | 1:02:10 left``."""
        parts = [f"update {self.last_update:,}" + (f" of {self.total:,}" if self.total else "")]
        parts += [f"{key} {value}" for key, value in self.shown.items()]
        done = self.last_update - (self.first_update or 0)
        if self.total > self.last_update and done > 0:
            left = (self.total - self.last_update) * (time.monotonic() - self.begun) / done
            parts.append(f"{clock(left)} left")
        return " | ".join(parts)

    def seconds(self) -> float:
        """Seconds of training, including earlier starts of the same run."""
        return self.earlier + time.monotonic() - self.begun

    def close(self) -> None:
        """Close the bar and the file."""
        self.bar.close()
        self.stream.close()
        super().close()
