"""Do heads find the distant word that another depends on, and does the model need them to?

    python -m benchmarks.heads            three seeds; a quarter of an hour of one core
    python -m benchmarks.heads --seed 1   one of them; no record

German needs to know what English does not show at the word itself, as in Figures 3 to 5::

    in its hut behind the cow the dog slept .  →  in seiner Hütte hinter der Kuh schlief der Hund .
    today the dogs near the cow could sleep .  →  heute konnten die Hunde bei der Kuh schlafen .

"Its" becomes sein- or ihr- by the gender of the *subject*, the dog, which German has not said by
then; "could" becomes konnte or konnten by the number of its subject, which German says before the
verb or after it. The cow is the *distractor*: one of the same twenty nouns, of any gender (for
verbs: of any number), and in half of the sentences nearer to the word than the subject is. Words
and orders are in heads.yaml, heads_text.py makes the sentences. A pair of a subject with a
distractor, or with a place, is either in the training or in the test. Source and target are words
of one joint vocabulary.

The model is the demo's, 2+2 layers of 4 heads and d 128, trained by examples/train.py. A pronoun or
verb is right if it is likelier than its other form, after the right words before it.

1. Swap: one noun gets the other gender or number. Does the word change with its subject, and with
   the distractor? If the verb comes after its subject, also with the source alone or with what has
   been written alone.
2. Weight: from "its" or the verb in the encoder, from the step that writes the word in the decoder
   and in cross-attention. The head is the one whose mean weight on the subject exceeds that on the
   distractor most in half of the sentences; the other half tests it. p is one-sided, from
   exchanging the two weights within sentences. Either there is one head for both orders, the best
   in the less favourable one, and weights are those on the noun; or each order chooses its own,
   and weights are those on the whole phrase, "the … noun".
3. Cut: these weights are set to zero, and their rows scaled to a sum of 1 again: in the best head,
   in all heads, in all heads of all three attentions; and on the noun from all words, not from the
   one word alone.

A finished training is kept in runs/heads and not run again. The record is
OUT/HARDWARE_DATE_heads.md, .png and the folder of the same name, with Figures 3 to 5.
"""

import argparse
import functools
import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from benchmarks import heads_figures
from benchmarks.demo_report import share
from benchmarks.heads_text import (
    FILE,
    ORDERS,
    ROLES,
    Content,
    drawn,
    sentence,
    swapped,
    training_text,
    vocabulary,
)
from benchmarks.heads_weights import ATTENTION, LOOP, Cut, Read, read, right, weights, without
from benchmarks.machine import machine
from benchmarks.run import RESULTS, record_name
from benchmarks.small_table import save
from vaswani.attention_page.maps import head_weights
from vaswani.common.environment import environment
from vaswani.common.files import atomic_write
from vaswani.common.signals import signals_as_interrupts
from vaswani.experiment.run_record import STATISTICS
from vaswani_transformer import Transformer, Vocabulary

RUNS, SEEDS = Path("runs/heads"), 3
ASKED, TEST = 400, 1001
"""Sentences of the test of each kind and order, and its seed."""
EXCHANGES = 10_000


# ---- training ----------------------------------------------------------------------------------


def trained(seed: int, types: Vocabulary) -> Transformer:
    """The average of a training's last checkpoints; what was trained before is loaded."""
    torch.manual_seed(seed)
    model = Transformer(LOOP["CONFIG"], len(types), len(types))
    run = RUNS / f"seed{seed}"
    if not (run / "model.pt").is_file():
        run.mkdir(parents=True, exist_ok=True)
        pairs = [(types.encode(s.source), types.encode(s.target)) for s in training_text(seed)]
        begun = time.process_time()
        kept: deque[dict[str, Tensor]] = deque(maxlen=LOOP["AVERAGED"])
        with open(run / STATISTICS, "w", encoding="utf-8") as log:
            for update, loss in LOOP["train"](model, pairs):
                if update % LOOP["CHECKPOINT_EVERY"] == 0:
                    kept.append({name: p.clone() for name, p in model.state_dict().items()})
                    print(json.dumps({"update": update, "loss": loss}), file=log, flush=True)
        facts = environment()
        saved = {
            "model": LOOP["average"](kept),
            "seconds": time.process_time() - begun,
            "cpu": facts["cpu"],
            "commit": facts["commit"],
        }
        with atomic_write(run / "model.pt", "wb") as stream:
            torch.save(saved, stream)
    model.load_state_dict(torch.load(run / "model.pt")["model"])
    return model.eval()


