"""Makes data/NAME from text: {text,tok,bpe}/{train,valid,test}.LANG, codes and data-bin.

    vaswani prepare demo_en_de                       generated text
    vaswani prepare multi30k_en_de --text FOLDER     a corpus you have
    vaswani prepare wmt14_en_de                      a public corpus (docs/wmt14-data.md)
    vaswani prepare --source-lang en --target-lang fr --train PREFIX --valid PREFIX
                    --test PREFIX --bpe 8000 --out data/mine        your own (PREFIX.en, PREFIX.fr)
    vaswani prepare --like data/mine --test PREFIX --out data/more  the same codes and dictionary

Each stage (raw, of archives; text, tok, codes, bpe, data-bin) is skipped where its result is there
for the same inputs and options. Text is streamed, over --workers processes. What is in the way of a
result and was not made by this command, or was changed since, is kept under the name …kept-1.
"""

import argparse
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from vaswani.corpus import phrases, plan, stage, steps, text
from vaswani.corpus.bar import cpu_seconds
from vaswani.corpus.inputs import check_places, refuse_changed, source_files, stamps
from vaswani.corpus.like import find_like, recipe_like, taken_over
from vaswani.corpus.manifest import choose, find_manifest, read_manifest
from vaswani.corpus.parallel import affordable, cores
from vaswani.corpus.recipe import Recipe, find_recipe, recipe_from
from vaswani.corpus.recipe_file import write_recipe
from vaswani.corpus.steps import Job, Pair
from vaswani.corpus.summary import show_dropped, tell
from vaswani.errors import UserError
from vaswani.experiment import nearest
from vaswani.files import locked, sha256_of

#: the work that a stage does, by the names one might give it
ALSO_CALLED = {
    "download": "raw",
    "verify": "raw",
    "extract": "raw",
    "normalise": "text",
    "clean": "text",
    "tokenise": "tok",
    "learn-bpe": "codes",
    "apply-bpe": "bpe",
    "binarise": "data-bin",
}


class Stage(NamedTuple):
    """A folder (or file) of data/NAME, what it depends on besides the one before, its function."""

    name: str
    options: Any
    make: Callable[[Path], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A name, or the six options of one's own text; and how to go about it."""
    parser.add_argument("name", nargs="?", help="an experiment or a recipe of configs/data")
    parser.add_argument("--text", metavar="FOLDER", help="where the recipe's text files lie")
    parser.add_argument("--out", metavar="DIR", help="where to put the result (data/NAME)")
    parser.add_argument("--source-lang", metavar="LANG")
    parser.add_argument("--target-lang", metavar="LANG")
    for split in text.SPLITS:
        parser.add_argument(f"--{split}", metavar="PREFIX", help=f"your {split} text: PREFIX.LANG")
    parser.add_argument(
        "--like",
        metavar="DATA|RUN|MODEL",
        help="with the codes, dictionary and recipe of other text",
    )
    parser.add_argument("--tokenised", action="store_true", help="your text is tokens already")
    parser.add_argument("--bpe", type=int, metavar="N", help="merges of the joint BPE")
    parser.add_argument("--max-words", type=int, metavar="N", help="leave longer pairs out")
    parser.add_argument("--ratio", type=float, metavar="R", help="longest by shortest side")
    parser.add_argument("--limit", type=int, metavar="PAIRS", help="a trial with so many pairs")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        default=cores(),
        help="processes (all cores)",
    )
    parser.add_argument("--from", dest="start", metavar="STAGE", help="redo from this stage on")
    parser.add_argument(
        "--show-dropped", type=int, default=0, metavar="N", help="examples of pairs left out"
    )
    parser.add_argument(
        "--archives", metavar="DIR", default="data/archives", help="downloads (data/archives)"
    )
    parser.add_argument("--manifest", metavar="FILE", help="other addresses of the archives")
    parser.add_argument(
        "--test-sets", choices=["archives", "sacrebleu"], default="archives", help="where from"
    )


