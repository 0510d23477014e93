"""runs/NAME/curve.png: training and validation loss and BLEU, against updates and minutes.

It is drawn from train.jsonl, so the curve of a resumed run is that of all its starts.
"""

from pathlib import Path
from typing import Any, Dict, List, Tuple

from vaswani.common.files import atomic_write
from vaswani.experiment.run_record import statistics

CURVE = "curve.png"
#: what fairseq calls the numbers of the training text; other tags are validation sets
TRAINING = ("train", "train_inner")
#: updates, minutes, value
Point = Tuple[int, float, float]


def points(log: Path) -> Dict[str, List[Point]]:
    """The curves by name: of the training text, and of the first validation set.

    What a run did after the checkpoint that it was resumed from is left out: it was done again.
    """
    found: Dict[str, List[Point]] = {}
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


def draw(log: Path, title: str) -> None:
    """Write curve.png beside train.jsonl; ImportError without matplotlib.

    Args:
        log: train.jsonl
        title: of the picture
    """
    from matplotlib.figure import Figure  # without pyplot, which would choose a screen

    curves = points(log)
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
