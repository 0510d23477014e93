"""Figures 3 to 5: do heads of the encoder look at the distant word that belongs to a word?

The paper shows this on two sentences. Here it is measured: sentences annotated by hand name a word
and its partner (a verb's complement or subject, a pronoun's antecedent), and each head's weight
from the word on the partner stands beside the two weights that chance would give: the mean on the
other words, and the mean that the head gives at the same distance, whichever word looks.

Shape letters: N layers, H heads, W words (the end of sentence is one of them).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.attention_page.maps import (
    Unit,
    between,
    head_weights,
    open_model,
    sentence,
    side,
)
from vaswani.common.artifact import making_recorded
from vaswani.common.errors import UserError
from vaswani.common.options import argument, option, to_argv
from vaswani.experiment.find import read_yaml
from vaswani.paper.runner import run_commands

SENTENCES = Path(__file__).with_name("figures.yaml")
RECORD, TABLE = "figures.json", "figures.md"
#: kind of pair → its name in the table
KINDS = {"distant": "verb → complement or subject", "antecedent": "pronoun → antecedent"}
#: of the means over sentences
COLUMNS = ("partner", "others", "distance", "first")

# ---- measured --------------------------------------------------------------------------------


class Pair(NamedTuple):
    """An annotated sentence as a model reads it."""

    kind: str
    text: str
    words: list[Unit]
    #: places in ``words``
    word: int
    partner: list[int]
    #: [N, H, W, W], each row a distribution
    weights: Any

    @property
    def unknown(self) -> list[str]:
        """The words that are wholly or partly unknown to the model."""
        return [unit.text for unit in self.words if unit.unknown]

    @property
    def counts(self) -> bool:
        """Whether the model knows the word and its partner."""
        return not any(self.words[place].unknown for place in (self.word, *self.partner))


def pairs(translator: Any) -> list[Pair]:
    """Every annotated sentence, read by a model, with its encoder's self-attention between words.

    The decoder gets the end of sentence alone: there is no translation.
    """
    lang = translator.folder.langs[0]
    if not lang.lower().startswith("en"):
        print(f"warning: this model reads '{lang}', but the sentences are English", file=sys.stderr)
    found, engine = [], translator.engine
    for kind, entries in read_yaml(SENTENCES).items():
        for entry in entries:
            read = sentence(translator, entry["text"], "source")
            words = side(lang, read.subwords, engine.source).words
            weights = head_weights(engine.model, read.ids, [engine.target.eos()])["encoder"]
            (place,), partner = (place_of(entry[name], words) for name in ("word", "partner"))
            weights = between(weights, words, words)
            found.append(Pair(kind, entry["text"], words, place, partner, weights))
    return found


def place_of(phrase: str, words: Sequence[Unit]) -> list[int]:
    """Where the words of a phrase stand, upper and lower case being the same.

    Raises:
        UserError: they do not: the model's text is split into other words.
    """
    sought = phrase.casefold().split()
    texts = [unit.text.casefold() for unit in words]
    for start in range(len(texts)):
        if texts[start : start + len(sought)] == sought:
            return list(range(start, start + len(sought)))
    raise UserError(f"the model does not read '{phrase}' as words of its own: {' '.join(texts)}")


def measured(pair: Pair) -> dict[str, Any]:
    """Each head's weights from the word, by ``COLUMNS``, each [N, H].

    ``partner``: on the partner, all its words together; ``others``: mean over all other words;
    ``distance``: what words on average give to those as far from them as the partner is from the
    word; ``first``: whether no word gets more than a word of the partner.
    """
    row = pair.weights[..., pair.word, :]  # [N, H, W]
    others = [place for place in range(len(pair.words)) if place not in pair.partner]
    return {
        "partner": row[..., pair.partner].sum(-1),
        "others": row[..., others].mean(-1),
        "distance": sum(at_distance(pair.weights, pair.word, place) for place in pair.partner),
        "first": row[..., pair.partner].max(-1) >= row.max(-1),
    }


def at_distance(weights: Any, word: int, place: int) -> Any:
    """The mean weight [N, H] at the distance from ``word`` to ``place``, of all other words."""
    import numpy

    diagonal = numpy.diagonal(weights, place - word, axis1=-2, axis2=-1)  # [N, H, words]
    return numpy.delete(diagonal, min(word, place), axis=-1).mean(-1)


def means(found: Sequence[Pair]) -> dict[str, Any]:
    """The means over sentences of ``measured``, by kind and column [N, H].

    Raises:
        UserError: the model knows no word and partner of a kind.
    """
    import numpy

    table: dict[str, Any] = {}
    for kind in KINDS:
        values = [measured(pair) for pair in found if pair.kind == kind and pair.counts]
        if not values:
            raise UserError(
                f"the model does not know the words of any sentence of the kind '{kind}': "
                "give a model that reads English"
            )
        table[kind] = {name: numpy.mean([v[name] for v in values], 0) for name in COLUMNS}
    return table


def best_heads(weights: Any) -> tuple[int, list[int]]:
    """The layer of the greatest [N, H], and its heads, the greatest first; both from 0."""
    layer = int(weights.max(-1).argmax())
    return layer, [int(head) for head in (-weights[layer]).argsort()]


def least_alike(maps: Any) -> tuple[int, int]:
    """The two heads of [H, W, W] whose distributions differ most, on average over the rows."""
    apart = abs(maps[:, None] - maps[None]).sum((-1, -2))  # [H, H]
    first, second = divmod(int(apart.argmax()), len(maps))
    return first, second


# ---- shown -------------------------------------------------------------------------------------


def lines_of(found: Sequence[Pair], table: dict[str, Any]) -> list[str]:
    """In Markdown, for each kind: the best head, the table of all, each sentence's best weight."""
    import numpy

    lines: list[str] = []
    for kind, values in table.items():
        own = [pair for pair in found if pair.kind == kind and pair.counts]
        rows = []
        for layer, head in numpy.ndindex(values["partner"].shape):
            partner, others, distance, first = (float(values[c][layer, head]) for c in COLUMNS)
            most = f"{round(first * len(own))} of {len(own)}"
            name = f"| {layer + 1} | {head + 1}"
            rows.append(f"{name} | {partner:.3f} | {others:.3f} | {distance:.3f} | {most} |")
        layer, (head, *_) = best_heads(values["partner"])
        lines += [
            f"## {KINDS[kind]}",
            "",
            f"The best of {len(rows)} heads over {len(own)} sentences: layer {layer + 1}, "
            f"head {head + 1}.",
            "",
            "| layer | head | on the partner | mean other word | same distance | looked at most |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"| layer {layer + 1}, head {head + 1} | from | on | sentence |",
            "|---|---|---|---|",
        ]
        for pair in own:
            weight = measured(pair)["partner"][layer, head]
            partners = " ".join(pair.words[place].text for place in pair.partner)
            lines.append(
                f"| {weight:.3f} | {pair.words[pair.word].text} | {partners} | {pair.text} |"
            )
        lines.append("")
    return lines + [
        "The best head is chosen after looking: of many heads one is above the others by chance "
        "too. A weight says where a head looks, not that the model needs it for its translation."
    ]


