"""What a training says: a bar, or a line now and then; its first and last words; its curve.

fairseq gives its numbers to a progress bar (``log_format: json``); a subclass of it gives them to
``TrainingProgress``, which makes of them lines of train.jsonl and steps of the bar on the terminal.
runs/NAME/curve.png is drawn from train.jsonl, so the curve of a resumed run is that of all starts.
The plugin's warnings are shown; fairseq's own go only to train.log.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vaswani.common.files import atomic_write
from vaswani.common.progress import bar, clock
from vaswani.experiment.launch import devices_in_words
from vaswani.experiment.run_record import statistics

CURVE = "curve.png"
#: seconds between lines if there is no terminal for a bar
LINE_EVERY = 30.0
#: seconds between drawings of the curve, which take half a second each; it is also drawn at the end
DRAW_EVERY = 20.0
#: of a translation on the terminal: a young model may repeat a word without end
WIDTH = 160
#: what fairseq calls the numbers of the training text; other tags are validation sets
TRAINING = ("train", "train_inner")
#: updates, minutes, value
Point = tuple[int, float, float]


def statistics_bar(progress: "TrainingProgress") -> Any:
    """fairseq's progress bar for JSON, whose numbers also go to ``progress``."""
    from fairseq.logging.progress_bar import JsonProgressBar

    class StatisticsBar(JsonProgressBar):
        """fairseq's, as before, to train.log."""

        tag = ""

        def log(self, stats: Any, tag: str | None = None, step: int | None = None) -> None:
            """As fairseq's: amid an epoch."""
            self.tag = tag or ""
            super().log(stats, tag, step)

        def print(self, stats: Any, tag: str | None = None, step: int | None = None) -> None:
            """As fairseq's: at the end of an epoch, or of a validation."""
            self.tag = tag or ""
            super().print(stats, tag, step)

        def _format_stats(self, *args: Any, **options: Any) -> Any:
            """As fairseq's, which calls it for what it logs."""
            formatted = super()._format_stats(*args, **options)
            progress.note(self.tag, numbers(formatted))
            return formatted

    return StatisticsBar


def numbers(formatted: Mapping[str, Any]) -> dict[str, Any]:
    """fairseq's statistics with their numbers as numbers: it logs most of them as text."""
    plain: dict[str, Any] = {}
    for key, value in formatted.items():
        try:
            plain[key] = float(value) if isinstance(value, str) else value
        except ValueError:
            plain[key] = value
        if key.endswith(("num_updates", "epoch")) and isinstance(plain[key], float):
            plain[key] = int(plain[key])
    return plain


