"""What a training says while it goes on: a bar, or a line now and then; its curve.

fairseq gives its numbers to a progress bar (``log_format: json``); a subclass of it gives them to
``TrainingProgress``, which makes of them a run's statistics and steps of the bar on the terminal.
runs/NAME/curve.png is drawn from them, so the curve of a resumed run is that of all starts.
The plugin's warnings are shown; fairseq's own go only to train.log.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fairseq.logging.progress_bar import JsonProgressBar

from vaswani.common.files import atomic_write
from vaswani.common.progress import bar
from vaswani.folders.run import Ending, Run, Statistics

if TYPE_CHECKING:
    from vaswani.training.trainer import StoppableTrainer

#: seconds between lines if there is no terminal for a bar
LINE_EVERY = 30.0
#: updates after the first, which is slower, before the time left is estimated
ENOUGH = 10
#: the bar until then
NO_ESTIMATE = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
#: seconds between drawings of the curve, which take half a second each; it is also drawn at the end
DRAW_EVERY = 20.0
#: of a translation on the terminal: a young model may repeat a word without end
WIDTH = 160
#: what fairseq calls the numbers of the training text; other tags are validation sets
TRAINING = ("train", "train_inner")
Points = list[tuple[int, float]]


def statistics_bar(progress: "TrainingProgress") -> type[JsonProgressBar]:
    """Return fairseq's progress bar for JSON, changed to pass its numbers to ``progress``."""

    class StatisticsBar(JsonProgressBar):
        """fairseq's, as before, to train.log."""

        tag = ""

        def log(self, stats: Statistics, tag: str | None = None, step: int | None = None) -> None:
            """Log statistics amid an epoch, as fairseq, and note their tag."""
            self.tag = tag or ""
            super().log(stats, tag, step)

        def print(self, stats: Statistics, tag: str | None = None, step: int | None = None) -> None:
            """Log statistics after an epoch or a validation, as fairseq, and note their tag."""
            self.tag = tag or ""
            super().print(stats, tag, step)

        def _format_stats(self, *args: Any, **options: Any) -> Any:
            """Format statistics as fairseq, which calls this for what it logs, and pass them on."""
            formatted = super()._format_stats(*args, **options)
            progress.note(self.tag, numbers(formatted))
            return formatted

    return StatisticsBar


def numbers(formatted: Mapping[str, object]) -> Statistics:
    """Convert fairseq's statistics, most of which it logs as text, to numbers."""
    plain: Statistics = {}
    for key, value in formatted.items():
        try:
            plain[key] = float(value) if isinstance(value, str) else value
        except ValueError:
            plain[key] = value
        if key.endswith(("num_updates", "epoch")) and isinstance(plain[key], float):
            plain[key] = int(plain[key])
    return plain


def values_of(stats: Statistics, names: Sequence[str]) -> dict[str, str]:
    """Return the statistics that are numbers, as they are shown."""
    values = {}
    for name in names:
        value = stats.get(name)
        if isinstance(value, float):
            values[name] = f"{value:,.0f}" if name == "wps" else f"{value:.2f}"
    return values


