"""The stages of ``vaswani prepare``: raw → text → tok → codes → bpe → data-bin.

A stage is a function that gets the job and the path that it is to write. It returns a report: for
each set, the number of pairs read, kept, held out, and left out for each reason. It runs again if
the stage before it has changed, or a field of the recipe that :func:`stages_of` names beside it.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from vaswani.common import signals
from vaswani.common.files import atomic_write, sha256_of
from vaswani.common.outputs import key_of
from vaswani.common.progress import stage_bar
from vaswani.data import archives as corpora
from vaswani.data import binarise, bpe, corpus, pieces, round_trip, text, trees
from vaswani.data.pairs import (
    Report,
    Work,
    cleaning_work,
    dropout_work,
    limits_of,
    splitting_work,
    tokenising_work,
    transform,
)
from vaswani.data.stage_report import (
    StageReport,
    check_not_blank,
    check_not_empty,
    report_from_json,
    report_to_json,
    say_what_was_made,
    show_dropped,
    warn_of_unspaced,
)
from vaswani.folders.data_bin import DATA_BIN, DataBin
from vaswani.folders.prepared_text import (
    RAW,
    RECIPE_FILE,
    SUBWORDS,
    TEXT,
    TOK,
    PreparedText,
    sides_in,
    trees_in,
)
from vaswani.folders.recipe import SENTENCEPIECE, Recipe

Pair = tuple[Path, Path]
#: the share of a set's subwords that may be unknown without a warning
MAX_UNKNOWN_SHARE = 0.1


@dataclass(frozen=True)
class Job:
    """One run of ``vaswani prepare``."""

    recipe: Recipe
    #: data/NAME
    prepared: PreparedText
    #: number of processes
    workers: int
    #: the files of each set; empty where they come from archives
    sources: dict[str, list[Pair]]
    #: of each set, the parts of the manifest (``archives.Part``); empty without archives
    parts: dict[str, list[Any]] = field(default_factory=dict)
    #: the folder of archives, to which missing ones are downloaded
    archives: Path = Path("data/archives")
    #: other files that are read: "recipe", "manifest"; "codes" and "dictionary", if those of other
    #: text are to be used
    read: dict[str, Path] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """data/NAME, as a path."""
        return self.prepared.folder

    def pair(self, folder: Path, split: str) -> Pair:
        """Return the two files of a set."""
        return sides_in(folder, split, self.recipe.langs)

    @property
    def learned(self) -> Path:
        """The file of codes, or of SentencePiece's model."""
        return self.prepared.subword_file(self.recipe.subword)

    def hash_of(self, what: str) -> str | None:
        """Return the hash of one of the job's other files; None if the job does not read it."""
        return sha256_of(self.read[what]) if what in self.read else None

    def source_key(self) -> str:
        """Return a hash of the job's input, by which a later command recognises it."""
        if not self.parts:
            hashes = {
                split: [[sha256_of(path) for path in pair] for pair in pairs]
                for split, pairs in self.sources.items()
            }
            return key_of([self.recipe.langs, hashes])
        named = [part for parts in self.parts.values() for part in parts]
        parts = [[p.name, p.files(self.recipe.langs), p.sources[0].sha256] for p in named]
        return key_of([self.recipe.langs, parts, False])  # in keys of earlier versions, too


class Stage(NamedTuple):
    """A file or folder of data/NAME, the function that makes it, and the fields it depends on.

    Fields are those of the recipe, and ``limits``, those on the pairs after the stage;
    ``codes_sha256`` and ``dictionary_sha256``, of files made from other text.
    """

    name: str
    make: Callable[[Job, Path], StageReport]
    fields: tuple[str, ...]

    def key(self, job: Job, before: str) -> str:
        """Return a hash of the stage's input and options; ``before``: that of the stage before."""
        if not self.fields:
            return key_of([before, self.name, None])
        values = {
            **asdict(job.recipe),
            "limits": {split: asdict(o) for split, o in limits_of(job.recipe, self.name).items()},
            "codes_sha256": job.hash_of("codes"),
            "dictionary_sha256": job.hash_of("dictionary"),
        }
        return key_of([before, self.name, {name: values[name] for name in self.fields}])


