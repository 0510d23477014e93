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
OUT/HARDWARE_DATE_parsing.md, .png and the folder of the same name, with the brackets written.
"""

import argparse
import gzip
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import pcfg
from benchmarks.machine import machine
from benchmarks.parsing_search import Brackets, PartialTree, greedy
from benchmarks.run import RESULTS, record_name
from benchmarks.small_table import save
from vaswani.common.files import read_json
from vaswani.data.binarise import binarise
from vaswani.data.recipe import Recipe
from vaswani.data.text import read_lines, write_lines
from vaswani.data.trees import Constituent, Tree, linearise, read_trees, repair
from vaswani.experiment.find import load_user_dir
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
from vaswani_transformer.vocabulary import EOS, PAD

FILE = Path(__file__).with_suffix(".yaml")
FILES = {"train": "train.ptb.xz", "valid": "dev.ptb", "test": "test.ptb"}
TARGET = "trees"
LENGTHS = (20, 40, 10**6)
"""F1 of the sentences with at most so many words."""
BINS = (0, 10, 20, 30, 40, 10**6)
"""Of the picture."""
BATCH = 64
EXTRA = 300
"""Unconstrained, a tree may have so many tokens more than its sentence (6.3)."""

Trees = dict[str, list[Tree]]


# ---- text --------------------------------------------------------------------------------------


def suffix_class(word: str) -> str:
    """What stands for a rare word: its capital, digits and hyphens, and its last two letters."""
    marks = "A" * word[0].isupper() + "0" * any(map(str.isdigit, word)) + "-" * ("-" in word)
    return f"<{marks}~{word[-2:].lower() if word[-2:].isalpha() else ''}>"


def common(sentences: Sequence[Sequence[str]]) -> set[str]:
    """The words that occur more than once."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return {word for word, count in counts.items() if count > 1}


def sources(trees: Trees, kind: str) -> dict[str, list[list[str]]]:
    """The source of each tree: its tags, or its words, the rare ones as classes of suffixes.

    A class that is rare itself loses its suffix.
    """
    if kind == "tags":
        return {split: [tree.tags for tree in found] for split, found in trees.items()}
    words = {split: [tree.words for tree in found] for split, found in trees.items()}
    for shorten in (suffix_class, lambda name: f"{name.partition('~')[0]}~>"):
        known = common(words["train"])
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
        for rows in batches(lengths):
            memory = memory_of(self.model.encoder(padded([given[row] for row in rows])))
            paths = (
                [PartialTree(self.brackets, lengths[row]) for row in rows] if constrained else None
            )
            longest = max(lengths[row] for row in rows) + EXTRA
            ids = greedy(self.model.decoder, memory, longest, paths)
            for row, one in zip(rows, ids, strict=True):
                written[row] = self.target.decode(one)
        return [written[row] for row in range(len(found))]

    @torch.no_grad()
    def nll(self, split: str, other: bool) -> dict[str, float]:
        """Bits of opening brackets, and of all tokens, each after the right ones before it."""
        given, targets = self.ids(split)
        if other:
            given = [given[place] for place in others([len(source) for source in given])]
        opening = torch.zeros(len(self.target.types), dtype=torch.bool)
        opening[list(self.brackets.opening)] = True
        sums: dict[str, float] = dict.fromkeys(("opening", "all"), 0.0)
        counts = dict.fromkeys(sums, 0)
        for rows in batches([len(target) for target in targets]):
            target = padded([targets[row] for row in rows])
            shifted = target.roll(1, dims=1)
            shifted[:, 0] = EOS
            logits = self.model(padded([given[row] for row in rows]), None, shifted)[0]
            bits = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), target, reduction="none"
            ) / torch.log(torch.tensor(2.0))
            for name, chosen in (("opening", opening[target]), ("all", target != PAD)):
                sums[name] += float(bits[chosen].sum())
                counts[name] += int(chosen.sum())
        return {name: sums[name] / counts[name] for name in sums}


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """The numbers of the sentences, those of like lengths together."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def padded(rows: Sequence[list[int]]) -> Tensor:
    """Rows of different lengths as one tensor."""
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


# ---- scores ------------------------------------------------------------------------------------


def as_trees(written: Sequence[Sequence[str]], gold: Sequence[Tree]) -> tuple[list[Tree], int]:
    """What was written as trees with the gold tags; how many had to be repaired."""
    both = [repair(tokens, tree.words) for tokens, tree in zip(written, gold, strict=True)]
    parses = [one._replace(tags=tree.tags) for (one, _), tree in zip(both, gold, strict=True)]
    return parses, sum(changed for _, changed in both)


def scores(gold: Sequence[Tree], parses: Sequence[Tree]) -> dict[str, Any]:
    """EVALB's figures, and F1 of short sentences and of each bin."""
    compared = compare_all(gold, parses)

    def f1(least: int, most: int) -> float:
        return summary([c for c in compared if least < c.length <= most])["f1"]

    found = {key: value for key, value in summary(compared).items() if key != "errors"}
    found["f1_to"] = {str(most): f1(0, most) for most in LENGTHS}
    found["f1_bins"] = [f1(*ends) for ends in zip(BINS, BINS[1:], strict=False)]
    return found


def right_branching(trees: Trees) -> list[Tree]:
    """S over the sentence, and inside it NP from each word on."""
    parses = []
    for tree in trees["test"]:
        words = len(tree.words)
        rest = [Constituent("NP", start, words) for start in range(1, words)]
        parses.append(tree._replace(constituents=[Constituent("S", 0, words), *rest]))
    return parses


