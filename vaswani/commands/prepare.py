"""Makes data/NAME from text: {text,tok,bpe}/{train,valid,test}.LANG, codes and data-bin.

    vaswani prepare demo_en_de                       text that comes with vaswani
    vaswani prepare multi30k_en_de --text FOLDER     a corpus you have
    vaswani prepare wmt14_en_de                      a public corpus (docs/wmt14-data.md)
    vaswani prepare --source-lang en --target-lang fr --train PREFIX --valid PREFIX
                    --test PREFIX --bpe 8000 --out data/mine        your own (PREFIX.en, PREFIX.fr)
    vaswani prepare --like data/mine --test PREFIX --out data/more  the same codes and dictionary
    vaswani prepare trees --train FILE --valid FILE --test FILE     a treebank, for parsing

Each stage (raw, for archives; text, tok, codes, bpe, data-bin) is skipped if its result exists for
the same inputs and options. Text is streamed through --workers processes. A file in the way of a
result that this command did not make, or that has changed since, is kept under the name …kept-1.
"""

import contextlib
import re
import shlex
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from vaswani.common import signals
from vaswani.common.artifact import key_of, writing
from vaswani.common.environment import cores
from vaswani.common.errors import UserError
from vaswani.common.files import locked, sha256_of
from vaswani.common.options import argument, option, stage_named
from vaswani.common.processes import limit_workers
from vaswani.common.usage import cpu_seconds
from vaswani.data import pieces, stage, steps, text
from vaswani.data.inputs import check_places, source_files
from vaswani.data.manifest import choose, find_manifest, read_manifest
from vaswani.data.recipe import Recipe, find_recipe, recipe_from, write_recipe
from vaswani.data.stage_options import (
    BinaryOptions,
    CodesOptions,
    StageOptions,
    SubwordOptions,
    TextOptions,
    TokenOptions,
    limits_of,
)
from vaswani.data.steps import Job, Pair
from vaswani.data.subwords import KINDS, SENTENCEPIECE
from vaswani.experiment.find import file_stem, known_configs
from vaswani.model_folder.reused_codes import find_like, recipe_like, reused_codes

#: other names for the work of a stage
ALSO_CALLED = {
    "download": "raw",
    "verify": "raw",
    "extract": "raw",
    "normalise": "text",
    "clean": "text",
    "tokenise": "tok",
    "learn-bpe": "codes",
    "codes": KINDS[SENTENCEPIECE].in_data,
    "apply-bpe": "bpe",
    "binarise": "data-bin",
}


class Stage(NamedTuple):
    """A folder (or file) of data/NAME, what it depends on besides the one before, and its maker."""

    name: str
    options: Optional[StageOptions]
    make: Callable[[Path], Any]

    def key(self, before: str) -> str:
        """What its output is recognised by; ``before`` is the key of the stage before it."""
        return key_of([before, self.name, self.options and self.options.in_key()])


@dataclass(frozen=True, kw_only=True)
class Options:
    """A name, or the six options for one's own text; and how to process it."""

    name: Optional[str] = argument(help="an experiment or a recipe of configs/data", default=None)
    text: Optional[str] = option(metavar="FOLDER", help="where the recipe's text files are")
    out: Optional[str] = option(metavar="DIR", help="where to put the result (default: data/NAME)")
    source_lang: Optional[str] = option(metavar="LANG", help="the ending of the source files")
    target_lang: Optional[str] = option(metavar="LANG", help="the ending of the target files")
    train: Optional[str] = option(metavar="PREFIX", help="your training text: PREFIX.LANG")
    valid: Optional[str] = option(metavar="PREFIX", help="your validation text: PREFIX.LANG")
    test: Optional[str] = option(metavar="PREFIX", help="your test text: PREFIX.LANG")
    like: Optional[str] = option(
        metavar="DATA|RUN|MODEL", help="use the codes, dictionary and recipe of other text"
    )
    tokenised: bool = option(False, "your text is already tokenised")
    keep_tags: bool = option(False, "trees: keep part-of-speech tags, instead of XX for each")
    subword: Optional[str] = option(
        choices=list(KINDS),
        help="what splits text: subword_nmt, BPE of Moses' tokens (the default), or sentencepiece, "
        "which needs no spaces between words",
    )
    bpe: Optional[int] = option(
        metavar="N", help="merges of the joint BPE; with sentencepiece, the number of pieces"
    )
    max_words: Optional[int] = option(metavar="N", help="leave out longer pairs")
    ratio: Optional[float] = option(metavar="R", help="highest ratio of longer to shorter side")
    limit: Optional[int] = option(metavar="PAIRS", help="a trial with this many pairs")
    workers: int = option(factory=cores, metavar="N", help="processes (default: all cores)")
    start: Optional[str] = option(flag="--from", metavar="STAGE", help="redo from this stage on")
    if_missing: bool = option(False, "do nothing where data-bin is complete, from any text")
    show_dropped: int = option(0, "show N examples of pairs left out", metavar="N")
    archives: str = option("data/archives", "downloads (default: data/archives)", metavar="DIR")
    manifest: Optional[str] = option(metavar="FILE", help="other URLs for the archives")
    test_sets: str = option("archives", "their source", choices=["archives", "sacrebleu"])