def stages_of(job: Job) -> list[Stage]:
    """Return the stages of a job, in order."""
    recipe = job.recipe

    def added(*names: str) -> tuple[str, ...]:
        """Return the keys that text of earlier versions lacks."""
        return tuple(name for name in names if getattr(recipe, name) != getattr(Recipe, name))

    dropout = ("bpe_dropout", "copies") if recipe.bpe_dropout is not None else ()
    cleaned = ("normalise", "valid_every", "limit", "trees", "keep_tags", *added("unicode"))
    tokens = ("tokenised", "split_hyphens", "straight_test_apostrophes", "limits", "subword")
    codes = ("bpe", "bpe_counts", "codes_sha256", "trees", "subword", *added("split_digits"))
    return [
        *([Stage(RAW, make_raw, ())] if job.parts else []),
        Stage(TEXT, make_text, cleaned),
        Stage(TOK, make_tokens, (*tokens, *added("lowercase", "text_rules"))),
        Stage(job.learned.name, make_codes, codes),
        Stage(SUBWORDS, make_bpe, ("limits", "trees", "subword", *dropout)),
        Stage(DATA_BIN, make_data_bin, ("dictionary", "dictionary_sha256", "trees", "subword")),
    ]


def run_stages(job: Job, redo: int, examples: int) -> bool:
    """Run the stages that are not done for this job, and write the recipe.

    Args:
        job: what to prepare
        redo: the number of the first stage that runs in any case, and all stages after it do
        examples: how many pairs that were left out to show for each reason

    Returns:
        Whether a stage has run.
    """
    key = job.source_key()
    ran = False
    stages = stages_of(job)
    for stage in stages[redo:]:
        job.prepared.outputs(stage.name).redo()
    for number, stage in enumerate(stages):
        made_from = {stages[number - 1].name: key} if number else {}
        key = stage.key(job, key)
        outputs = job.prepared.outputs(stage.name)
        begun = time.monotonic()
        with outputs.write(key) as draft:
            if not draft.is_made:
                draft.record["made_from"] = made_from
                report = stage.make(job, draft.path / stage.name)
                draft.record["report"] = report_to_json(report)
        if not draft.is_made:
            seconds = time.monotonic() - begun
            say_what_was_made(job.recipe, job.folder / stage.name, report, seconds)
            ran = True
        if not ran or redo == len(stages):  # else the same command does it again
            signals.set_resumable(lambda: True)
        recorded = report_from_json(job.prepared.record(stage.name).report)
        for split, of_split in recorded.items():
            if isinstance(of_split, Report):
                show_dropped(f"{stage.name}/{split}", of_split, examples)
    write_recipe(job, key)
    return ran


def write_recipe(job: Job, key: str) -> None:
    """Write ``recipe.yaml``: how the data was made, and what a perfect system would get.

    What is restored is measured again if anything has changed: ``key`` is that of the last stage.
    """
    recipe = replace(job.recipe, restored_lines=None, restored_bleu=None)
    recipe_key = key_of([key, asdict(recipe)])
    outputs = job.prepared.outputs(RECIPE_FILE)
    with outputs.write(recipe_key) as draft:
        if draft.is_made:
            return
        measured = round_trip.measure_round_trip(recipe, job.prepared)
        if measured:
            recipe = replace(recipe, restored_lines=measured.lines, restored_bleu=measured.bleu)
            print("\n".join(measured.report()), file=sys.stderr)
        with atomic_write(draft.path / RECIPE_FILE) as out:
            out.write(yaml.safe_dump(asdict(recipe), sort_keys=False))


# ---- the stages -------------------------------------------------------------------------------


