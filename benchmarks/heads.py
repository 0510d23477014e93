"""Do heads find the distant word that another word depends on, and does the model need them to?

    python -m benchmarks.heads            three seeds; half an hour of one core
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
   distractor most, in the less favourable of the two orders, in half of the sentences. The other
   half tests it: p is one-sided, from exchanging the two weights within sentences.
3. Cut: the same weight is set to zero and its row scaled to a sum of 1 again, in the best head, in
   all heads, in all heads of all kinds; and then in the rows of all other words too.

A finished training is kept in runs/heads and not run again. The record is
OUT/HARDWARE_DATE_heads.md, .png and the folder of the same name, with Figures 3 to 5.
"""

import argparse
import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import numpy
import torch
from torch import Tensor

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
from benchmarks.small_table import mean, save
from vaswani.attention_page.maps import Unit, head_weights
from vaswani.common.environment import environment
from vaswani.common.files import atomic_write
from vaswani.common.signals import signals_as_interrupts
from vaswani.experiment.run_record import STATISTICS
from vaswani.paper import figures
from vaswani_transformer import Transformer, Vocabulary, greedy_decode

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
        kept: deque[Dict[str, Tensor]] = deque(maxlen=LOOP["AVERAGED"])
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


def best_head(orders: Sequence[Any]) -> Tuple[int, int]:
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


def changes(model: Any, types: Vocabulary, said: List[Content]) -> Dict[str, float]:
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


def looked(model: Any, chosen: Sequence[Read], tested: Sequence[Read]) -> Dict[str, Any]:
    """By attention: the head that half of the sentences choose, and its weights in the others."""
    choosing = [weights(model, text) for text in chosen]
    testing = [weights(model, text) for text in tested]
    found: Dict[str, Any] = {}
    for attention in ATTENTION:
        orders = [each[attention] for each in choosing if attention in each]
        if not orders:
            continue
        layer, head = best_head(orders)
        found[attention] = {"layer": layer, "head": head}
        for order, each in zip(ORDERS, testing, strict=True):
            if attention in each:
                both = each[attention][:, :, layer, head]
                means = dict(zip(ROLES, both.mean(0).tolist(), strict=True))
                found[attention][order] = {**means, "p": p_value(both[:, 0] - both[:, 1])}
    return found


def cut_off(model: Any, texts: Sequence[Read], heads: Dict[str, Any]) -> Dict[str, Any]:
    """The per cent still right without weights on a noun, by what is cut and by noun."""
    cuts = {}
    for attention, best in heads.items():
        cuts[f"{attention}, best head"] = [Cut(attention, best["layer"], best["head"])]
        cuts[f"{attention}, all heads"] = [Cut(attention)]
    cuts["all heads of all kinds"] = [Cut(attention) for attention in ATTENTION]
    cuts["all words' weights on it"] = [Cut(attention, all_rows=True) for attention in ATTENTION]
    found = {"nothing": {role: still_right(model, texts, role, []) for role in ROLES}}
    for name, several in cuts.items():
        found[name] = {role: still_right(model, texts, role, several) for role in ROLES}
    return found


def still_right(model: Any, texts: Sequence[Read], role: str, cuts: Sequence[Cut]) -> float:
    """The per cent right without some of the weights on a noun."""
    hits: List[bool] = []
    for text in texts:
        with without(model, text, role, cuts):
            hits += right(model, text).tolist()
    return share(hits)


def translated(model: Any, types: Vocabulary, said: List[Content]) -> float:
    """The per cent of greedy translations that are the reference, word for word."""
    text = read(types, [sentence(one) for one in said])
    found = greedy_decode(model, text.source, max_len=40)
    return share(
        types.decode(ids) == one.target for ids, one in zip(found, text.sentences, strict=True)
    )


def measured(seed: int) -> Dict[str, Any]:
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
        heads = looked(model, chosen, tested)
        kinds[kind] = {
            "translated": translated(model, types, [*said[0], *said[1]]),
            "changes": changes(model, types, [*said[0], *said[1]]),
            "heads": heads,
            "cut": cut_off(model, tested, heads),
        }
    run = RUNS / f"seed{seed}"
    facts = {key: torch.load(run / "model.pt")[key] for key in ("cpu", "commit", "seconds")}
    return {"run": str(run), "kinds": kinds, **facts}


# ---- the record --------------------------------------------------------------------------------


