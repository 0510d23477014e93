"""Do heads find the distant word that another depends on, and does the model need them to?

German needs to know what English does not show at the word itself, as in Figures 3 to 5::

    in its hut behind the cow the dog slept .  →  in seiner Hütte hinter der Kuh schlief der Hund .
    today the dogs near the cow could sleep .  →  heute konnten die Hunde bei der Kuh schlafen .

"Its" becomes sein- or ihr- by the gender of the *subject*, the dog, which German has not said by
then; "could" becomes konnte or konnten by the number of its subject, which German says before the
verb or after it. The cow is the *distractor*: one of the same twenty nouns, of any gender (for
verbs: of any number), and in half of the sentences nearer to the word than the subject is. Words
and orders are in words.yaml, text.py makes the sentences. A pair of a subject with a
distractor, or with a place, is either in the training or in the test. Source and target are words
of one joint vocabulary.

The model is the demo's, 2+2 layers of 4 heads and d 128, trained by examples/train.py. A pronoun or
verb is right if it is likelier than its other form, after the right words before it.

1. Swap: one noun gets the other gender or number. Does the word change with its subject, and with
   the distractor? If the verb comes after its subject, also with the source alone or with what has
   been written alone.
2. Weight: from "its" or the verb in the encoder, from the step that writes the word in the decoder
   and in cross-attention. The head is the one whose mean weight on the subject exceeds that on the
   distractor most in half of the sentences; the other half tests it. p is two-sided, from
   exchanging the two weights within sentences. Either there is one head for both orders, the best
   in the less favourable one, and weights are those on the noun; or each order chooses its own,
   and weights are those on the whole phrase, "the … noun".
3. Cut: these weights are set to zero, and their rows scaled to a sum of 1 again: in the best head,
   in all heads, in all heads of all three attentions; and on the noun from all words, not from the
   one word alone.
"""

import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.harness import Experiment, Row
from experiments.heads import figures
from experiments.heads.measures import attention_on, changes, cut_off
from experiments.heads.text import (
    FILE,
    ORDERS,
    ROLES,
    random_contents,
    sentence,
    training_text,
    vocabulary,
)
from experiments.heads.weights import loop, text_batch, weights
from experiments.records import PICTURE, Record
from experiments.tables import Table
from vaswani.attention_page.maps import head_weights
from vaswani.common.environment import environment
from vaswani.common.files import atomic_write
from vaswani.folders.run import Run
from vaswani_transformer import Transformer, Vocabulary

RUNS = Path("runs/heads")
SEEDS = 3
ASKED = 400
"""Sentences of the test of each kind and order."""
TEST = 1001
"""Its seed."""
PAPER_FIGURES = ("figure3.png", "figure4.png", "figure5.png")
"""The paper's Figures 3 to 5, in the folder of a training."""


# ---- training ----------------------------------------------------------------------------------