def run(options: Options) -> int:
    """Prepare what the arguments name."""
    folder = Path(options.text) if options.text else None
    job = job_of(options)
    data_bin = job.folder / "data-bin"
    made = stage.outputs_of(data_bin)
    if options.if_missing and made.are_made(made.table().get("key", "")):
        print(f"{data_bin}: already prepared", file=sys.stderr)
        return 0
    prepare(job, folder, options.start, options.show_dropped)
    if "train" in job.recipe.splits:
        print(f"next: {next_command(job, options.name)}", file=sys.stderr)
    return 0


def next_command(job: Job, name: Optional[str]) -> str:
    """The command that follows: an experiment on this data is trained, else one is made for it."""
    for experiment in (name or "", job.folder.name):
        with contextlib.suppress(UserError):
            if (
                file_stem(experiment) in known_configs()
                and find_recipe(experiment)[1] == job.folder
            ):
                return f"vaswani train {experiment}"
    new = job.folder.name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", job.folder.name) else "mine"
    return shlex.join(["vaswani", "new", new, "--data", str(job.folder)])


def job_of(options: Options) -> Job:
    """What the arguments name: a recipe or one's own text, the output folder, and the archives.

    Raises:
        UserError: an unknown recipe, or invalid options.
    """
    own = {item.name: getattr(options, item.name, None) for item in fields(Recipe)}
    own["tokenised"] = options.tokenised or None
    own["keep_tags"] = options.keep_tags or None
    own["archives"] = None  # the option of this name says where they are
    own["like"] = None
    for name, least in (("workers", 1), ("show_dropped", 0)):
        if getattr(options, name) < least:
            problem = f"--{name.replace('_', '-')} is {getattr(options, name)}"
            raise UserError(f"{problem}, but must be at least {least}")
    workers = limit_workers(options.workers)
    like = None
    if options.like:
        if options.name or not options.out:
            raise UserError("--like is for your own text: give --out DIR, and no recipe name")
        before = find_like(options.like)
        like, folder = reused_codes(before), Path(options.out)
        recipe = recipe_like(options.like, before, own)
    elif options.name is None:
        if not options.out:
            raise UserError("give the name of a recipe, or your own text with --out DIR")
        recipe, folder = recipe_from(own, "the arguments"), Path(options.out)
    else:
        recipe, folder = find_recipe(options.name)
        changed = {key: value for key, value in own.items() if value is not None}
        recipe = recipe_from({**asdict(recipe), **changed}, f"recipe {options.name} with options")
        folder = Path(options.out) if options.out else folder
        like = reused_codes(find_like(recipe.like)) if recipe.like else None
    if options.text and recipe.archives:
        raise UserError("--text names a folder of text files, but this recipe uses none")
    if recipe.trees and not (recipe.train and recipe.valid):
        raise UserError(
            "give --train FILE and --valid FILE: trees in Penn brackets, one whole tree a line"
        )
    if recipe.subword == SENTENCEPIECE:
        pieces.library()  # raises now, not after the first stages
    if recipe.keep_tags and not recipe.trees:
        raise UserError("--keep-tags is for trees: vaswani prepare trees --train FILE …")
    if not recipe.archives and (options.manifest or options.test_sets != "archives"):
        raise UserError("--manifest and --test-sets are for archives, but these are text files")
    parts, read = {}, {}
    if like:
        read.update({"codes": like.codes, "dictionary": like.dictionary})
    if options.name and Path(options.name).is_file():
        read["recipe"] = Path(options.name)
    if recipe.archives:
        read["manifest"] = find_manifest(options.manifest or recipe.archives)
        manifest = read_manifest(str(read["manifest"]))
        for split in text.SPLITS:
            if recipe.parts(split):
                parts[split] = choose(manifest, recipe.parts(split), f"the recipe's {split} set")
    sacrebleu = options.test_sets == "sacrebleu"
    return Job(recipe, folder, workers, parts, Path(options.archives), sacrebleu, like, read)