def change_lines(runs: List[Dict[str, Any]]) -> List[str]:
    """What is right, and changes when a noun does, in Markdown: means over the seeds."""
    lines = [
        "| % | translated exactly | right | changes with its subject | of the source alone "
        "| of what is written alone | with the distractor |",
        "|---" * 7 + "|",
    ]
    for kind in FILE["orders"]:
        each = [run["kinds"][kind] for run in runs]
        cells = [kind, mean(each, "translated", ".1f")]
        cells.append(mean([one["cut"]["nothing"] for one in each], "subject", ".1f"))
        for key in ("subject", "source", "written", "distractor"):
            cells.append(mean([one["changes"] for one in each], key, ".1f"))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def head_lines(runs: List[Dict[str, Any]]) -> List[str]:
    """Each seed's chosen heads and their weights in the other half of the test, in Markdown."""
    lines = [
        "| word | attention | seed | layer, head | distractor nearer: weight on subject, on "
        "distractor, p | farther: the same |",
        "|---" * 6 + "|",
    ]
    for kind in FILE["orders"]:
        for attention in ATTENTION:
            for run in runs:
                if found := run["kinds"][kind]["heads"].get(attention):
                    name = f"{found['layer'] + 1}, {found['head'] + 1}"
                    cells = [kind, attention, Path(run["run"]).name[-1], name]
                    for one in (found.get(order) for order in ORDERS):
                        both = [f"{one[role]:.3f}" for role in ROLES] if one else []
                        cells.append(", ".join([*both, f"{one['p']:.4f}"]) if one else "–")
                    lines.append(f"| {' | '.join(cells)} |")
    return lines


def cut_lines(runs: List[Dict[str, Any]]) -> List[str]:
    """The per cent right without some weights on a noun, in Markdown: means over the seeds."""
    lines = ["| word | weights cut | on its subject | on the distractor |", "|---" * 4 + "|"]
    for kind in FILE["orders"]:
        for name in runs[0]["kinds"][kind]["cut"]:
            each = [run["kinds"][kind]["cut"][name] for run in runs]
            cells = [kind, name, *(mean(each, role, ".1f") for role in ROLES)]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def lines_of(record: Dict[str, Any]) -> List[str]:
    """The record's three tables."""
    runs = record["rows"]["ours"]["runs"]
    return [*change_lines(runs), "", *head_lines(runs), "", *cut_lines(runs)]


def draw(path: Path, record: Dict[str, Any]) -> None:
    """What is right without some weights on a noun; each seed's point."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = record["rows"]["ours"]["runs"]
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.2), sharex=True, layout="constrained")
    for axis, kind in zip(axes, FILE["orders"], strict=True):
        names = list(runs[0]["kinds"][kind]["cut"])
        for role, colour, form in (("subject", "C3", "o"), ("distractor", "C7", "x")):
            for run in runs:
                each = [run["kinds"][kind]["cut"][name][role] for name in names]
                label = f"on the {role}" if run is runs[0] else None
                axis.plot(each, range(len(names)), form, color=colour, alpha=0.6, label=label)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.invert_yaxis()
        axis.set_title(kind, fontsize=10)
        axis.set_xlabel("right, %, without these weights")
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_figures(folder: Path) -> None:
    """The paper's Figures 3 to 5 of the encoder of the first seed, on sentences of the test."""
    types = vocabulary()
    model, found = trained(1, types), []
    kinds = {"distant": "verb before its subject", "antecedent": "pronoun"}
    for name, kind in kinds.items():
        for said in drawn(kind, "near", 40, True, TEST):
            one = sentence(said)
            ids = types.encode(one.source)
            units = [Unit(text, n, n) for n, text in enumerate([*one.source, "(end)"])]
            maps = head_weights(model, ids, types.encode(one.target))["encoder"]
            text = " ".join(one.source)
            subject = [one.at["subject"]]
            found.append(figures.Pair(name, text, units, one.at["word"], subject, maps))
    figures.draw(folder, found, figures.means(found))


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
    rows = {"ours": {"runs": runs}}
    record = {"machine": facts, "table": "heads", "expected": FILE["expected"], "rows": rows}
    if args.seed:
        print("\n".join(lines_of(record)))
        return 0
    save(args.out, record, "Heads that find a distant word", lines_of(record), draw)
    draw_figures(args.out / record_name(facts, ["heads"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