class TrainingProgress(logging.Handler):
    """Writes a run's statistics and shows the progress of training.

    A handler of the root logger, for warnings and the translations of a validation; ``note`` is
    called with statistics, ``resume`` when a checkpoint was loaded, ``begin`` before each update.
    """

    #: fairseq's, once there is one
    trainer: "StoppableTrainer"

    def __init__(
        self, run: Run, max_update: int, opening: Callable[[int], str] = "update {}".format
    ) -> None:
        """Open the statistics and the bar.

        Args:
            run: whose statistics are continued
            max_update: the training's last update; 0 if that is no limit
            opening: from the updates so far to the line that is shown when training begins
        """
        super().__init__(logging.INFO)
        self.run = run
        self.earlier = max((line.get("seconds", 0.0) for line in run.statistics()), default=0.0)
        # a full disk leaves half a line
        jsonl = run.statistics_file
        half = jsonl.is_file() and jsonl.read_bytes()[-1:] not in (b"", b"\n")
        self.stream = open(jsonl, "a", encoding="utf-8")  # noqa: SIM115  (closed in close)
        self.stream.write("\n" if half else "")
        self.total = max_update
        self.opening = opening
        #: values of the training text, and of the last validation
        self.shown: dict[str, str] = {}
        self.validated: dict[str, str] = {}
        #: perplexity of each validation set, in fairseq's order
        self.perplexity: dict[str, float] = {}
        self.begun = self.last_line = self.last_curve = time.monotonic()
        #: whether the curve lacks a validation
        self.undrawn = False
        #: whether it can be drawn
        self.draws = True
        #: whether the first update has begun
        self.is_open = False
        #: when the first update was done, and its number: the rate counts from here
        self.first: tuple[float, int] | None = None
        self.last_update = 0
        # tqdm's time left would follow the last updates, and a validation: here it is the mean's
        form = NO_ESTIMATE if max_update else None
        self.bar = bar(total=max_update or None, unit=" updates", smoothing=0, bar_format=form)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a warning of the plugin, or a translation, which also goes into the statistics."""
        if record.levelno >= logging.WARNING and record.name.startswith("transformer_plugin"):
            self.bar.write(f"warning: {record.getMessage()}", file=sys.stderr)
        elif hasattr(record, "valid_sample"):
            sample = record.valid_sample
            self.write({"tag": "valid_sample", **sample})
            shown = f"{sample['source']} → {sample['translation']}"
            shown = shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 1]}…"
            self.bar.write(f"  {shown}", file=sys.stderr)

    def write(self, line: Statistics) -> None:
        """Append one line to the statistics, with the time of day and the seconds of training."""
        times = {"time": round(time.time(), 3), "seconds": round(self.seconds(), 1)}
        self.stream.write(json.dumps({**times, **line}) + "\n")
        self.stream.flush()

    def say(self, what: str) -> None:
        """Show a line at once, above the bar."""
        self.bar.write(what, file=sys.stderr)
        sys.stderr.flush()

    def resume(self, updates: int) -> None:
        """Continue the bar at this number of updates."""
        self.last_update = updates
        self.restart_clock(updates)
        self.bar.refresh()
        self.write({"tag": "resumed", "num_updates": updates})

    def restart_clock(self, updates: int) -> None:
        """Have tqdm count its rate from here, if it shows one."""
        if self.bar.disable:
            return
        self.bar.n = self.bar.initial = self.bar.last_print_n = updates
        self.bar.unpause()
        self.bar.start_t = self.bar.last_print_t

    def begin(self, updates: int) -> None:
        """Show the first line before the first update; later move the bar, or print a line if due.

        Args:
            updates: number of updates done
        """
        now = time.monotonic()
        if not self.is_open:
            self.is_open = True
            self.say(self.opening(self.last_update))
            self.last_line = now
        elif self.first is None:
            self.first = (now, updates)
            self.last_update = updates
            self.restart_clock(updates)
        self.move_to(updates)
        if self.bar.disable and now - self.last_line >= LINE_EVERY:
            self.last_line = now
            self.say(self.line())

    def move_to(self, updates: int) -> None:
        """Move the bar, which estimates the time left once enough updates were timed."""
        if self.first and updates >= self.first[1] + ENOUGH:
            self.bar.bar_format = None
        if updates > self.last_update:
            self.bar.update(updates - self.last_update)
            self.last_update = updates

    def note(self, tag: str, stats: Statistics) -> None:
        """Write statistics, and show them on the bar, or in a line after a validation.

        Args:
            tag: ``train_inner``, ``train`` (an epoch's end) or the name of a validation set
            stats: by fairseq's names
        """
        self.write({"tag": tag, **stats})
        is_validation = f"{tag}_loss" in stats and tag not in TRAINING
        if tag == "train_inner":
            self.shown.update(values_of(stats, ["loss", "ppl", "wps"]))
        update = next((stats[key] for key in stats if key.endswith("num_updates")), None)
        if isinstance(update, int):
            self.move_to(update)
        if is_validation:
            names = [f"{tag}_{name}" for name in ("ppl", "bleu", "tokenised_bleu")]
            values = values_of(stats, names)
            self.validated.update(values)
            if f"{tag}_ppl" in stats:
                self.perplexity[tag] = float(stats[f"{tag}_ppl"])
            if self.bar.disable:
                self.last_line = time.monotonic()
                self.say(self.line(values))
        self.bar.set_postfix({**self.shown, **self.validated}, refresh=True)
        self.undrawn = self.undrawn or is_validation
        if is_validation and time.monotonic() - self.last_curve >= DRAW_EVERY:
            self.draw()

    def draw(self) -> None:
        """Draw the curve so far; report a failure once, and never end the training for it."""
        if not self.draws:
            return
        self.last_curve = time.monotonic()
        self.undrawn = False
        try:
            draw_curve(self.run)
        except Exception as error:
            self.draws = False
            self.bar.write(f"{self.run.curve} is not drawn: {error}", file=sys.stderr)

    def line(self, validated: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return the current state: ``update 300 of 8,000 | loss 7.95 | … | 1:02:10 left``.

        Args:
            validated: values of a validation after this update; no other line has them
        """
        parts = [f"update {self.last_update:,}" + (f" of {self.total:,}" if self.total else "")]
        parts += [f"{key} {value}" for key, value in {**self.shown, **validated}.items()]
        begun, updates = self.first or (0.0, self.last_update)
        if self.first and self.total > self.last_update >= updates + ENOUGH:
            an_update = (time.monotonic() - begun) / (self.last_update - updates)
            remaining = timedelta(seconds=round((self.total - self.last_update) * an_update))
            parts.append(f"{remaining} left")
        return " | ".join(parts)

    def seconds(self) -> float:
        """Return the seconds of training, including earlier starts of the same run."""
        return self.earlier + time.monotonic() - self.begun

    def ending(self, stop: str) -> Ending:
        """Return the record of how the training ended.

        Args:
            stop: the hash of what decides that
        """
        return Ending(
            num_updates=self.last_update,
            seconds=round(self.seconds(), 1),
            reason=self.trainer.why_over(),
            perplexity=next(iter(self.perplexity.values()), None),
            stop=stop,
        )

    def close(self) -> None:
        """Close the bar and the file."""
        if self.undrawn:
            self.draw()
        self.bar.close()
        self.stream.close()
        super().close()


# ---- the curve -----------------------------------------------------------------------------------


def curve_points(run: Run) -> dict[str, Points]:
    """Return the curves by name: of the training text, and of the first validation set.

    What a run did after the checkpoint that it was resumed from is left out: it was done again.
    """
    curves: dict[str, Points] = {}
    valid = ""
    for line in run.statistics():
        tag = line.get("tag", "")
        if tag == "resumed":
            for curve in curves.values():
                curve[:] = [point for point in curve if point[0] <= line["num_updates"]]
        if f"{tag}_loss" in line and tag not in TRAINING:
            valid = valid or tag
        names = {"loss": "training loss"} if tag == "train_inner" else {}
        if tag and tag == valid:
            names = {
                f"{tag}_loss": "validation loss",
                f"{tag}_bleu": "BLEU",
                f"{tag}_tokenised_bleu": "tokenised BLEU",
            }
        updates: Any = line.get("num_updates", line.get(f"{tag}_num_updates"))
        for key, name in names.items():
            if key in line:
                curves.setdefault(name, []).append((updates, line[key]))
    return curves


def draw_curve(run: Run) -> None:
    """Draw the curve of a run's statistics; raise ImportError without matplotlib."""
    from matplotlib.figure import Figure  # without pyplot, which would choose a screen

    figure = Figure()
    losses = figure.add_subplot(
        title=run.folder.name, xlabel="updates", ylabel="loss (bits per token)"
    )
    scores = losses.twinx()
    for number, (name, curve) in enumerate(sorted(curve_points(run).items(), reverse=True)):
        axes = scores if name.endswith("BLEU") else losses
        style = "-" if name == "training loss" else ".-"
        axes.plot(*zip(*curve, strict=True), style, color=f"C{number}", label=name)
    scores.set(ylabel="BLEU", visible=bool(scores.lines))
    losses.grid(alpha=0.3)
    losses.legend(handles=[*losses.lines, *scores.lines], loc="center right")
    with atomic_write(run.curve, "wb") as stream:
        figure.savefig(stream, format="png", dpi=100)
