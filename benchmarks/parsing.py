"""Does the Transformer learn to parse from 3,707 trees (6.3), if that is made easier?

    python -m benchmarks.parsing TREES               every row; an hour and a half of one core
    python -m benchmarks.parsing TREES --row tags    trains one of them; no record
    python -m benchmarks.parsing TREES --record      trains nothing; records what is trained

TREES is a folder with train.ptb.xz, dev.ptb and test.ptb, one tree a line. Words split into
subwords, as in 6.3, and XX for each leaf teach too little at this size: the decoder has to find out
how many leaves it has written, and which word is next. The rows of parsing.yaml, named for their
source, have one position of the source for each leaf:

tags: the gold tags are the source, and leaves are XX.
words: words are the source, those that training has once as classes of suffixes; leaves are tags,
    unlike in Vinyals et al. 2015.

Each model writes greedily, freely and constrained: one tree, with as many leaves as the sentence
has. It also gets the source of another sentence, of nearly the same length; what it then knows is
no more than a length. The nll of opening brackets is that of the validation trees, after the right
beginning, with both sources. Baselines: a treebank PCFG on gold tags (pcfg.py), the tree of a
training sentence of the same length, and right-branching NPs.

F1 is EVALB's, as in ``vaswani score``. A finished training is not run again. The record is
OUT/HARDWARE_DATE_parsing.md and the folder of the same name, with the brackets written.
"""

import argparse
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks import pcfg
from benchmarks.heads import rows
from benchmarks.machine import machine
from benchmarks.parsing_search import Brackets, PartialTree, batches, greedy, padded
from benchmarks.run import RESULTS, record_name
from benchmarks.small_table import pack, save
from vaswani.common.files import atomic_write, read_json
from vaswani.data.binarise import binarise
from vaswani.data.recipe import Recipe
from vaswani.data.text import read_lines, write_lines
from vaswani.data.trees import Constituent, Tree, linearise, read_trees, repair
from vaswani.experiment.plugin import load_user_dir
from vaswani.experiment.run_record import FINISHED
from vaswani.paper.runner import run_commands
from vaswani.paper.small_tables import (
    Table,
    Training,
    read_table,
    refuse_other_training,
    stem,
    trainings,
)
from vaswani.scoring.evalb import compare_all, summary
from vaswani_transformer import Vocabulary
from vaswani_transformer.vocabulary import EOS

FILE = Path(__file__).with_suffix(".yaml")
FILES = {"train": "train.ptb.xz", "valid": "dev.ptb", "test": "test.ptb"}
TARGET = "trees"
LENGTHS = (20, 40)
"""F1 of the sentences with at most so many words."""
GRAMMAR = "PCFG on gold tags"
SOURCES = {"own": False, "another's": True}
SEARCHES = {"free": False, "constrained": True}
EXTRA = 300
"""Unconstrained, a tree may have so many tokens more than its sentence (6.3)."""

Trees = dict[str, list[Tree]]


# ---- text --------------------------------------------------------------------------------------


def suffix_class(word: str) -> str:
    """What stands for a rare word: its capital, digits and hyphens, and its last two letters."""
    marks = "A" * word[0].isupper() + "0" * any(map(str.isdigit, word)) + "-" * ("-" in word)
    return f"<{marks}~{word[-2:].lower() if word[-2:].isalpha() else ''}>"


def sources(trees: Trees, kind: str) -> dict[str, list[list[str]]]:
    """The source of each tree: its tags, or its words, the rare ones as classes of suffixes.

    A class that is rare itself loses its suffix.
    """
    if kind == "tags":
        return {split: [tree.tags for tree in found] for split, found in trees.items()}
    words = {split: [tree.words for tree in found] for split, found in trees.items()}
    for shorten in (suffix_class, lambda name: f"{name.partition('~')[0]}~>"):
        counts = Counter(word for sentence in words["train"] for word in sentence)
        known = {word for word, count in counts.items() if count > 1}
        words = {
            split: [[w if w in known else shorten(w) for w in sentence] for sentence in found]
            for split, found in words.items()
        }
    return words


