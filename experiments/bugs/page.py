"""The tables and the picture of docs/bugs.md, from the results of the runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.pictures import figure_of, save_figure
from experiments.records import read_record
from experiments.tables import Table, put

PAGE = Path(__file__).parents[2] / "docs" / "bugs.md"
CORRECT = "right"
"""The name of the run without a bug."""
QUIZ = (
    "embedding-not-scaled",
    "causal-mask-missing",
    "positions-missing",
    "warmup-missing",
    "step-at-the-next-position",
    "labels-not-shifted",
    "residual-missing",
    "dropout-in-evaluation",
    "kernel-not-scaled",
    "padding-not-masked",
)
"""The bugs of docs/bugs.md, in its order."""
LETTERS = "ABCDEFGHIJ"
PUBLISHED = (
    "norm-before-the-sublayer",
    "decoder-attends-to-itself-twice",
    "padding-masks-swapped-in-decoding",
    "softmax-without-the-maximum",
    "embedding-not-scaled",
    "positions-by-the-batch",
    "loss-averaged-over-padding",
)
"""Its bugs from published code that show in training or in the score."""
LONGEST_SHOWN = 32
"""Characters of a translation that the page gives."""
PICTURE = "curves.png"
RESULTS = "results"
"""In a record: name → what its run wrote when it ended."""
PROPERTIES = "properties"
"""In a record: name → what experiments.bugs.properties measured."""

Result = dict[str, Any]
"""What a run wrote when it ended; empty before."""


def outcome(result: Result) -> str:
    """Return the score, or "no score"."""
    return "no score" if "failed" in result else f"BLEU {result['bleu']['score']:.1f}"


def results_of(folder: Path, names: Sequence[str]) -> list[Result]:
    """Return the results of the runs with these names."""
    results = read_record(folder).get(RESULTS, {})
    return [results.get(name, {}) for name in names]


# ---- tables ------------------------------------------------------------------------------------


def losses(result: Result) -> list[str]:
    """Return the last training loss and the last validation loss; dashes if not run."""
    curves = result.get("curves", {})
    cells = []
    for kind in ("train", "valid"):
        points = curves.get(kind)
        cells.append(f"{points[-1][1]:.2f}" if points else "–")
    return cells


def score(result: Result) -> str:
    """Return BLEU; a dash if the run failed or is still to come."""
    return f"{result['bleu']['score']:.2f}" if "bleu" in result else "–"


def shorten(translation: str) -> str:
    """Return the first ``LONGEST_SHOWN`` characters of a translation."""
    if len(translation) <= LONGEST_SHOWN:
        return translation
    return translation[:LONGEST_SHOWN].rstrip() + " …"


def quiz_table(results: dict[str, Result]) -> str:
    """Return the table of the quiz: losses, BLEU and a translation; the correct code first."""
    source = results[CORRECT]["examples"][0]["source"]
    columns = ["", "training loss", "validation loss", "BLEU", source]
    lines = []
    for title, result in zip(["correct", *LETTERS], results.values(), strict=True):
        examples = result.get("examples") or [{"translation": result.get("failed", "not run yet")}]
        translation = shorten(examples[0]["translation"])
        lines.append([title, *losses(result), score(result), translation])
    return "\n".join(Table(columns, lines).lines())


def published_table(results: dict[str, Result]) -> str:
    """Return the table of the bugs from published code, with a link to each patch."""
    lines = []
    for name, result in results.items():
        title = "correct" if name == CORRECT else f"[`{name}`](../tests/mutants/{name}.patch)"
        lines.append([title, losses(result)[1], score(result)])
    columns = ["", "validation loss", "BLEU"]
    return "\n".join(Table(columns, lines).lines())


def fill_in(page: str, folder: Path) -> str:
    """Return the page with the figures of the correct code and of each letter."""
    names = [CORRECT, *QUIZ]
    by_name = dict(zip(names, results_of(folder, names), strict=True))
    return put(page, "quiz", quiz_table(by_name))


def fill_in_published(page: str, folder: Path) -> str:
    """Return the page with the table of the bugs from published code."""
    names = [CORRECT, *PUBLISHED]
    by_name = dict(zip(names, results_of(folder, names), strict=True))
    return put(page, "published", published_table(by_name))


# ---- the picture -------------------------------------------------------------------------------


def draw_quiz(folder: Path) -> None:
    """Draw a panel for each bug of the quiz, without its name: its curves and the correct ones."""
    correct, *results = results_of(folder, [CORRECT, *QUIZ])
    figure, axes = figure_of(2, 5, size=(15, 6), sharex=True, sharey=True)
    for letter, result, axis in zip(LETTERS, results, axes.flat, strict=True):
        draw_curves(axis, correct, color="0.6", label="right")
        draw_curves(axis, result, color="C3", label=letter)
        axis.set_title(f"{letter}: {outcome(result) if result else 'not run'}")
        axis.set_yscale("log")
        axis.set_ylim(0.05, 14)
        axis.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    for axis in axes[1]:
        axis.set_xlabel("updates")
    for axis in axes[:, 0]:
        axis.set_ylabel("nll, bits per token")
    save_figure(figure, folder / PICTURE)


def draw_curves(axis: Any, result: Result, color: str, label: str) -> None:
    """Draw the training loss as a line, the validation loss as dots."""
    curves = result.get("curves", {})
    styles = {"train": ("-", "training"), "valid": ("o--", "validation")}
    for kind, (style, text) in styles.items():
        points = curves.get(kind, [])
        axis.plot(
            [update for update, _ in points],
            [nll for _, nll in points],
            style,
            color=color,
            markersize=3,
            linewidth=1,
            label=f"{label}, {text}",
        )