# ---- what is found -----------------------------------------------------------------------------


def best_head(orders: Sequence[Any]) -> tuple[int, int]:
    """The layer and head of the greatest mean difference, in the order where it is smaller.

    Args:
        orders: of each order, the weights on the two nouns [B, 2, N, H]
    """
    lower = numpy.min([(each[:, 0] - each[:, 1]).mean(0) for each in orders], axis=0)
    layer, head = numpy.unravel_index(lower.argmax(), lower.shape)
    return int(layer), int(head)


def p_value(differences: Any) -> float:
    """One-sided p of a mean above 0, from exchanging the two weights within sentences."""
    signs = numpy.random.default_rng(1).choice([-1, 1], (EXCHANGES, len(differences)))
    as_high = (signs @ differences >= differences.sum()).sum()
    return float((1 + as_high) / (1 + EXCHANGES))


def changes(model: Any, types: Vocabulary, said: list[Content]) -> dict[str, float]:
    """The per cent in which the word changes when a noun does, in the source and what is written.

    Where the German subject is said before the word also with only one of the two changed.
    """
    sentences = [sentence(one) for one in said]
    before = right(model, read(types, sentences))

    def changed(role: str, source: bool = True, written: bool = True) -> float:
        others = [sentence(swapped(one, role)) for one in said]
        after = read(types, sentences, others if source else None, others if written else None)
        return share(right(model, after) != before)

    found = {role: changed(role) for role in ROLES}
    if said[0].kind == "verb after its subject":
        found["source"] = changed("subject", written=False)
        found["written"] = changed("subject", source=False)
    return found


def looked(model: Any, chosen: Sequence[Read], tested: Sequence[Read], phrase: bool) -> Any:
    """By attention and order: the head that half of the sentences choose, tested on the others.

    Args:
        phrase: weights on the whole phrase, with a head for each order; else on the noun, with the
            same head for both
    """
    choosing, testing = (
        [weights(model, text, phrase) for text in texts] for texts in (chosen, tested)
    )
    found: dict[str, Any] = {attention: {} for attention in ATTENTION}
    for attention, orders in found.items():
        there = [each[attention] for each in choosing if attention in each]
        for order, chooses, tests in zip(ORDERS, choosing, testing, strict=True):
            if attention in tests:
                layer, head = best_head([chooses[attention]] if phrase else there)
                both = tests[attention][:, :, layer, head]
                orders[order] = {
                    **dict(zip(ROLES, both.mean(0).tolist(), strict=True)),
                    **{"p": p_value(both[:, 0] - both[:, 1]), "layer": layer, "head": head},
                }
    return {attention: orders for attention, orders in found.items() if orders}