def prepare(folder: Path, trees: Trees, kind: str) -> None:
    """Source and target of each set as text, and in fairseq's form."""
    text = folder / "text"
    text.mkdir(parents=True)
    for split, lines in sources(trees, kind).items():
        write_lines(text / f"{split}.{kind}", map(" ".join, lines))
        targets = (linearise(tree, tags=kind != "tags") for tree in trees[split])
        write_lines(text / f"{split}.{TARGET}", map(" ".join, targets))
    train, valid, test = FILES.values()
    recipe = Recipe(kind, TARGET, train, valid, test, trees=True)
    binarise(text, folder / "data-bin", recipe, 1, None)


def others(lengths: Sequence[int]) -> list[int]:
    """For each sentence another one: the next shorter, or of the same length."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    before = {here: order[abs(place - 1)] for place, here in enumerate(order)}
    return [before[place] for place in range(len(lengths))]


# ---- a trained model ---------------------------------------------------------------------------


class Parser:
    """A row's model, with the dictionaries and prepared text that it was trained on."""

    def __init__(self, training: Training, average: Path) -> None:
        from fairseq import checkpoint_utils

        load_user_dir(training.config.common.user_dir)
        [self.model], _, _ = checkpoint_utils.load_model_ensemble_and_task([str(average)])
        self.model.eval()
        task = training.config.task
        data = Path(task.data)
        self.text, self.kind = data.parent / "text", task.source_lang
        self.source, self.target = (
            Vocabulary.load(data / f"dict.{name}.txt") for name in (self.kind, TARGET)
        )
        self.brackets = Brackets(self.target)

    def ids(self, split: str) -> tuple[list[list[int]], list[list[int]]]:
        """Sources and targets of a set, each with an end."""
        return tuple(  # type: ignore[return-value]
            [types.encode(line.split()) for line in read_lines(self.text / f"{split}.{name}")]
            for types, name in ((self.source, self.kind), (self.target, TARGET))
        )

    def parses(self, split: str, other: bool, constrained: bool) -> list[list[str]]:
        """What it writes for each sentence, or for another's source.

        Args:
            split: the set
            other: give it the source of another sentence
            constrained: one tree, with a leaf for each word of the sentence
        """
        from transformer_plugin.encoder import memory_of

        found, _ = self.ids(split)
        lengths = [len(source) - 1 for source in found]
        given = [found[place] for place in others(lengths)] if other else found
        written: dict[int, list[str]] = {}
        for chosen in batches(lengths):
            memory = memory_of(self.model.encoder(padded([given[place] for place in chosen])))
            longest = max(lengths[place] for place in chosen) + EXTRA
            partial = [PartialTree(self.brackets, lengths[place]) for place in chosen]
            ids = greedy(self.model.decoder, memory, longest, partial if constrained else None)
            written |= zip(chosen, map(self.target.decode, ids), strict=True)
        return [written[place] for place in range(len(found))]

    @torch.no_grad()
    def nll(self, split: str, other: bool) -> float:
        """Bits of an opening bracket, after the right tokens before it."""
        given, targets = self.ids(split)
        if other:
            given = [given[place] for place in others([len(source) for source in given])]
        opening, bits = torch.tensor(list(self.brackets.opening)), []
        for chosen in batches([len(target) for target in targets]):
            target = padded([targets[place] for place in chosen])
            shifted = target.roll(1, dims=1)
            shifted[:, 0] = EOS
            logits = self.model(padded([given[place] for place in chosen]), None, shifted)[0]
            nats = torch.nn.functional.cross_entropy(logits.mT, target, reduction="none")
            bits.append(nats[torch.isin(target, opening)] / math.log(2))
        return float(torch.cat(bits).mean())


# ---- scores ------------------------------------------------------------------------------------


def as_trees(written: Sequence[Sequence[str]], gold: Sequence[Tree]) -> tuple[list[Tree], int]:
    """What was written as trees with the gold tags; how many had to be repaired."""
    both = [repair(tokens, tree.words) for tokens, tree in zip(written, gold, strict=True)]
    parses = [one._replace(tags=tree.tags) for (one, _), tree in zip(both, gold, strict=True)]
    return parses, sum(changed for _, changed in both)


