"""Progress: a bar on a terminal; for a stage, a line now and then in a log."""

import sys
from typing import Any

from tqdm import tqdm

#: seconds between lines where there is no terminal
LINE_EVERY = 60.0
LINE = "{desc}: {n_fmt} of {total_fmt}{unit}, {rate_fmt}, {remaining} left"

tqdm.monitor_interval = 0  # no monitor thread beside forked processes


def bar(**options: Any) -> tqdm:
    """Return a tqdm bar, shown if stderr is a terminal unless ``disable`` is given."""
    return tqdm(**{"disable": None, **options})


class Lines(tqdm):  # type: ignore[type-arg]
    """tqdm with lines in the place of a bar."""

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Print the text of the bar; nothing once it is closed."""
        if msg is None:
            print(self, file=sys.stderr, flush=True)


def stage_bar(title: str, total: int | None, unit: str = "pairs") -> tqdm:
    """Count pairs (or other units) of a stage; use as a context manager."""
    options: Any = {"desc": title, "total": total, "unit": f" {unit}", "unit_scale": True}
    if sys.stderr.isatty():
        return bar(leave=False, **options)
    return Lines(mininterval=LINE_EVERY, delay=LINE_EVERY, bar_format=LINE, leave=False, **options)