def run(args: argparse.Namespace) -> int:
    """Prepare what the arguments name."""
    folder = Path(args.text) if args.text else None
    prepare(job_of(args), folder, args.start, args.show_dropped)
    return 0


def job_of(args: argparse.Namespace) -> Job:
    """What the arguments name: a recipe, or one's own text; where to, and from which archives.

    Raises:
        UserError: an unknown recipe, or options that cannot be.
    """
    own = {item.name: getattr(args, item.name, None) for item in fields(Recipe)}
    own["tokenised"] = args.tokenised or None
    own["archives"] = None  # of that name there is an option, but it says where they lie
    own["like"] = None
    for option, least in (("workers", 1), ("show_dropped", 0)):
        if getattr(args, option) < least:
            said = f"--{option.replace('_', '-')} is {getattr(args, option)}"
            raise UserError(f"{said}, but must be at least {least}")
    workers = affordable(args.workers)
    like = None
    if args.like:
        if args.name or not args.out:
            raise UserError("--like takes your own text: no name of a recipe, but --out DIR")
        before = find_like(args.like)
        like, folder = taken_over(before), Path(args.out)
        recipe = recipe_like(args.like, before, own)
    elif args.name is None:
        if not args.out:
            raise UserError("give the name of a recipe, or your own text with --out DIR")
        recipe, folder = recipe_from(own, "the arguments"), Path(args.out)
    else:
        recipe, folder = find_recipe(args.name)
        changed = {key: value for key, value in own.items() if value is not None}
        recipe = recipe_from({**asdict(recipe), **changed}, f"recipe {args.name} with options")
        folder = Path(args.out) if args.out else folder
        like = taken_over(find_like(recipe.like)) if recipe.like else None
    if args.text and (recipe.generate or recipe.archives):
        raise UserError("--text names the folder of text files, but this recipe has none")
    if not recipe.archives and (args.manifest or args.test_sets != "archives"):
        raise UserError("--manifest and --test-sets are about archives, but these are text files")
    parts, read = {}, {}
    if like:
        read.update({"codes": like.codes, "dictionary": like.dictionary})
    if args.name and Path(args.name).is_file():
        read["recipe"] = Path(args.name)
    if recipe.archives:
        read["manifest"] = find_manifest(args.manifest or recipe.archives)
        manifest = read_manifest(str(read["manifest"]))
        for split in text.SPLITS:
            if recipe.parts(split):
                parts[split] = choose(manifest, recipe.parts(split), f"the recipe's {split} set")
    sacrebleu = args.test_sets == "sacrebleu"
    return Job(recipe, folder, workers, parts, Path(args.archives), sacrebleu, like, read)


def prepare(job: Job, text_folder: Optional[Path], start: Optional[str], examples: int) -> None:
    """Run the stages, each only where needed; ``start`` and those after it in any case.

    Raises:
        UserError: text that is missing, damaged or not parallel, or lies where it would be lost.
    """
    if text_folder is not None and not text_folder.is_dir():
        raise UserError(f"there is no folder {text_folder} to take the text from")
    key, stages, sources = plan_stages(job, text_folder)
    redo = position(stages, start) if start else len(stages)
    check_places(job, [step.name for step in stages], sources)
    lock = job.folder / stage.STAGES / "lock"
    with stage.space_for(lock.parent), locked(lock, f"{job.folder} is being prepared"):
        for left in stages[redo:]:
            stage.forget(job.folder / left.name)
        show_plan(job, sources, key, stages)
        ran = run_stages(job, key, stages, examples)
        write_recipe(job)
    if not ran:
        print(f"{job.folder}: already prepared from the same text and options", file=sys.stderr)


def run_stages(job: Job, key: str, stages: List[Stage], examples: int) -> bool:
    """Run what is not done; ``key`` is that of what the first stage starts from.

    Returns:
        Whether there was anything to do.
    """
    ran = False
    for step in stages:
        key = stage.key_of([key, step.name, step.options])
        output, begun, used = job.folder / step.name, time.monotonic(), cpu_seconds()
        if stage.run_stage(output, key, step.make):
            ran = True
            spent = (time.monotonic() - begun, cpu_seconds() - used)
            tell(job, step.name, stage.marker(output)["report"], spent)
        show_dropped(step.name, stage.marker(output).get("report"), examples)
    return ran