def prepare(job: Job, text_folder: Optional[Path], start: Optional[str], examples: int) -> None:
    """Run the stages, each only if needed; ``start`` and those after it in any case.

    Raises:
        UserError: text is missing, damaged or not parallel, or is where it would be overwritten.
    """
    if text_folder is not None and not text_folder.is_dir():
        raise UserError(f"there is no folder {text_folder} to take the text from")
    key, stages, sources = plan_stages(job, text_folder)
    redo = stage_named(start, [step.name for step in stages], ALSO_CALLED) if start else len(stages)
    check_places(job, [step.name for step in stages], sources)
    lock = job.folder / stage.STAGES / "lock"
    with writing(lock.parent, "--out"), locked(lock, f"{job.folder} is being prepared"):
        for left in stages[redo:]:
            stage.outputs_of(job.folder / left.name).redo()
        # downloads continue where they stopped
        signals.set_resumable(lambda: bool(job.parts) and any(job.archives.glob("*")))
        ran = run_stages(job, key, stages, examples, bool(start))
        write_recipe(job.recipe, job.folder)
    if not ran:
        print(f"{job.folder}: already prepared from the same text and options", file=sys.stderr)


def run_stages(job: Job, key: str, stages: List[Stage], examples: int, redone: bool) -> bool:
    """Run the stages that are not done; ``key`` is that of the first stage's input.

    ``redone``: whether ``--from`` was given, and so the stages that run would run again.

    Returns:
        Whether there was anything to do.
    """
    ran = False
    for step in stages:
        key = step.key(key)
        output, begun, used = job.folder / step.name, time.monotonic(), cpu_seconds()
        if stage.run_stage(output, key, step.make):
            ran = True
            spent = (time.monotonic() - begun, cpu_seconds() - used)
            steps.say_what_was_made(
                job, step.name, stage.outputs_of(output).table()["report"], spent
            )
        if not (ran and redone):  # else the same command does it again
            signals.set_resumable(lambda: True)
        steps.show_dropped(step.name, stage.outputs_of(output).table().get("report"), examples)
    return ran


def plan_stages(
    job: Job, text_folder: Optional[Path]
) -> Tuple[str, List[Stage], Dict[str, List[Pair]]]:
    """The key of a job's input, its stages in order, and the texts of each set."""
    recipe, stages = job.recipe, []
    sources: Dict[str, List[Pair]] = {}
    if job.parts:
        named = [part for parts in job.parts.values() for part in parts]
        known = [[p.name, p.files(recipe.langs), p.sources[0].sha256] for p in named]
        key = key_of([recipe.langs, known, job.sacrebleu])
        stages.append(Stage("raw", None, lambda out: steps.make_raw(job, out)))
        for split, parts in job.parts.items():
            sources[split] = [job.pair(job.folder / "raw", part.name) for part in parts]
    else:
        sources = source_files(recipe, text_folder or Path())
        hashes = {s: [[sha256_of(p) for p in pair] for pair in own] for s, own in sources.items()}
        key = key_of([recipe.langs, hashes])

    codes, dictionary = job.like.hashes if job.like else (None, None)
    at_text = TextOptions.from_recipe(recipe)
    at_tok = TokenOptions.from_recipe(recipe, limits=limits_of(recipe, "tok"))
    at_codes = CodesOptions.from_recipe(recipe, codes_sha256=codes)
    at_bpe = SubwordOptions.from_recipe(recipe, limits=limits_of(recipe, "bpe"))
    at_data_bin = BinaryOptions.from_recipe(recipe, dictionary_sha256=dictionary)
    learned = KINDS[recipe.subword].in_data
    stages += [
        Stage("text", at_text, lambda out: steps.make_text(job, at_text, sources, out)),
        Stage("tok", at_tok, lambda out: steps.make_tokens(job, at_tok, out)),
        Stage(learned, at_codes, lambda out: steps.make_codes(job, at_codes, out)),
        Stage("bpe", at_bpe, lambda out: steps.make_bpe(job, at_bpe, out)),
        Stage("data-bin", at_data_bin, lambda out: steps.make_data_bin(job, at_data_bin, out)),
    ]
    return key, stages, sources