def draw_lines(axis: Any, pair: Pair, layer: int, heads: Sequence[int], alone: bool) -> None:
    """Two columns of words, joined by lines as opaque as the weights, a colour for each head.

    Args:
        alone: only the annotated word looks, not every word
    """
    from matplotlib import colormaps

    marked = [pair.word, *pair.partner] if alone else []
    for place, unit in enumerate(pair.words):
        font = {"fontsize": 8, "weight": "bold" if place in marked else "normal"}
        axis.text(-0.02, -place, unit.text, ha="right", va="center", **font)
        axis.text(1.02, -place, unit.text, ha="left", va="center", **font)
    for number, head in enumerate(heads):
        colour, beside = colormaps["tab10"](head % 10), 0.08 * (number - (len(heads) - 1) / 2)
        axis.plot([], [], color=colour, label=f"head {head + 1}")
        for row in [pair.word] if alone else range(len(pair.words)):
            for column, weight in enumerate(pair.weights[layer, head, row]):
                alpha = min(1.0, float(weight))  # sums of rounded weights may be more
                ends = [-row - beside, -column - beside]
                axis.plot([0, 1], ends, color=colour, alpha=alpha, linewidth=1.5)
    axis.set(xlim=(-0.9, 1.9), ylim=(-len(pair.words), 1))
    axis.set_title(f"layer {layer + 1}", fontsize=9)
    axis.legend(loc="upper center", ncol=4, fontsize=7, frameon=False, bbox_to_anchor=(0.5, 0.02))
    axis.axis("off")