def cut_off(model: Any, texts: Sequence[Read], noun: Any, phrase: Any) -> dict[str, Any]:
    """The per cent still right without weights on a noun, by what is cut and by noun.

    Args:
        noun, phrase: the heads that :func:`looked` found
    """

    def still_right(role: str, orders: Sequence[Sequence[Cut]]) -> float:
        hits: list[bool] = []
        for text, cuts in zip(texts, orders, strict=True):
            with without(model, text, role, cuts):
                hits += right(model, text).tolist()
        return share(hits)

    def best(attention: str, found: Any, whole: bool) -> list[list[Cut]]:
        heads = [found[attention].get(order) for order in ORDERS]
        return [[Cut(attention, h["layer"], h["head"], whole)] if h else [] for h in heads]

    cuts: dict[str, list[list[Cut]]] = {"nothing": [[], []]}
    for attention in noun:
        cuts[f"{attention}, best head, noun"] = best(attention, noun, False)
        cuts[f"{attention}, best head, phrase"] = best(attention, phrase, True)
    for name, several in {**{one: (one,) for one in noun}, "all three": ATTENTION}.items():
        cuts[f"{name}, all heads, noun"] = [[Cut(one) for one in several]] * 2
        cuts[f"{name}, all heads, phrase"] = [[Cut(one, phrase=True) for one in several]] * 2
        cuts[f"{name}, from all words, noun"] = [[Cut(one, all_rows=True) for one in several]] * 2
    return {
        name: {role: still_right(role, orders) for role in ROLES} for name, orders in cuts.items()
    }


def measured(seed: int) -> dict[str, Any]:
    """A training's figures, after training if need be."""
    types = vocabulary()
    model = trained(seed, types)
    kinds = {}
    for kind in FILE["orders"]:
        said = [drawn(kind, order, ASKED, True, TEST) for order in ORDERS]
        chosen, tested = (
            [read(types, [sentence(one) for one in order[half::2]]) for order in said]
            for half in range(2)
        )
        noun, phrase = (looked(model, chosen, tested, whole) for whole in (False, True))
        kinds[kind] = {
            "changes": changes(model, types, [*said[0], *said[1]]),
            "noun": noun,
            "phrase": phrase,
            "cut": cut_off(model, tested, noun, phrase),
            # of every head, on subject and distractor [2, N, H]
            "weights": {
                order: {
                    name: each.mean(0, dtype=float).round(3).tolist()
                    for name, each in weights(model, text).items()
                }
                for order, text in zip(ORDERS, tested, strict=True)
            },
        }
    run = RUNS / f"seed{seed}"
    facts = {key: torch.load(run / "model.pt")[key] for key in ("cpu", "commit", "seconds")}
    return {"run": str(run), "seed": seed, "kinds": kinds, **facts}


# ---- the record --------------------------------------------------------------------------------


def rows(columns: Sequence[str], table: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *table]
    return [f"| {' | '.join(line)} |" for line in lines]


def of_seeds(runs: Iterable[Any], *keys: str) -> str:
    """A figure of every seed."""
    found = [functools.reduce(lambda one, key: one.get(key, "–"), keys, run) for run in runs]
    return ", ".join(format(value, "g") for value in found) if "–" not in found else "–"


def lines_of(record: dict[str, Any]) -> list[str]:
    """The record's three tables: a figure for each seed."""
    runs = record["rows"]["ours"]["runs"]
    kinds = {kind: [run["kinds"][kind] for run in runs] for kind in FILE["orders"]}
    changing = [
        [kind, of_seeds(seeds, "cut", "nothing", "subject")]
        + [
            of_seeds(seeds, "changes", key)
            for key in ("subject", "source", "written", "distractor")
        ]
        for kind, seeds in kinds.items()
    ]
    heads = [
        [kind, attention, measure, *(head_cell(seed[measure][attention]) for seed in seeds)]
        for kind, seeds in kinds.items()
        for attention in seeds[0]["noun"]
        for measure in ("noun", "phrase")
    ]
    cuts = [
        [kind, name, *(of_seeds(seeds, "cut", name, role) for role in ROLES)]
        for kind, seeds in kinds.items()
        for name in seeds[0]["cut"]
    ]
    names = [Path(run["run"]).name for run in runs]
    return [
        *rows(["%", "right", "changes with its subject", "in the source alone",
               "in what is written alone", "with the distractor"], changing),
        "",
        "Layer and head; mean weight on the subject and on the distractor, where the distractor is "
        "nearer, and where it is farther; * p below 0.01.",
        "",
        *rows(["word", "attention", "weight on", *names], heads),
        "",
        "Right, %, without weights on a noun:",
        "",
        *rows(["word", "cut", *(f"on the {role}" for role in ROLES)], cuts),
    ]  # fmt: skip