class TrainingProgress(logging.Handler):
    """Writes ``jsonl`` and shows the progress of training.

    A handler of the root logger, for warnings and the translations of a validation; ``note`` is
    called with statistics, ``resume`` when a checkpoint was loaded, ``begin`` at the first update.
    """

    #: fairseq's, once there is one
    trainer: Any = None

    def __init__(
        self,
        jsonl: Path,
        max_update: int,
        hours: float = 0.0,
        opening: Callable[[int], str] = "update {}".format,
    ) -> None:
        """Open train.jsonl and the bar.

        Args:
            jsonl: the file
            max_update: the training's last update; 0 if that is no limit
            hours: fairseq's stop_time_hours; 0 if that is no limit
            opening: from the updates so far to the line that is shown when training begins
        """
        super().__init__(logging.INFO)
        self.earlier = max((line.get("seconds", 0.0) for line in statistics(jsonl)), default=0.0)
        # a full disk leaves half a line
        half = jsonl.is_file() and jsonl.read_bytes()[-1:] not in (b"", b"\n")
        self.stream = open(jsonl, "a", encoding="utf-8")  # noqa: SIM115  (closed in close)
        self.stream.write("\n" if half else "")
        self.total, self.hours, self.opening = max_update, hours, opening
        self.shown: dict[str, str] = {}
        #: perplexity of each validation set, in fairseq's order
        self.perplexity: dict[str, float] = {}
        #: until drawing has failed
        self.draws = True
        #: the clock from which the curve is drawn again; whether it lacks a validation
        self.draw_from, self.undrawn = time.monotonic() + DRAW_EVERY, False
        self.begun = self.last_line = time.monotonic()
        #: fairseq's clock for stop_time_hours: seconds before, and since when it has run again
        self.before, self.since = 0.0, self.begun
        #: when the first update began, and after how many: the rate counts from here
        self.first: tuple[float, int] | None = None
        self.last_update = 0
        # tqdm's time left would follow the last updates, and a validation: here it is the mean's
        self.bar = bar(total=max_update or None, unit=" updates", smoothing=0)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a warning of the plugin's, or a translation, which also goes into train.jsonl."""
        if record.levelno >= logging.WARNING and record.name.startswith("transformer_plugin"):
            self.bar.write(f"warning: {record.getMessage()}", file=sys.stderr)
        elif hasattr(record, "valid_sample"):
            sample = record.valid_sample
            self.write({"tag": "valid_sample", **sample})
            shown = f"{sample['source']} → {sample['translation']}"
            shown = shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 1]}…"
            self.bar.write(f"  {shown}", file=sys.stderr)

    def write(self, line: dict[str, Any]) -> None:
        """Append one line to train.jsonl, with the time of day and the seconds of training."""
        times = {"time": round(time.time(), 3), "seconds": round(self.seconds(), 1)}
        self.stream.write(json.dumps({**times, **line}) + "\n")
        self.stream.flush()

    def resume(self, updates: int, seconds: float) -> None:
        """Go on from this many updates, after this many seconds, by fairseq's clock."""
        self.before, self.since = seconds, time.monotonic()
        self.last_update = updates
        # without the last of these, tqdm takes all updates so far for those of the first second
        self.bar.n = self.bar.initial = self.bar.last_print_n = updates
        self.bar.refresh()
        self.write({"tag": "resumed", "num_updates": updates})

    def begin(self) -> None:
        """Show the first line, before the first update."""
        if self.first is None:
            self.first = (time.monotonic(), self.last_update)
            self.bar.unpause()  # tqdm's clock starts here, too
            self.bar.write(self.opening(self.last_update), file=sys.stderr)

    def note(self, tag: str, stats: dict[str, Any]) -> None:
        """Write statistics; move the bar, or print a line if it is time or a validation ended.

        Args:
            tag: ``train_inner``, ``train`` (an epoch's end) or the name of a validation set
            stats: by fairseq's names
        """
        self.write({"tag": tag, **stats})
        validated = f"{tag}_loss" in stats and tag not in TRAINING
        measured = ("ppl", "bleu", "tokenised_bleu") if validated else ()
        keys = [f"{tag}_{name}" for name in measured]
        for key in ["loss", "ppl", "wps"] if tag == "train_inner" else keys:
            value = stats.get(key)
            if isinstance(value, float):
                self.shown[key] = f"{value:,.0f}" if key == "wps" else f"{value:.2f}"
        update = next((stats[key] for key in stats if key.endswith("num_updates")), None)
        if isinstance(update, int) and update >= self.last_update:
            self.bar.update(update - self.last_update)
            self.last_update = update
        if validated and f"{tag}_ppl" in stats:
            self.perplexity[tag] = float(stats[f"{tag}_ppl"])
        if self.hours:
            rate = self.rate()
            total = self.last_update + round(self.left() * rate) if rate else self.total
            self.bar.total = total or None
        self.bar.set_postfix(self.shown, refresh=True)
        due = time.monotonic() - self.last_line >= LINE_EVERY
        if self.bar.disable and (validated or (due and tag == "train_inner")):
            self.last_line = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)
        self.undrawn = self.undrawn or validated
        if validated and time.monotonic() >= self.draw_from:
            self.draw()

    def draw(self) -> None:
        """Draw the curve so far; whatever goes wrong is said once, and never ends a training."""
        if not self.draws:
            return
        log = Path(self.stream.name)
        self.draw_from, self.undrawn = time.monotonic() + DRAW_EVERY, False
        try:
            draw_curve(log, log.parent.name)
        except Exception as error:
            self.draws = False
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, ImportError):
                reason = "'pip install matplotlib' makes it possible"
            self.bar.write(f"{log.with_name(CURVE)} is not drawn: {reason}", file=sys.stderr)

    def line(self) -> str:
        """``update 300 of 8,000 | loss 7.95 | … | 1:02:10 left``."""
        parts = [f"update {self.last_update:,}" + (f" of {self.total:,}" if self.total else "")]
        parts += [f"{key} {value}" for key, value in self.shown.items()]
        left = self.left()
        if left > 0 and left != math.inf:
            parts.append(f"{clock(left)} left")
        return " | ".join(parts)

    def rate(self) -> float:
        """Updates per second since the first one of this start; 0 before it is done."""
        if self.first is None or self.last_update <= self.first[1]:
            return 0.0
        return (self.last_update - self.first[1]) / max(time.monotonic() - self.first[0], 1e-3)

    def left(self) -> float:
        """Seconds until the limit that comes first; infinite if that is not known."""
        left, rate = math.inf, self.rate()
        if self.total and rate:
            left = (self.total - self.last_update) / rate
        if self.hours:
            left = min(left, 3600 * self.hours - self.before - (time.monotonic() - self.since))
        return max(0.0, left)

    def seconds(self) -> float:
        """Seconds of training, including earlier starts of the same run."""
        return self.earlier + time.monotonic() - self.begun

    def summary(self) -> dict[str, Any]:
        """What finished.json records of a training that has ended."""
        return {
            "num_updates": self.last_update,
            "seconds": round(self.seconds(), 1),
            "reason": self.trainer.why_over(),
            "perplexity": next(iter(self.perplexity.values()), None),
        }

    def close(self) -> None:
        """Close the bar and the file."""
        if self.undrawn:
            self.draw()
        self.bar.close()
        self.stream.close()
        super().close()


