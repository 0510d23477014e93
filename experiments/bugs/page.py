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
SHOWN_AT = (100, 200, 400, 900, 1800)
"""Updates for which the page gives the loss."""
PUBLISHED_SHOWN_AT = (100, 200, 400, 600)
SENTENCES = 2
LONGEST_SHOWN = 72
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
    """Return the results of these runs."""
    results = read_record(folder).get(RESULTS, {})
    return [results.get(name, {}) for name in names]


# ---- tables ------------------------------------------------------------------------------------


def loss_at(points: Sequence[Sequence[float]], update: int) -> str:
    """Return the loss at the first point from this update on, or a dash."""
    for number, nll in points:
        if number >= update:
            return f"{nll:.2f}"
    return "–"


def losses(result: Result, updates: Sequence[int]) -> list[str]:
    """Return the training loss after these updates, and the last validation loss; dashes if not
    run.
    """
    curves = result.get("curves", {"train": [], "valid": []})
    cells = [loss_at(curves["train"], update) for update in updates]
    cells.append(f"{curves['valid'][-1][1]:.2f}" if curves["valid"] else "–")
    return cells


def scores(result: Result) -> list[str]:
    """Return BLEU and exact matches; dashes if the run failed or is still to come."""
    if "bleu" not in result:
        return ["–", "–"]
    return [f"{result['bleu']['score']:.2f}", f"{result['exact_match']:.1f}%"]


def losses_and_scores(results: dict[str, Result], updates: Sequence[int]) -> str:
    """Return the table of these runs by their titles."""
    columns = [f"{update:,}" for update in updates]
    columns[0] = f"training loss after {columns[0]}"
    columns[-1] += " updates"
    lines = []
    for title, result in results.items():
        lines.append([title, *losses(result, updates), *scores(result)])
    table = Table(["", *columns, "validation", "BLEU", "exactly right"], lines)
    return "\n".join(table.lines())


def shorten(translation: str) -> str:
    """Return its first ``LONGEST_SHOWN`` characters."""
    if len(translation) <= LONGEST_SHOWN:
        return translation
    return translation[:LONGEST_SHOWN] + " …"


def translations(results: dict[str, Result]) -> str:
    """Return the table of what each run makes of two sentences."""
    correct = next(iter(results.values()))
    sources = [example["source"] for example in correct["examples"][:SENTENCES]]
    lines = []
    for title, result in results.items():
        examples = result.get("examples", [])[:SENTENCES]
        cells = [shorten(example["translation"]) for example in examples]
        if not cells:
            cells = [result.get("failed", "not run yet"), ""]
        lines.append([title, *cells])
    return "\n".join(Table(["", *sources], lines).lines())


def properties_table(properties: dict[str, dict[str, bool]]) -> str:
    """Return the table of what experiments.bugs.properties measured, by title."""
    titles = ["correct", *LETTERS]
    lines = []
    for title, name in zip(titles, [CORRECT, *QUIZ], strict=True):
        found = properties.get(name, {})
        steps = "yes" if found.get("steps_are_one_pass") else "**no**"
        neighbours = "no" if found.get("neighbours_change_nothing") else "**yes**"
        lines.append([title, steps, neighbours])
    columns = [
        "",
        "does decoding word by word compute the logits of one pass?",
        "do a sentence's logits change with its neighbours in the batch?",
    ]
    return "\n".join(Table(columns, lines).lines())


def fill_in(page: str, folder: Path) -> str:
    """Return the page with the figures of the correct code and of each letter."""
    titles = ["correct", *LETTERS]
    results = results_of(folder, [CORRECT, *QUIZ])
    by_title = dict(zip(titles, results, strict=True))
    page = put(page, "scores", losses_and_scores(by_title, SHOWN_AT))
    page = put(page, "properties", properties_table(read_record(folder).get(PROPERTIES, {})))
    return put(page, "translations", translations(by_title))


def fill_in_published(page: str, folder: Path) -> str:
    """Return the page with the table of the bugs from published code."""
    titles = ["the correct code", *(f"`{name}`" for name in PUBLISHED)]
    results = results_of(folder, [CORRECT, *PUBLISHED])
    by_title = dict(zip(titles, results, strict=True))
    return put(page, "published", losses_and_scores(by_title, PUBLISHED_SHOWN_AT))


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