def make_raw(job: Job, out: Path) -> StageReport:
    """Download and check the archives, and extract their texts: ``raw/PART.LANG``."""
    all_parts = [part for parts in job.parts.values() for part in parts]
    for part in all_parts:
        part.files(job.recipe.langs)
    archives = [corpora.fetch(part, job.archives) for part in all_parts]
    out.mkdir()
    with stage_bar("extract", len(all_parts), "parts") as bar:
        for part, archive in zip(all_parts, archives, strict=True):
            corpora.extract(part, archive, job.recipe.langs, out)
            bar.update(1)
    return {p.name: text.count_lines(job.pair(out, p.name)[0]) for p in all_parts}


def make_text(job: Job, out: Path) -> StageReport:
    """Write the raw sentences: readable, one per line, parallel; normalised if requested."""
    out.mkdir()
    recipe = job.recipe
    counts: StageReport = {}
    if recipe.trees:
        for split, ((path, _),) in job.sources.items():
            limit = recipe.limit if split == "train" else None
            sides = job.pair(out, split)
            whole_trees = trees_in(out, split)
            number = trees.write_sides(path, sides, whole_trees, recipe.keep_tags, limit)
            counts[split] = Report(seen=number, kept=number)
        return counts
    raw_text = job.prepared.stage(RAW)
    raw = {s: [job.pair(raw_text, p.name) for p in ps] for s, ps in job.parts.items()}
    sources = raw or job.sources
    all_pairs = [pair for pairs in sources.values() for pair in pairs]
    with stage_bar("text", count_pairs(all_pairs)) as bar:
        for split, pairs in sources.items():
            report = Report()
            held = job.pair(out, "valid") if split == "train" and recipe.valid_every else ()
            whole, extra = divmod(recipe.limit or 0, len(pairs))
            limited = recipe.limit is not None and split == "train"
            normalised = recipe.normalise in ("all", split)
            for number, pair in enumerate(pairs):
                make = partial(
                    cleaning_work,
                    replace(recipe.text, normalise="all" if normalised else "none"),
                    names=(str(pair[0]), str(pair[1])),
                    clean_up=recipe.is_cleaned(split),
                    lenient=bool(recipe.archives) and split == "train",
                    valid_every=recipe.valid_every if split == "train" else None,
                    before=report.seen,
                )
                limit = whole + (number < extra) if limited else None  # divided evenly
                targets = [*job.pair(out, split), *held]
                parts = text.chunks(pair, limit)
                report.add(transform(make, parts, targets, job.workers, bar.update))
            counts[split] = report
            if held:
                counts["valid"] = Report(seen=report.held_out, kept=report.held_out)
    check_not_empty(job.recipe, job.folder, counts, "non-empty sentences")
    for split in sources:
        check_not_blank(job.pair(out, split))
    if "train" in counts:
        held_out = {split: job.pair(out, split) for split in counts if split != "train"}
        counts.update(corpus.count(job.pair(out, "train"), held_out, recipe.tokenised))
    return counts


def make_tokens(job: Job, out: Path) -> StageReport:
    """Split text into Moses tokens, and leave out pairs outside the limits on words.

    Text that is tokenised already, and text for SentencePiece, stays as it is.
    """
    recipe = job.recipe
    source = job.prepared.stage(TEXT)
    if recipe.text.tokeniser == "moses":
        warn_of_unspaced(job.pair(source, recipe.splits[0]))
    limits = limits_of(recipe, "tok")

    def make(split: str) -> list[Callable[[], Work]]:
        straight = recipe.straight_test_apostrophes and split == "test"
        how = replace(recipe.text, straight_apostrophes=straight)
        first, second = map(str, job.pair(source, split))
        return [partial(tokenising_work, how, split, limits.get(split), (first, second))]

    return transform_each_set(job, source, out, "tokenise", make)


