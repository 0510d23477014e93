"""Does the Transformer learn to parse from 3,707 trees (6.3), if that is made easier?

``TREES``, data/trees, is to have train.ptb.xz, dev.ptb and test.ptb, one tree a line. Words split
into subwords, as in 6.3, and XX for each leaf teach too little at this size: the decoder has to
find out how many leaves it has written, and which word is next. The rows of rows.yaml, named for
their source, have one position of the source for each leaf:

tags: the gold tags are the source, and leaves are XX.
words: words are the source, those that training has once as classes of suffixes; leaves are tags,
    unlike in Vinyals et al. 2015.

Each model writes greedily, freely and constrained: one tree, with as many leaves as the sentence
has. It also gets the source of another sentence, of nearly the same length; what it then knows is
no more than a length. The nll of opening brackets is that of the validation trees, after the right
beginning, with both sources. Baselines: a treebank PCFG on gold tags (pcfg.py), the tree of a
training sentence of the same length, and right-branching NPs.

F1 is EVALB's, as in ``vaswani score``. A record has the brackets that were written.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.fairseq_runs import (
    FairseqExperiment,
    execute,
    rate_text,
    refuse_other_training,
    seed_trainings,
)
from experiments.harness import Row, stem
from experiments.parsing.baselines import BASELINES, GRAMMAR, LENGTHS, as_trees, scores
from experiments.parsing.parser import Parser
from experiments.parsing.text import find_trees, prepare
from experiments.records import Record, read_record
from experiments.tables import Table
from vaswani.common.files import atomic_write, read_json
from vaswani.data.text import read_lines, write_lines
from vaswani.data.trees import Tree
from vaswani.folders.run import Run

SOURCES = {"own": False, "another's": True}
SEARCHES = {"free": False, "constrained": True}
PARSED = "parsed.json"


class ParsingExperiment(FairseqExperiment):
    """Models of two kinds of source, and parsers without a network."""

    def train(self, row: Row, seed: int) -> None:
        """Prepare the trees, train a model, and average its checkpoints."""
        plan = self.plans[row.name]
        training = seed_trainings(plan)[seed]
        task = training.config.task
        if not Path(task.data).is_dir():
            prepare(Path(task.data).parent, find_trees(), task.source_lang)
        refuse_other_training(plan)
        commands = [] if training.done else [training.command]
        if not training.average(plan.average).is_file():
            commands.append(["average", str(training.run), "--last", str(plan.average)])
        execute(commands)

    def runs(self, row: Row) -> list[Path]:
        """Return the runs with an average."""
        plan = self.plans[row.name]
        trainings = seed_trainings(plan).values()
        return [training.run for training in trainings if training.average(plan.average).is_file()]

    def measure(self, run: Path) -> dict[str, Any]:
        """Return the scores with its own source and with another's, free and constrained.

        They are stored beside the written trees, and computed again once the training has
        continued.
        """
        ending = Run(run).ending()
        assert ending, "it has ended"
        parsed = read_json(run / PARSED)
        if parsed.get("updates") == ending.num_updates:
            return parsed
        torch.set_num_threads(1)
        figures = {**self.parse(run), "updates": ending.num_updates}
        with atomic_write(run / PARSED) as stream:
            json.dump(figures, stream, indent=1)
        return read_json(run / PARSED)

    def parse(self, run: Path) -> dict[str, Any]:
        """Write the trees of the test, and score them."""
        gold = find_trees()["test"]
        name, _, seed = run.name.rpartition("_seed")
        (plan,) = [plan for plan in self.plans.values() if stem(plan.name) == name]
        training = seed_trainings(plan)[int(seed)]
        parser = Parser(training, training.average(plan.average))
        parsers = {}
        for whose, other in SOURCES.items():
            for how, constrained in SEARCHES.items():
                name = f"{whose} source, {how}"
                written = parser.parses("test", other, constrained)
                write_lines(run / f"{stem(name)}.trees", map(" ".join, written))
                parses, repaired = as_trees(written, gold)
                parsers[name] = {**scores(gold, parses), "repaired": repaired}
        return {
            "parsers": parsers,
            "nll": {whose: parser.nll("valid", other) for whose, other in SOURCES.items()},
        }

    def complete(self, record: Record, earlier: Path | None) -> None:
        """Add the baselines, and F1 by whether the number of leaves is right."""
        here = {
            name: Path(row["runs"][0]["run"])
            for name, row in record["rows"].items()
            if Path(row["runs"][0]["run"]).is_dir()
        }
        before = read_record(earlier) if earlier else {}
        record["by_count"] = dict(before.get("by_count", {}))
        record["baselines"] = dict(before.get("baselines", {}))
        if not here:
            return
        trees = find_trees()
        parses = {name: make(trees) for name, make in BASELINES.items()}
        for name, of_baseline in parses.items():
            record["baselines"][name] = scores(trees["test"], of_baseline)
        for name, run in here.items():
            record["by_count"][name] = by_count(run, trees["test"], parses[GRAMMAR])

    def files(self, run: Path) -> dict[str, Path]:
        """Return the files of statistics, and the trees that were written."""
        written = {f"{run.name}.{path.name}": path for path in run.glob("*.trees")}
        return {**super().files(run), **written}

    def tables(self, record: Record) -> list[Table]:
        """Return tables of F1, of each training's nll, and of F1 by the number of leaves."""
        return [parser_table(record), nll_table(record), count_table(record)]