def head_cell(orders: dict[str, Any]) -> str:
    """A seed's heads in words."""
    return "; ".join(
        f"{one['layer'] + 1}.{one['head'] + 1}: {one['subject']:.2f}, {one['distractor']:.2f}"
        + "*" * (one["p"] < 0.01)
        for one in orders.values()
    )


def panel(
    seed: int, kind: str, order: str, attention: str, layer: int, heads: Sequence[int] | None = None
) -> heads_figures.Panel:
    """A sentence of the test with a seed's heads of a layer, all of them if none are given."""
    types, one = vocabulary(), sentence(drawn(kind, order, 1, True, TEST)[0])
    maps = head_weights(trained(seed, types), types.encode(one.source), types.encode(one.target))
    weights, source = maps[attention][layer], [*one.source, "(end)"]
    words, word = [*one.target, "(end)"], one.said.word
    if attention == "encoder":
        words, word = source, one.at.word
    title, subject = f"seed {seed}: {attention}, layer {layer + 1}", one.at.subject[-1]
    chosen = heads or list(range(len(weights)))
    return heads_figures.Panel(title, words, source, weights, chosen, word, subject)


def draw(path: Path, record: dict[str, Any]) -> None:
    """For each seed the head that looks from the pronoun at its subject most, in any attention."""
    panels = []
    for run in record["rows"]["ours"]["runs"]:
        found = run["kinds"]["pronoun"]["phrase"]
        attention = max(found, key=lambda name: found[name]["near"]["subject"])
        best = found[attention]["near"]
        heads = best["layer"], [best["head"]]
        panels.append(panel(run["seed"], "pronoun", "near", attention, *heads))
    heads_figures.draw(path, panels)


def draw_figures(folder: Path, run: dict[str, Any]) -> None:
    """The paper's Figures 3 to 5 of a seed's encoder, on sentences of the test."""
    kind = "verb after its subject"
    best = run["kinds"][kind]["phrase"]["encoder"]
    panels = [panel(run["seed"], kind, order, "encoder", best[order]["layer"]) for order in ORDERS]
    heads_figures.draw(folder / "figure3.png", panels)
    best = run["kinds"]["pronoun"]["phrase"]["encoder"]["near"]
    one = panel(run["seed"], "pronoun", "near", "encoder", best["layer"], [best["head"]])
    whole = one._replace(word=None, partner=None)
    heads_figures.draw(folder / "figure4.png", [whole, one])
    different = heads_figures.least_alike(whole.weights)
    heads_figures.draw(folder / "figure5.png", [whole._replace(heads=[head]) for head in different])


def main(arguments: Sequence[str]) -> int:
    """Train, measure, write."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.heads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--seed", metavar="N", type=int, help="this one; no record")
    options.add_argument("--out", metavar="DIR", type=Path, default=RESULTS)
    args = options.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        with signals_as_interrupts():
            runs = [measured(n) for n in ([args.seed] if args.seed else range(1, SEEDS + 1))]
    except KeyboardInterrupt:
        print("heads: interrupted; finished trainings are kept", file=sys.stderr)
        return 130
    facts = {**machine("cpu"), "command": "python -m benchmarks.heads"}
    record = {"machine": facts, "table": "heads", "expected": FILE["expected"]}
    record["rows"] = {"ours": {"runs": runs}}
    if args.seed:
        print("\n".join(lines_of(record)))
        return 0
    save(args.out, record, "Heads that find a distant word", lines_of(record), draw)
    for run in runs:
        folder = args.out / record_name(facts, ["heads"])
        (folder / f"seed{run['seed']}").mkdir(exist_ok=True)
        draw_figures(folder / f"seed{run['seed']}", run)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
