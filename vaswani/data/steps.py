"""The stages of preparation, one function each: raw → text → tok → codes → bpe → data-bin.

Each takes the job, its options, and the temporary path that it fills. It returns its report
(JSON-able): for every set, the pairs seen, kept, held out, and left out by reason.
"""

import shutil
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from vaswani.common.errors import UserError
from vaswani.common.progress import Bar
from vaswani.common.usage import peak_megabytes
from vaswani.data import binarise, bpe, extract, pieces, text, trees
from vaswani.data.clean import Report
from vaswani.data.download import fetch
from vaswani.data.manifest import Part
from vaswani.data.parallel import Chunk, Outcome, chunks, transform
from vaswani.data.recipe import Recipe
from vaswani.data.sentences import Sentences
from vaswani.data.stage_options import (
    BinaryOptions,
    CodesOptions,
    SubwordOptions,
    TextOptions,
    TokenOptions,
)
from vaswani.data.subwords import KINDS, SENTENCEPIECE
from vaswani.data.tokenise import Tokens, hardly_spaced, lacks_rules
from vaswani.experiment.find import DOCS

Pair = Tuple[Path, Path]
#: the share of a set that may be unknown; if it is larger, something is wrong
MOSTLY_KNOWN = 0.1
#: lines that show whether a text has spaces
LOOKED_AT = 1000
Maker = Callable[[], Callable[[Chunk], Outcome]]


@dataclass(frozen=True)
class Like:
    """Codes and dictionary taken from other text, and their hashes."""

    codes: Path
    dictionary: Path
    hashes: Tuple[str, str]


@dataclass(frozen=True)
class Job:
    """One run of ``vaswani prepare``."""

    recipe: Recipe
    #: data/NAME
    folder: Path
    #: number of processes
    workers: int
    #: the parts of the manifest, by set; empty without archives
    parts: Dict[str, List[Part]]
    #: where archives are, or are downloaded to
    archives: Path
    #: take the validation and test sets from sacreBLEU
    sacrebleu: bool = False
    #: codes and dictionary of other text; None: they are made from this text
    like: Optional[Like] = None
    #: files that were read besides text: the recipe, the manifest
    read: Dict[str, Path] = field(default_factory=dict)

    def pair(self, folder: Path, split: str) -> Pair:
        """The two files of a set."""
        source, target = (folder / f"{split}.{lang}" for lang in self.recipe.langs)
        return source, target


def make_raw(job: Job, out: Path) -> Any:
    """Download and check the archives, and extract their texts: ``raw/PART.LANG``."""
    archives = {}
    for split, parts in job.parts.items():
        for part in parts:
            part.files(job.recipe.langs)
            if split == "train" or not job.sacrebleu:
                archives[part.name] = fetch(part, job.archives, job.recipe.langs)
    out.mkdir()
    counts: Dict[str, Any] = {}
    all_parts = [part for parts in job.parts.values() for part in parts]
    with Bar("extract", len(all_parts), "parts") as bar:
        for part in all_parts:
            extract.write_parts(archives, [part], job.recipe.langs, out)
            lines = [text.count_lines(path) for path in job.pair(out, part.name)]
            if lines[0] != lines[1] or not lines[0]:
                raise UserError(
                    f"{archives.get(part.name, part.name)}: {part.name} has {lines[0]:,} and "
                    f"{lines[1]:,} lines in its two languages, but both should have the same number"
                )
            counts[part.name] = asdict(Report(seen=lines[0], kept=lines[0]))
            bar.update(1)
    return counts


def make_text(job: Job, options: TextOptions, sources: Dict[str, List[Pair]], out: Path) -> Any:
    """The raw sentences: readable, one per line, parallel; normalised if asked."""
    out.mkdir()
    recipe = job.recipe
    if options.trees:
        return make_sides_of_trees(job, options, sources, out)
    counts: Dict[str, Any] = {}
    all_pairs = [pair for pairs in sources.values() for pair in pairs]
    with Bar("text", count_pairs(all_pairs)) as bar:
        for split, pairs in sources.items():
            report = Report()
            held = job.pair(out, "valid") if split == "train" and options.valid_every else ()
            limits = pairs_per_part(options.limit, split, len(pairs))
            for pair, limit in zip(pairs, limits, strict=True):
                make = partial(
                    Sentences,
                    names=(str(pair[0]), str(pair[1])),
                    langs=recipe.langs,
                    clean_up=recipe.cleaned(split),
                    lenient=bool(recipe.archives) and split == "train",
                    normalise=options.normalise in ("all", split),
                    valid_every=options.valid_every if split == "train" else None,
                    before=report.seen,
                )
                targets = job.pair(out, split)
                parts = chunks(pair, limit)
                report.add(transform(make, parts, targets, job.workers, bar.update, held))
            counts[split] = asdict(report)
            if held:
                counts["valid"] = asdict(Report(seen=report.held_out, kept=report.held_out))
    check(job, counts, "non-empty sentences")
    return counts