def by_count(run: Path, gold: Sequence[Tree], of_grammar: Sequence[Tree]) -> dict[str, Any]:
    """Return F1 of short sentences, apart for those written with the right number of leaves.

    Args:
        run: the folder of a run whose trees are written
        gold: the right trees
        of_grammar: the PCFG's
    """
    written = [line.split() for line in read_lines(run / f"{stem('own source, free')}.trees")]
    parses, _ = as_trees(written, gold)
    groups: dict[str, list[tuple[Tree, Tree, Tree]]] = {"as many": [], "more or fewer": []}
    for tokens, reference, ours, grammars in zip(written, gold, parses, of_grammar, strict=True):
        words = len(reference.words)
        if words > LENGTHS[0]:
            continue
        leaves = sum(token[0] not in "()" for token in tokens)
        name = "as many" if leaves == words else "more or fewer"
        groups[name].append((reference, ours, grammars))
    figures = {}
    for name, group in groups.items():
        references = [reference for reference, _, _ in group]
        of_ours = scores(references, [ours for _, ours, _ in group])
        of_pcfg = scores(references, [grammars for _, _, grammars in group])
        figures[name] = {
            "sentences": len(group),
            "ours": of_ours["f1"],
            "PCFG": of_pcfg["f1"],
        }
    return figures


# ---- tables ------------------------------------------------------------------------------------


def all_parsers(record: Record) -> dict[str, dict[str, Any]]:
    """Return the scores of the baselines and of each row's model, by name."""
    parsers = dict(record["baselines"])
    for name, row in record["rows"].items():
        for how, figures in row["runs"][0]["parsers"].items():
            parsers[f"ours, {name}: {how}"] = figures
    return parsers


def parser_table(record: Record) -> Table:
    """Return the table of each parser's F1, by length."""
    keys = [*(f"f1 to {n}" for n in LENGTHS), "f1", "recall", "precision", "complete_match"]
    columns = ["parser", *(f"F1, at most {n} words" for n in LENGTHS), "F1, all", "recall"]
    columns += ["precision", "complete match, %", "repaired to trees"]
    lines = [
        [name, *(f"{figures[key]:.1f}" for key in keys), str(figures.get("repaired", "–"))]
        for name, figures in all_parsers(record).items()
    ]
    return Table(columns, lines)


def nll_table(record: Record) -> Table:
    """Return the table of the bits of an opening bracket, by its source."""
    columns = ["source", "rate", "updates"]
    columns += [f"opening brackets, {whose} source, bits" for whose in SOURCES]
    lines = []
    for name, row in record["rows"].items():
        run = row["runs"][0]
        bits = [f"{run['nll'][whose]:.3f}" for whose in SOURCES]
        lines.append([name, rate_text(row), f"{run['updates']:,}", *bits])
    return Table(columns, lines)


def count_table(record: Record) -> Table:
    """Return the table of F1 of short sentences by the number of leaves."""
    lines = []
    for name, groups in record["by_count"].items():
        for count, figures in groups.items():
            both = [f"{figures['ours']:.1f}", f"{figures['PCFG']:.1f}"]
            lines.append([name, count, str(figures["sentences"]), *both])
    note = f"Sentences of at most {LENGTHS[0]} words, by the leaves of what is written freely:"
    return Table(["source", "leaves", "sentences", "F1, ours", "PCFG"], lines, note)


make = ParsingExperiment