def same_length(trees: Trees) -> list[Tree]:
    """The tree of some training sentence, of those that come nearest in length."""
    dice, parses = random.Random(1), []
    for tree in trees["test"]:
        away = [abs(len(one.words) - len(tree.words)) for one in trees["train"]]
        near = [n for n, distance in enumerate(away) if distance == min(away)]
        parses.append(repair(linearise(trees["train"][dice.choice(near)]), tree.words)[0])
    return as_trees([linearise(parse) for parse in parses], trees["test"])[0]


def counted(trees: Trees) -> list[Tree]:
    """Those of the PCFG; a sentence that its rules do not allow has no constituents."""
    grammar = pcfg.learn(trees["train"])
    found = (pcfg.parse(grammar, tree) or tree._replace(constituents=[]) for tree in trees["test"])
    return list(found)


BASELINES: dict[str, Callable[[Trees], list[Tree]]] = {
    "right-branching": right_branching,
    "a training tree of that length": same_length,
    "PCFG on gold tags": counted,
}


# ---- the record --------------------------------------------------------------------------------


def measured(training: Training, average: Path, trees: Trees, out: Path) -> dict[str, Any]:
    """A training's scores, with its own source and another's, free and constrained."""
    parser, found = Parser(training, average), {}
    for other in (False, True):
        for constrained in (False, True):
            whose, how = ("own", "another's")[other], ("free", "constrained")[constrained]
            name = f"{whose} source, {how}"
            written = parser.parses("test", other, constrained)
            text = "".join(" ".join(tokens) + "\n" for tokens in written)
            file = out / f"{training.run.name}.{stem(name)}.trees.gz"
            file.write_bytes(gzip.compress(text.encode(), mtime=0))
            parses, repaired = as_trees(written, trees["test"])
            found[name] = {**scores(trees["test"], parses), "repaired": repaired}
    finished, env = (read_json(training.run / name) for name in (FINISHED, "env.json"))
    return {
        "run": str(training.run),
        "parsers": found,
        "nll": {name: parser.nll("valid", name != "own") for name in ("own", "another's")},
        "parameters": sum(p.numel() for p in parser.model.parameters()),
        "updates": finished["num_updates"],
        "seconds": finished["seconds"],
        "cpu": env["cpu"],
        "commit": env["commit"],
    }


def lines_of(record: dict[str, Any]) -> list[str]:
    """F1 by length in Markdown, of the baselines, then of each training."""
    columns = ["parser", "F1, at most 20 words", "at most 40", "all", "recall", "precision"]
    columns += ["complete match, %", "repaired to trees"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    parsers = dict(record["baselines"])
    for name, row in record["rows"].items():
        for run in row["runs"]:
            for how, one in run["parsers"].items():
                parsers[f"ours, {name}: {how}"] = one
    for name, one in parsers.items():
        figures = [*one["f1_to"].values(), one["recall"], one["precision"], one["complete_match"]]
        cells = [name, *(f"{figure:.1f}" for figure in figures), str(one.get("repaired", "–"))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def nll_lines(record: dict[str, Any]) -> list[str]:
    """Each training's nll with both sources, in Markdown."""
    columns = ["training", "parameters", "updates", "minutes", "opening brackets, own source, bits"]
    columns += ["another's", "all tokens, own", "another's"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, row in record["rows"].items():
        for run in row["runs"]:
            cells = [name, f"{run['parameters']:,}", f"{run['updates']:,}"]
            cells.append(f"{run['seconds'] / 60:.0f}")
            cells += [
                f"{run['nll'][of][what]:.3f}" for what in ("opening", "all") for of in run["nll"]
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(path: Path, record: dict[str, Any]) -> None:
    """F1 by length of sentence."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    lines = {name: one["f1_bins"] for name, one in record["baselines"].items()}
    for name, row in record["rows"].items():
        for how in ("own source, constrained", "another's source, constrained"):
            lines[f"ours, {name}: {how}"] = row["runs"][0]["parsers"][how]["f1_bins"]
    for name, values in lines.items():
        style = "o--" if name in record["baselines"] else "o-"
        axis.plot(range(len(values)), values, style, markersize=3, label=name)
    labels = [f"{low + 1} to {high}" for low, high in zip(BINS, BINS[1:-1], strict=False)]
    axis.set_xticks(range(len(labels) + 1), [*labels, f"over {BINS[-2]}"])
    axis.set_xlabel("words of the sentence")
    axis.set_ylabel("F1")
    axis.set_ylim(0, 100)
    figure.legend(fontsize=7, loc="outside right")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def train(table: Table, trees: Trees) -> int:
    """Prepare and train what is not done; the exit code of what failed, or 0."""
    for row in table.rows:
        [training] = trainings(table, row)
        task = training.config.task
        if not Path(task.data).is_dir():
            prepare(Path(task.data).parent, trees, task.source_lang)
        refuse_other_training(table._replace(rows=[row]))
        commands = [] if training.done else [training.command]
        if not training.average(table.average).is_file():
            commands.append(["average", str(training.run), "--last", str(table.average)])
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
    trees = {split: read_trees(args.trees / name) for split, name in FILES.items()}
    table = read_table("parsing", args.row, FILE)
    if not args.record and ((code := train(table, trees)) or args.row):
        return code
    facts = {**machine("cpu"), "command": "python -m benchmarks.parsing TREES"}
    folder = args.out / record_name(facts, ["parsing"])
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        row.name: {"runs": [measured(one, one.average(table.average), trees, folder)]}
        for row in table.rows
        for one in trainings(table, row)
        if one.average(table.average).is_file()
    }
    baselines = {name: scores(trees["test"], make(trees)) for name, make in BASELINES.items()}
    record = {"machine": facts, "table": "parsing", "expected": table.expected}
    record |= {"baselines": baselines, "rows": rows}
    lines = [*lines_of(record), "", *nll_lines(record)]
    save(args.out, record, "Parsing 3,707 trees", lines, draw)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