def make_sides_of_trees(
    job: Job, options: TextOptions, sources: Dict[str, List[Pair]], out: Path
) -> Any:
    """Each tree's words, its brackets and, to compare parses with, the whole tree: SET.ptb."""
    counts = {}
    for split, ((path, _),) in sources.items():
        parsed = trees.read_trees(path)[: options.limit if split == "train" else None]
        words, brackets = job.pair(out, split)
        text.write_lines(words, (" ".join(tree.words) for tree in parsed))
        sequences = (trees.linearise(tree, options.keep_tags) for tree in parsed)
        text.write_lines(brackets, map(" ".join, sequences))
        text.write_lines(out / f"{split}.ptb", map(trees.penn_brackets, parsed))
        counts[split] = asdict(Report(seen=len(parsed), kept=len(parsed)))
    return counts


def pairs_per_part(limit: Optional[int], split: str, parts: int) -> List[Optional[int]]:
    """How many pairs to take from each part: ``limit`` for the training set, divided evenly."""
    if limit is None or split != "train":
        return [None] * parts
    return [limit // parts + (n < limit % parts) for n in range(parts)]


def make_tokens(job: Job, options: TokenOptions, out: Path) -> Any:
    """Moses tokens (or the text, if it is already tokenised), within the limits on words.

    The text as it is for SentencePiece.
    """
    raw = options.subword == SENTENCEPIECE
    langs = None if options.tokenised or raw else job.recipe.langs
    for lang in langs or ():
        if lacks_rules(lang):
            print(f"Moses has no rules for '{lang}': using those for English", file=sys.stderr)
    if langs:
        warn_of_unspaced(job)

    def make(split: str) -> Maker:
        source, target = job.pair(job.folder / "text", split)
        return partial(
            Tokens,
            split,
            langs,
            options.split_hyphens,
            options.straight_test_apostrophes and split == "test",
            options.limits.get(split),
            None if raw else (str(source), str(target)),
        )

    return transform_each_set(job, job.folder / "text", out, "tokenise", make)


def warn_of_unspaced(job: Job) -> None:
    """Say what to do about text that Moses cannot split, judging by its first lines."""
    for path in job.pair(job.folder / "text", job.recipe.splits[0]):
        if hardly_spaced(islice(text.read_lines(path), LOOKED_AT)):
            print(
                f"warning: {path} has hardly any spaces, at which Moses splits words: prepare it "
                f"with --subword {SENTENCEPIECE}, which needs none",
                file=sys.stderr,
            )
            return


def make_codes(job: Job, options: CodesOptions, out: Path) -> Any:
    """The joint BPE, learned on the training text of both languages; or taken from other text.

    Of trees, it is that of the words. Or the joint model of SentencePiece.
    """
    if job.like:
        shutil.copyfile(job.like.codes, out)
    sources = job.pair(job.folder / "tok", "train")[: 1 if options.trees else 2]
    if options.subword == SENTENCEPIECE:
        if not job.like:
            with Bar("learn pieces", None, "lines") as bar:
                pieces.learn(sources, out, options.bpe, bar.update)
        return {"pieces, with bytes and symbols": pieces.load(out).get_piece_size()}
    if job.like:
        return {"merges": text.count_lines(out) - 1}
    types = options.bpe_counts == "types"
    bpe.learn(sources, out, options.bpe, types, job.workers)
    merges = text.count_lines(out) - 1
    fewer = not types and merges < options.bpe
    why = f" ({options.bpe:,} asked for; no other two symbols meet twice)" if fewer else ""
    return {f"merges{why}": merges}


def make_bpe(job: Job, options: SubwordOptions, out: Path) -> Any:
    """The BPE applied, within the limits on subwords; or SentencePiece's model."""
    learned = job.folder / KINDS[options.subword].in_data

    def make(split: str) -> Maker:
        limits = options.limits.get(split)
        if options.subword == SENTENCEPIECE:
            return partial(pieces.Pieces, split, learned, limits)
        return partial(bpe.Subwords, split, learned, limits, not options.trees)

    return transform_each_set(job, job.folder / "tok", out, "apply BPE", make)


def make_data_bin(job: Job, options: BinaryOptions, out: Path) -> Any:
    """fairseq's binary form, with one dictionary; of trees, with one for each side.

    With SentencePiece the dictionary has all of its pieces, in its order.
    """
    recipe, source = job.recipe, job.folder / "bpe"
    dictionary = job.like.dictionary if job.like else None
    if options.subword == SENTENCEPIECE and not dictionary:
        dictionary = out.with_name("dict.txt")  # it vanishes with the folder of what is being made
        pieces.write_dictionary(job.folder / KINDS[SENTENCEPIECE].in_data, dictionary)
    files = [path for split in recipe.splits for path in job.pair(source, split)]
    with Bar("binarise", binarise.expected_bytes(files), "bytes") as bar:
        binarise.binarise(
            source,
            out,
            recipe.langs,
            recipe.splits,
            job.workers,
            options.dictionary,
            bar.update,
            dictionary,
            joined=not options.trees,
        )
    report = {"types": text.count_lines(out / f"dict.{recipe.source_lang}.txt")}
    for name, (unknown, total) in binarise.count_unknown(out, recipe.langs, recipe.splits).items():
        if unknown:
            report[f"unknown in {name}"] = unknown
        if unknown > total * MOSTLY_KNOWN:
            print(
                f"warning: {unknown:,} of the {total:,} subwords of {name} are unknown to the "
                "dictionary of the training text: is it the same language and alphabet?",
                file=sys.stderr,
            )
    return report


def transform_each_set(
    job: Job, source: Path, out: Path, title: str, make: Callable[[str], Maker]
) -> Dict[str, Any]:
    """Run the function that ``make(set)`` returns over every set, under one bar."""
    out.mkdir()
    counts = {}
    pairs = {split: job.pair(source, split) for split in job.recipe.splits}
    with Bar(title, count_pairs(list(pairs.values()))) as bar:
        for split, pair in pairs.items():
            targets = job.pair(out, split)
            report = transform(make(split), chunks(pair), targets, job.workers, bar.update)
            counts[split] = asdict(report)
    check(job, counts, "sentences within the limits")
    return counts


def count_pairs(pairs: Sequence[Pair]) -> int:
    """The number of pairs in all files."""
    return sum(text.count_lines(pair[0]) for pair in pairs)


def check(job: Job, counts: Dict[str, Any], what: str) -> None:
    """Raises UserError if a set has no pair left."""
    for split, report in counts.items():
        if not report["kept"]:
            share = job.recipe.valid_every
            hint = f" (one in {share:,} is held out for it)" if split == "valid" and share else ""
            raise UserError(f"the {split} set of {job.folder} has no pair of {what}{hint}")


# ---- what is said of a finished stage -------------------------------------------------------


def say_what_was_made(job: Job, name: str, report: Any, spent: Tuple[float, float]) -> None:
    """Say what a stage did: counts by set, beside the expected ones, pairs per second, memory.

    ``spent``: elapsed seconds, and CPU seconds of all processors together.
    """
    counts = {k: Report(**v) for k, v in (report or {}).items() if isinstance(v, dict)}
    seen = sum(report_of_split.seen for report_of_split in counts.values())
    cost = f"{spent[0]:.0f} s" + (f", {seen / max(spent[0], 1e-3):,.0f} pairs/s" if seen else "")
    cost += f"; {spent[1]:.0f} s of CPU; largest process {peak_megabytes():,.0f} MB"
    print(f"{job.folder / name}: made ({cost})", file=sys.stderr)
    for split, report_of_split in counts.items():
        expected = (job.recipe.expected or {}).get(f"{name}/{split}")
        beside = ""
        if expected and job.recipe.limit is None:
            off = abs(report_of_split.kept - expected) > expected / 100
            see = f": more than 1 % off, see {DOCS / 'wmt14-data.md'}" if off else ""
            beside = f" (expected {expected:,}{see})"
        print(f"  {split}: {report_of_split.summary()}{beside}", file=sys.stderr)
    for key, value in (report or {}).items():
        if not isinstance(value, dict):
            print(f"  {key}: {value:,}", file=sys.stderr)


def show_dropped(name: str, report: Any, examples: int) -> None:
    """Print examples of the pairs that a stage left out, ``examples`` for each reason."""
    for split, of_split in (report or {}).items():
        for reason, shown in of_split["examples"].items() if isinstance(of_split, dict) else ():
            for place, source, target in shown[:examples]:
                print(f"{name}/{split}, {reason}: {place}\n    {source}\n    {target}")