def scores(gold: Sequence[Tree], parses: Sequence[Tree]) -> dict[str, Any]:
    """EVALB's figures, and F1 of the sentences of at most so many words."""
    compared = compare_all(gold, parses)
    short = {n: [one for one in compared if one.length <= n] for n in LENGTHS}
    return {**summary(compared), **{f"f1 to {n}": summary(short[n])["f1"] for n in LENGTHS}}


def right_branching(trees: Trees) -> list[Tree]:
    """S over the sentence, and inside it NP from each word on."""
    parses = []
    for tree in trees["test"]:
        words = len(tree.words)
        rest = [Constituent("NP", start, words) for start in range(1, words)]
        parses.append(tree._replace(constituents=[Constituent("S", 0, words), *rest]))
    return parses


def same_length(trees: Trees) -> list[Tree]:
    """The tree of some training sentence, one of those that come nearest in length."""
    train, said = random.Random(1).sample(trees["train"], len(trees["train"])), []
    for tree in trees["test"]:
        near = min(train, key=lambda one: abs(len(one.words) - len(tree.words)))
        said.append(linearise(near))
    return as_trees(said, trees["test"])[0]


def counted(trees: Trees) -> list[Tree]:
    """Those of the PCFG; a sentence that its rules do not allow has no constituents."""
    grammar = pcfg.learn(trees["train"])
    found = (pcfg.parse(grammar, tree) or tree._replace(constituents=[]) for tree in trees["test"])
    return list(found)


BASELINES: dict[str, Callable[[Trees], list[Tree]]] = {
    "right-branching": right_branching,
    "a training tree of that length": same_length,
    GRAMMAR: counted,
}


# ---- the record --------------------------------------------------------------------------------


def measured(training: Training, average: Path, trees: Trees) -> dict[str, Any]:
    """A training's scores, with its own source and another's, free and constrained.

    They are kept beside what was written, until the training goes on.
    """
    run, kept = training.run, training.run / "parsed.json"
    finished, env, found = (read_json(path) for path in (run / FINISHED, run / "env.json", kept))
    if found.get("updates") == finished["num_updates"]:
        return found
    parser, parsers = Parser(training, average), {}
    for (whose, other), (how, constrained) in product(SOURCES.items(), SEARCHES.items()):
        name = f"{whose} source, {how}"
        written = parser.parses("test", other, constrained)
        write_lines(run / f"{stem(name)}.trees", map(" ".join, written))
        parses, repaired = as_trees(written, trees["test"])
        parsers[name] = {**scores(trees["test"], parses), "repaired": repaired}
    found = {
        "run": str(run),
        "parsers": parsers,
        "nll": {whose: parser.nll("valid", other) for whose, other in SOURCES.items()},
        "updates": finished["num_updates"],
        "cpu": env["cpu"],
        "commit": env["commit"],
    }
    with atomic_write(kept) as stream:
        json.dump(found, stream, indent=1)
    return found


def by_count(run: Path, gold: Sequence[Tree], counted: Sequence[Tree]) -> dict[str, Any]:
    """F1 of short sentences with as many leaves, written freely, as words; and of the others.

    Args:
        run: the folder of a run whose trees are written
        gold: the right trees
        counted: the PCFG's
    """
    written = [line.split() for line in read_lines(run / f"{stem('own source, free')}.trees")]
    parses, _ = as_trees(written, gold)
    right: list[Any] = []
    wrong: list[Any] = []
    for tokens, *trees in zip(written, gold, parses, counted, strict=True):
        leaves, words = sum(token[0] not in "()" for token in tokens), len(trees[0].words)
        if words <= LENGTHS[0]:
            (right if leaves == words else wrong).append(trees)
    found = {}
    for name, chosen in (("as many", right), ("more or fewer", wrong)):
        golds, *both = map(list, zip(*chosen, strict=True))
        ours, theirs = (scores(golds, each)["f1"] for each in both)
        found[name] = {"sentences": len(golds), "ours": ours, "PCFG": theirs}
    return found