def train_or_load(seed: int, types: Vocabulary) -> Transformer:
    """Return the average of a training's last checkpoints, and train only if there is none."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = Transformer(loop.CONFIG, len(types), len(types))
    run = run_of(seed)
    if not (run / "model.pt").is_file():
        run.mkdir(parents=True, exist_ok=True)
        pairs = [(types.encode(s.source), types.encode(s.target)) for s in training_text(seed)]
        begun = time.process_time()
        last: deque[dict[str, Tensor]] = deque(maxlen=loop.AVERAGED)
        with open(Run(run).statistics_file, "w", encoding="utf-8") as log:
            for update, loss in loop.train(model, pairs):
                if update % loop.CHECKPOINT_EVERY == 0:
                    last.append({name: p.clone() for name, p in model.state_dict().items()})
                    print(json.dumps({"update": update, "loss": loss}), file=log, flush=True)
        facts = environment()
        saved = {
            "model": loop.average(last),
            "seconds": time.process_time() - begun,
            "cpu": facts["cpu"],
            "commit": facts["commit"],
        }
        with atomic_write(run / "model.pt", "wb") as stream:
            torch.save(saved, stream)
    model.load_state_dict(torch.load(run / "model.pt")["model"])
    return model.eval()


def run_of(seed: int) -> Path:
    """Return the folder of a training."""
    return RUNS / f"seed{seed}"


def figures_of(seed: int) -> dict[str, Any]:
    """Measure a trained model on each kind of sentence."""
    types = vocabulary()
    model = train_or_load(seed, types)
    kinds = {}
    for kind in FILE["orders"]:
        contents = [random_contents(kind, order, ASKED, True, TEST) for order in ORDERS]
        choosing = []
        testing = []
        for of_order in contents:
            sentences = [sentence(content) for content in of_order]
            choosing.append(text_batch(types, sentences[0::2]))
            testing.append(text_batch(types, sentences[1::2]))
        noun = attention_on(model, choosing, testing, whole_phrase=False)
        phrase = attention_on(model, choosing, testing, whole_phrase=True)
        on_nouns = {}  # of every head, on subject and distractor [2, N, H]
        for order, text in zip(ORDERS, testing, strict=True):
            on_nouns[order] = {
                name: each.mean(0, dtype=float).round(3).tolist()
                for name, each in weights(model, text).items()
            }
        kinds[kind] = {
            "changes": changes(model, types, [*contents[0], *contents[1]]),
            "noun": noun,
            "phrase": phrase,
            "cut": cut_off(model, testing, noun, phrase),
            "weights": on_nouns,
        }
    facts = torch.load(run_of(seed) / "model.pt")
    origin = {key: facts[key] for key in ("cpu", "commit", "seconds")}
    return {"seed": seed, "kinds": kinds, **origin}


class HeadsExperiment(Experiment):
    """Three seeds of the demo's model."""

    @property
    def rows(self) -> list[Row]:
        """The only row: our model."""
        return [Row("ours", SEEDS)]

    def train(self, row: Row, seed: int) -> None:
        """Train one seed, unless it is trained."""
        train_or_load(seed, vocabulary())

    def runs(self, row: Row) -> list[Path]:
        """Return the finished runs of a row."""
        runs = [run_of(seed) for seed in range(1, SEEDS + 1)]
        return [run for run in runs if (run / "model.pt").is_file()]

    def measure(self, run: Path) -> dict[str, Any]:
        """Return all figures of a model; draw the paper's Figures 3 to 5 of its encoder."""
        answers = figures_of(int(run.name.removeprefix("seed")))
        draw_figures(run, answers)
        return answers

    def files(self, run: Path) -> dict[str, Path]:
        """Return a run's statistics and Figures 3 to 5."""
        drawn = {f"{run.name}.{name}": run / name for name in PAPER_FIGURES}
        return {**super().files(run), **drawn}

    def tables(self, record: Record) -> list[Table]:
        """Return tables of the changes, the attention of heads, and the effect of their weights."""
        runs = record["rows"]["ours"]["runs"]
        kinds = {kind: [run["kinds"][kind] for run in runs] for kind in FILE["orders"]}
        names = [Path(run["run"]).name for run in runs]
        return [change_table(kinds), head_table(kinds, names), cut_table(kinds)]

    def draw(self, record: Record, folder: Path) -> None:
        """Draw the head that finds the pronoun's subject, by seed."""
        draw_best_heads(folder / PICTURE, record["rows"]["ours"]["runs"])


# ---- tables ------------------------------------------------------------------------------------


def of_seeds(figures: list[float | None]) -> str:
    """Format a figure of every seed; a dash where it was not measured."""
    return ", ".join("–" if figure is None else f"{figure:g}" for figure in figures)


def change_table(kinds: dict[str, Any]) -> Table:
    """Return the table of how often a word is right, and changes with a noun."""
    keys = ("subject", "source", "written", "distractor")
    lines = []
    for kind, seeds in kinds.items():
        cells = [kind, of_seeds([seed["cut"]["nothing"]["subject"] for seed in seeds])]
        for key in keys:
            if all(key in seed["changes"] for seed in seeds):
                cells.append(of_seeds([seed["changes"][key] for seed in seeds]))
            else:
                cells.append("–")
        lines.append(cells)
    columns = ["%", "right", "changes with its subject", "in the source alone"]
    columns += ["in what is written alone", "with the distractor"]
    return Table(columns, lines)