def plan_stages(
    job: Job, text_folder: Optional[Path]
) -> Tuple[str, List[Stage], Dict[str, List[Pair]]]:
    """The key of what a job starts from, its stages in order, and the texts of each set."""
    recipe, stages = job.recipe, []
    sources: Dict[str, List[Pair]] = {}
    seen: Dict[Path, Tuple[int, ...]] = {}
    if recipe.generate:
        key = stage.key_of([recipe.generate, recipe.langs, phrases.VERSION])
    elif job.parts:
        named = [part for parts in job.parts.values() for part in parts]
        known = [[p.name, p.files(recipe.langs), p.sources[0].sha256] for p in named]
        key = stage.key_of([recipe.langs, known, job.sacrebleu])
        stages.append(Stage("raw", None, lambda out: steps.make_raw(job, out)))
        for split, parts in job.parts.items():
            sources[split] = [job.pair(job.folder / "raw", part.name) for part in parts]
    else:
        sources = source_files(recipe, text_folder or Path())
        seen = stamps(sources)
        hashes = {s: [[sha256_of(p) for p in pair] for pair in own] for s, own in sources.items()}
        key = stage.key_of([recipe.langs, hashes])

    def make_text(out: Path) -> Any:
        report = steps.make_text(job, sources, out)
        if not job.parts:
            refuse_changed(sources, seen)
        return report

    at_text = [recipe.normalise, recipe.valid_every, recipe.limit]
    at_tok = [recipe.tokenised, recipe.split_hyphens, recipe.straight_test_apostrophes]
    limits = {
        name: [asdict(found) for split in recipe.splits if (found := recipe.limits(split, name))]
        for name in ("tok", "bpe")
    }
    codes: List[Any] = [recipe.bpe, recipe.bpe_counts]
    dictionary: Any = recipe.dictionary
    if job.like:
        codes, dictionary = [*codes, job.like.hashes[0]], [dictionary, job.like.hashes[1]]
    stages += [
        Stage("text", at_text, make_text),
        Stage("tok", [at_tok, limits["tok"]], lambda out: steps.make_tokens(job, out)),
        Stage("codes", codes, lambda out: steps.make_codes(job, out)),
        Stage("bpe", limits["bpe"], lambda out: steps.make_bpe(job, out)),
        Stage("data-bin", dictionary, lambda out: steps.make_data_bin(job, out)),
    ]
    return key, stages, sources


def show_plan(job: Job, sources: Dict[str, List[Pair]], key: str, stages: List[Stage]) -> None:
    """Say what is ahead, where that is much; nothing where it is little, or done."""
    undone: List[str] = []
    for step in stages:
        key = stage.key_of([key, step.name, step.options])
        if undone or not stage.is_done(job.folder / step.name, key):
            undone.append(step.name)
    if not undone or job.recipe.generate:
        return
    pairs = job.recipe.about_pairs or 0
    if not pairs and "raw" not in undone:
        pairs = steps.count_pairs(sources.get("train", []))
    pairs = min(pairs, job.recipe.limit or pairs)
    if (job.parts and pairs) or pairs >= plan.WORTH_A_PLAN:
        print(plan.plan(job, pairs, undone), file=sys.stderr)


def position(stages: List[Stage], name: str) -> int:
    """Which stage is called so.

    Raises:
        UserError: none is.
    """
    names = [step.name for step in stages]
    asked = ALSO_CALLED.get(name, name)
    if asked not in names:
        known = [*names, *(other for other, one in ALSO_CALLED.items() if one in names)]
        raise UserError(
            f"--from: there is no stage '{name}'{nearest(name, known)}; stages are "
            f"{', '.join(names)}"
        )
    return names.index(asked)