# ---- the curve -----------------------------------------------------------------------------------


def curve_points(log: Path) -> dict[str, list[Point]]:
    """The curves by name: of the training text, and of the first validation set.

    What a run did after the checkpoint that it was resumed from is left out: it was done again.
    """
    found: dict[str, list[Point]] = {}
    valid = ""
    for line in statistics(log):
        tag = line.get("tag", "")
        if tag == "resumed":
            kept = line["num_updates"]
            found = {name: [p for p in curve if p[0] <= kept] for name, curve in found.items()}
        of_set = f"{tag}_loss" in line and tag not in TRAINING
        valid = valid or (tag if of_set else "")
        names = {"loss": "training loss"} if tag == "train_inner" else {}
        if of_set and tag == valid:
            names = {
                f"{tag}_loss": "validation loss",
                f"{tag}_bleu": "BLEU",
                f"{tag}_tokenised_bleu": "tokenised BLEU",
            }
        updates = line.get("num_updates", line.get(f"{tag}_num_updates"))
        for key, name in names.items():
            if isinstance(line.get(key), float) and isinstance(updates, int):
                point = (updates, line.get("seconds", 0.0) / 60, line[key])
                found.setdefault(name, []).append(point)
    return found


def draw_curve(log: Path, title: str) -> None:
    """Write curve.png beside train.jsonl; ImportError without matplotlib.

    Args:
        log: train.jsonl
        title: of the picture
    """
    from matplotlib.figure import Figure  # without pyplot, which would choose a screen

    curves = curve_points(log)
    figure: Any = Figure(figsize=(10, 4), layout="constrained")
    figure.suptitle(title)
    for place, unit in enumerate(("updates", "minutes")):
        losses = figure.add_subplot(1, 2, place + 1, xlabel=unit, ylabel="loss (bits per token)")
        losses.grid(alpha=0.3)
        scores = losses.twinx()
        for number, (name, curve) in enumerate(sorted(curves.items(), reverse=True)):
            axes = scores if name.endswith("BLEU") else losses
            x, y = [point[place] for point in curve], [point[2] for point in curve]
            style = "-" if name == "training loss" else ".-"
            axes.plot(x, y, style, color=f"C{number}", label=name)
            if axes is scores:
                scores.set_ylabel(name)
        if not scores.lines:
            scores.set_axis_off()
        losses.legend(handles=[*losses.lines, *scores.lines], loc="center right")
    with atomic_write(log.with_name(CURVE), "wb") as stream:
        figure.savefig(stream, format="png", dpi=100)