def draw(folder: Path, found: Sequence[Pair], table: dict[str, Any]) -> None:
    """figure3, figure4 and figure5, each as PNG and PDF.

    The heads are the best over all sentences; beside the paper's sentence stands that of ours in
    which the best one looks at the partner most.
    """
    from matplotlib.figure import Figure  # without pyplot, which would choose a screen

    panels: dict[int, list[tuple[Pair, int, Sequence[int], bool]]] = {}
    for figure, kind in ((3, "distant"), (4, "antecedent")):
        layer, heads = best_heads(table[kind]["partner"])
        paper_pair, *others = (pair for pair in found if pair.kind == kind)
        best = layer, heads[0]
        own = max(others, key=lambda pair: (pair.counts, measured(pair)["partner"][best]))
        shown = sorted(heads) if figure == 3 else heads[:2]
        panels[figure] = [(pair, layer, shown, True) for pair in (paper_pair, own)]
        if figure == 4:
            panels[4].insert(0, (paper_pair, layer, heads[:1], False))
            different = least_alike(paper_pair.weights[layer])
            panels[5] = [(paper_pair, layer, [head], False) for head in different]
    for figure, parts in panels.items():
        size = (4.2 * len(parts), 0.19 * max(len(pair.words) for pair, *_ in parts) + 1)
        drawn = Figure(figsize=size, layout="constrained")
        for axis, part in zip(drawn.subplots(1, len(parts)), parts, strict=True):
            draw_lines(axis, *part)
        for kind in ("png", "pdf"):
            drawn.savefig(folder / f"figure{figure}.{kind}", dpi=90)


# ---- the command -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``vaswani reproduce figures``."""

    name: str = argument("NAME", "figures")
    model: str = argument(
        "MODEL|RUN|CHECKPOINT", "a packed model, a run or a checkpoint that reads English"
    )
    out: str = option(
        "runs/figures",
        "folder for the table and the figures (default: runs/figures)",
        metavar="DIR",
    )
    dry_run: bool = option(False, "measure nothing")


def run(options: Options) -> int:
    """Measure every head of a model, print the table, draw the figures."""
    if options.dry_run:
        return run_commands([["reproduce", *to_argv(replace(options, dry_run=False))]], True)
    import matplotlib  # noqa: F401  (missing: said before the model is read)

    out = Path(options.out)
    with making_recorded(out, RECORD, "vaswani reproduce figures") as (folder, record):
        with open_model(options.model) as translator:
            found = pairs(translator)
        for pair in found:
            if pair.unknown:
                about = "" if pair.counts else ", so it is not counted"
                names = ", ".join(f"'{word}'" for word in pair.unknown)
                warning = f"warning: unknown to the model{about}: {names} in: {pair.text}"
                print(warning, file=sys.stderr)
        table = means(found)
        lines = lines_of(found, table)
        sentences = [
            {
                "kind": pair.kind,
                "text": pair.text,
                "counted": pair.counts,
                "unknown": pair.unknown,
                "weights": {name: value.tolist() for name, value in measured(pair).items()},
            }
            for pair in found
        ]
        record.update(model=options.model, sentences=sentences)
        (folder / TABLE).write_text("\n".join([*lines, ""]), encoding="utf-8")
        draw(folder, found, table)
    print("\n".join(lines))
    print(f"written to {out}", file=sys.stderr)
    return 0