def lines_of(record: dict[str, Any]) -> list[str]:
    """Each parser's F1, by length, in Markdown; then each training's nll."""
    runs = {name: row["runs"][0] for name, row in record["rows"].items()}
    parsers = record["baselines"] | {
        f"ours, {name}: {how}": one
        for name, run in runs.items()
        for how, one in run["parsers"].items()
    }
    keys = [*(f"f1 to {n}" for n in LENGTHS), "f1", "recall", "precision", "complete_match"]
    columns = [*(f"F1, at most {n} words" for n in LENGTHS), "F1, all", "recall", "precision"]
    scored = [
        [name, *(f"{one[key]:.1f}" for key in keys), str(one.get("repaired", "–"))]
        for name, one in parsers.items()
    ]
    bits = [
        [name, f"{run['updates']:,}", *(f"{run['nll'][whose]:.3f}" for whose in SOURCES)]
        for name, run in runs.items()
    ]
    heads = [f"opening brackets, {whose} source, bits" for whose in SOURCES]
    split = [
        [
            name,
            count,
            *(format(figure, "g" if key == "sentences" else ".1f") for key, figure in one.items()),
        ]
        for name, counts in record["by_count"].items()
        for count, one in counts.items()
    ]
    return [
        *rows(["parser", *columns, "complete match, %", "repaired to trees"], scored),
        "",
        *rows(["source", "updates", *heads], bits),
        "",
        f"Sentences of at most {LENGTHS[0]} words, by the leaves of what is written freely:",
        "",
        *rows(["source", "leaves", "sentences", "F1, ours", "PCFG"], split),
    ]


def train(table: Table, trees: Trees) -> int:
    """Prepare and train what is not done; the exit code of what failed, or 0."""
    for row in table.rows:
        [training] = trainings(table, row)
        task = training.config.task
        if not Path(task.data).is_dir():
            prepare(Path(task.data).parent, trees, task.source_lang)
        refuse_other_training(table._replace(rows=[row]))
        commands = [] if training.done else [training.command]
        if not training.average(row.average).is_file():
            commands.append(["average", str(training.run), "--last", str(row.average)])
        if code := run_commands(commands):
            return code
    return 0


def main(arguments: Sequence[str]) -> int:
    """Train, parse, write."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.parsing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("trees", metavar="TREES", type=Path, help="the folder of trees")
    options.add_argument("--row", metavar="ROW", help="train this one alone; no record")
    options.add_argument("--record", action="store_true", help="train nothing")
    options.add_argument("--out", metavar="DIR", type=Path, default=RESULTS)
    args = options.parse_args(arguments)
    torch.set_num_threads(1)
    if missing := [name for name in FILES.values() if not (args.trees / name).is_file()]:
        options.error(f"{args.trees} has no {', '.join(missing)}")
    trees = {split: read_trees(args.trees / name) for split, name in FILES.items()}
    table = read_table("parsing", args.row, FILE)
    if not args.record and (code := train(table, trees)):
        return code
    done = {
        row.name: {"runs": [measured(one, one.average(row.average), trees)]}
        for row in table.rows
        for one in trainings(table, row)
        if one.average(row.average).is_file()
    }
    if args.row:
        return 0
    facts = {**machine("cpu"), "command": "python -m benchmarks.parsing TREES"}
    gold, parses = trees["test"], {name: make(trees) for name, make in BASELINES.items()}
    record = {"machine": facts, "table": "parsing", "expected": table.expected, "rows": done}
    record["baselines"] = {name: scores(gold, found) for name, found in parses.items()}
    record["by_count"] = {
        name: by_count(Path(row["runs"][0]["run"]), gold, parses[GRAMMAR])
        for name, row in done.items()
    }
    save(args.out, record, "Parsing 3,707 trees", lines_of(record))
    for run in (Path(row["runs"][0]["run"]) for row in done.values()):
        for path in run.glob("*.trees"):
            folder = args.out / record_name(facts, ["parsing"])
            pack(path, folder / f"{run.name}.{path.name}.gz")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
