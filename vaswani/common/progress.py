"""Progress: a bar on a terminal; for a stage, a line now and then in a log."""

import sys
import time
from types import TracebackType
from typing import Any

#: seconds between lines where there is no terminal
LINE_EVERY = 60.0


def bar(**options: Any) -> Any:
    """A tqdm bar, shown if stderr is a terminal unless ``disable`` is given."""
    from tqdm import tqdm

    class Shown(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no monitor thread beside forked processes

        @staticmethod
        def format_meter(*args: Any, **kwargs: Any) -> str:
            """As tqdm's, whose "1.50s/ updates" has the space before the unit twice over."""
            return str(tqdm.format_meter(*args, **kwargs)).replace("s/ ", "s/")

    return Shown(**{"disable": None, **options})


class Bar:
    """Counts pairs (or other units) of a stage; use as a context manager."""

    def __init__(self, title: str, total: int | None, unit: str = "pairs") -> None:
        self.title, self.total, self.unit = title, total, unit
        self.done = self.first = 0
        self.begun = self.last_line = time.monotonic()
        self.bar = bar(total=total, desc=title, unit=f" {unit}", leave=False, unit_scale=True)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.close()

    def update(self, count: int) -> None:
        """Count this many more as done."""
        if not self.done:  # the rate counts from here: processes, or fairseq, had to start first
            self.first, self.begun = count, time.monotonic()
        self.done += count
        self.bar.update(count)
        if self.bar.disable and time.monotonic() - self.last_line >= LINE_EVERY:
            self.last_line = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """``tokenise: 12,000 of 40,000 pairs, 3,200 per second, 0:00:08 left``."""
        seconds = max(time.monotonic() - self.begun, 1e-3)
        rate = (self.done - self.first) / seconds
        message = f"{self.title}: {self.done:,}"
        if self.total:
            message += f" of {self.total:,}"
        message += f" {self.unit}, {rate:,.0f} per second"
        if self.total and rate > 0:
            message += f", {clock((self.total - self.done) / rate)} left"
        return message


def clock(seconds: float) -> str:
    """``1:02:09`` for 3,729 seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