def head_table(kinds: dict[str, Any], names: list[str]) -> Table:
    """Return the table of the heads that attend to the subject."""
    lines = []
    for kind, seeds in kinds.items():
        for attention in seeds[0]["noun"]:
            for place in ("noun", "phrase"):
                cells = [head_cell(seed[place][attention]) for seed in seeds]
                lines.append([kind, attention, place, *cells])
    note = (
        "Layer and head; mean weight on the subject and on the distractor, where the distractor is "
        "nearer, and where it is farther; * two-sided p below 0.01, by exchanging the two weights."
    )
    return Table(["word", "attention", "weight on", *names], lines, note)


def head_cell(orders: dict[str, Any]) -> str:
    """Describe a seed's heads in words."""
    descriptions = []
    for best in orders.values():
        head = f"{best['layer'] + 1}.{best['head'] + 1}"
        star = "*" if best["p"] < 0.01 else ""
        descriptions.append(f"{head}: {best['subject']:.2f}, {best['distractor']:.2f}{star}")
    return "; ".join(descriptions)


def cut_table(kinds: dict[str, Any]) -> Table:
    """Return the table of how often a word is right without some weights."""
    lines = []
    for kind, seeds in kinds.items():
        for name in seeds[0]["cut"]:
            cells = [of_seeds([seed["cut"][name][role] for seed in seeds]) for role in ROLES]
            lines.append([kind, name, *cells])
    columns = ["word", "cut", *(f"on the {role}" for role in ROLES)]
    return Table(columns, lines, "Right, %, without weights on a noun:")


# ---- pictures ----------------------------------------------------------------------------------


def panel(
    seed: int, kind: str, order: str, attention: str, layer: int, heads: Sequence[int] | None = None
) -> figures.Panel:
    """Return a sentence of the test with some heads of a layer, or all if none are given."""
    types = vocabulary()
    (content,) = random_contents(kind, order, 1, True, TEST)
    pair = sentence(content)
    model = train_or_load(seed, types)
    maps = head_weights(model, types.encode(pair.source), types.encode(pair.target))
    weights = maps[attention][layer]
    source = [*pair.source, "(end)"]
    if attention == "encoder":
        words = source
        word = pair.source_places.word
    else:
        words = [*pair.target, "(end)"]
        word = pair.target_places.word
    return figures.Panel(
        title=f"seed {seed}: {attention}, layer {layer + 1}",
        words=words,
        keys=source,
        weights=weights,
        heads=heads or list(range(len(weights))),
        word=word,
        partner=pair.source_places.subject[-1],
    )


def draw_best_heads(path: Path, runs: list[dict[str, Any]]) -> None:
    """Draw, for each seed, the head that attends most from the pronoun to its subject.

    It may be in any of the three attentions.
    """
    panels = []
    for run in runs:
        by_attention = run["kinds"]["pronoun"]["phrase"]
        on_subject = {name: orders["near"]["subject"] for name, orders in by_attention.items()}
        attention = max(on_subject, key=on_subject.__getitem__)
        best = by_attention[attention]["near"]
        heads = best["layer"], [best["head"]]
        panels.append(panel(run["seed"], "pronoun", "near", attention, *heads))
    figures.draw(path, panels)


def draw_figures(folder: Path, run: dict[str, Any]) -> None:
    """Draw the paper's Figures 3 to 5 of a seed's encoder, on sentences of the test."""
    figure3, figure4, figure5 = (folder / name for name in PAPER_FIGURES)
    kind = "verb after its subject"
    best = run["kinds"][kind]["phrase"]["encoder"]
    panels = [panel(run["seed"], kind, order, "encoder", best[order]["layer"]) for order in ORDERS]
    figures.draw(figure3, panels)
    best = run["kinds"]["pronoun"]["phrase"]["encoder"]["near"]
    pronoun = panel(run["seed"], "pronoun", "near", "encoder", best["layer"], [best["head"]])
    whole = pronoun._replace(word=None, partner=None)
    figures.draw(figure4, [whole, pronoun])
    different = figures.least_alike(whole.weights)
    figures.draw(figure5, [whole._replace(heads=[head]) for head in different])


make = HeadsExperiment