# ---- when it begins and ends ---------------------------------------------------------------------


def start_message(config: Any, updates: int) -> str:
    """``training on the CPU in fp32 to update 8,000; saves every 100 updates; log: …``.

    Args:
        config: the experiment's
        updates: how many the run has already
    """
    verb = f"continuing at update {updates:,}" if updates else "training"
    where = f"{devices_in_words(config)}{',' if updates else ''}"
    log = Path(config.checkpoint.save_dir).parent / "train.log"
    parts = [f"{verb} {where} {limits_in_words(config)}", saving_in_words(config)]
    return "; ".join([*parts, f"log: {log}"])


def limits_in_words(config: Any) -> str:
    """How long a training goes on: ``to update 8,000 or for 0.2 hours``."""
    given, patience = config.optimization, config.checkpoint.patience
    parts = []
    if given.max_update > 0:
        parts.append(f"to update {given.max_update:,}")
    if given.max_epoch > 0:
        parts.append(f"to the end of epoch {given.max_epoch:,}")
    if given.stop_time_hours > 0:
        parts.append(f"for {given.stop_time_hours:g} hours")
    if patience > 0:
        parts.append(f"until {patience:,} validations in a row bring no improvement")
    return " or ".join(parts) or "without end"


def saving_in_words(config: Any) -> str:
    """When a training saves: ``saves every 100 updates and after each epoch``."""
    given = config.checkpoint
    if given.no_save:
        return "saves nothing (checkpoint.no_save)"
    parts = []
    if given.save_interval_updates > 0:
        after = config.dataset.validate_after_updates
        begin = f" from update {after:,} on" if after > given.save_interval_updates else ""
        parts.append(f"every {given.save_interval_updates:,} updates{begin}")
        last = getattr(config.task, "save_all_last", 0) or 0
        if 0 < last < config.optimization.max_update:
            parts[0] += f" (before the last {last:,}, once in ten minutes)"
    epochs = given.save_interval
    parts.append("after each epoch" if epochs == 1 else f"every {epochs:,} epochs")
    return f"saves {' and '.join(parts)}"


def end_message(finished: dict[str, Any], max_update: int) -> str:
    """``stopped by stop_time_hours at update 274 of 12,480, validation perplexity 112``.

    Args:
        finished: what finished.json records
        max_update: of the experiment; 0 for any number
    """
    updates, perplexity = finished["num_updates"], finished.get("perplexity")
    text = f"stopped by {finished['reason']} at update {updates:,}"
    text += f" of {max_update:,}" if updates < max_update else ""
    if perplexity is not None:
        text += f", validation perplexity {perplexity:,.{0 if perplexity >= 100 else 2}f}"
    return text


def divergence_message(reason: str, checkpoints: Path) -> str:
    """The message about a training whose numbers became NaN or infinite.

    Args:
        reason: fairseq's, with the update: "update 12: gradients are Nan/Inf"
        checkpoints: the run's checkpoint folder
    """
    from transformer_plugin.checkpoints import CheckpointError
    from transformer_plugin.compat.resuming import newest_checkpoint

    try:
        newest = newest_checkpoint(checkpoints)
    except CheckpointError:
        newest = None
    good = f"the last good checkpoint is {newest[1]}" if newest else "no checkpoint was saved"
    return (
        f"the training diverged at {reason.splitlines()[0]}; {good}: lower the learning rate "
        "(optimization.lr, lr_scheduler.lr_factor) or lengthen the warm-up, and run the command "
        "again, with another run=NAME to start over"
    )