def make_codes(job: Job, out: Path) -> StageReport:
    """Learn the joint BPE, or the joint model of SentencePiece, and report its size.

    It is learned on the training text of both languages, or taken from other text. With trees, BPE
    is learned on the words alone.
    """
    recipe = job.recipe
    sources = job.pair(job.prepared.stage(TOK), "train")[: 1 if recipe.trees else 2]
    shared = job.read.get("codes")
    if shared:
        shutil.copyfile(shared, out)
    if recipe.subword == SENTENCEPIECE:
        if not shared:
            with stage_bar("learn pieces", None, "lines") as bar:
                pieces.learn(sources, out, recipe.bpe, bar.update, recipe.split_digits)
        return {"pieces, with bytes and symbols": pieces.load(out).get_piece_size()}
    types = recipe.bpe_counts == "types"
    if not shared:
        bpe.learn(sources, out, recipe.bpe, types, job.workers, recipe.split_digits)
    merges = text.count_lines(out) - 1
    fewer = not shared and not types and merges < recipe.bpe
    why = f" ({recipe.bpe:,} asked for; no other two symbols meet twice)" if fewer else ""
    return {f"merges{why}": merges}


def make_bpe(job: Job, out: Path) -> StageReport:
    """Split the text into subwords, by BPE or SentencePiece, within the limits on subwords.

    With BPE-dropout, the training text is split several times, differently each time.
    """
    recipe = job.recipe
    limits = limits_of(recipe, "bpe")

    def make(split: str) -> list[Callable[[], Work]]:
        both = not recipe.trees
        options = (recipe.text, split, job.learned, limits.get(split), both)
        if split != "train" or recipe.bpe_dropout is None:
            return [partial(splitting_work, *options)]
        return [
            partial(dropout_work, *options, dropout=recipe.bpe_dropout, copy=copy)
            for copy in range(recipe.copies)
        ]

    return transform_each_set(job, job.prepared.stage(TOK), out, "apply BPE", make)


def make_data_bin(job: Job, out: Path) -> StageReport:
    """Write fairseq's binary form, with one dictionary; with trees, one for each side.

    With SentencePiece the dictionary has all of its pieces, in the model's order.
    """
    recipe = job.recipe
    dictionary = job.read.get("dictionary")
    if recipe.subword == SENTENCEPIECE and not dictionary:
        dictionary = out.with_name("dict.txt")  # no output: it is deleted with the folder
        pieces.write_dictionary(job.learned, dictionary)
    counts = binarise.binarise(job.prepared.stage(SUBWORDS), out, recipe, job.workers, dictionary)
    types = text.count_lines(DataBin(out).dictionary(recipe.source_lang))
    report: StageReport = {"types": types}
    for name, (unknown, total) in counts.items():
        if unknown:
            report[f"unknown in {name}"] = unknown
        if unknown > total * MAX_UNKNOWN_SHARE:
            print(
                f"warning: {unknown:,} of the {total:,} subwords of {name} are unknown to the "
                "dictionary of the training text: is it the same language and alphabet?",
                file=sys.stderr,
            )
    return report


def transform_each_set(
    job: Job, source: Path, out: Path, title: str, make: Callable[[str], list[Callable[[], Work]]]
) -> StageReport:
    """Transform each set by each work that ``make(set)`` lists, in order, with one progress bar."""
    out.mkdir()
    counts: StageReport = {}
    works = {split: make(split) for split in job.recipe.splits}
    pairs = [job.pair(source, split) for split, each in works.items() for _ in each]
    with stage_bar(title, count_pairs(pairs)) as bar:
        for split, each in works.items():
            report = Report()
            for work in each:
                parts = text.chunks(job.pair(source, split))
                targets = job.pair(out, split)
                report.add(transform(work, parts, targets, job.workers, bar.update))
            counts[split] = report
    check_not_empty(job.recipe, job.folder, counts, "sentences within the limits")
    return counts


def count_pairs(pairs: Sequence[Pair]) -> int:
    """Return the number of pairs in all of these files."""
    return sum(text.count_lines(pair[0]) for pair in pairs)
