"""Makes data/NAME from text: {text,tok,bpe}/{train,valid,test}.LANG, codes and data-bin.

    vaswani prepare demo_en_de                       text that comes with vaswani
    vaswani prepare multi30k_en_de --text FOLDER     a corpus you have
    vaswani prepare wmt14_en_de                      a public corpus (docs/wmt14-data.md)
    vaswani prepare --source-lang en --target-lang fr --train PREFIX --valid PREFIX
                    --test PREFIX --bpe 8000 --out data/mine        your own (PREFIX.en, PREFIX.fr)
                    (or FILE.tsv, both sides in two columns; --train may be given several times)
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
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vaswani.common import signals
from vaswani.common.artifact import is_inside, writing
from vaswani.common.environment import cores
from vaswani.common.errors import UserError
from vaswani.common.files import Table, locked
from vaswani.common.find import (
    DEMO_TEXT,
    SHIPPED,
    file_stem,
    find_config,
    first_data_bin,
    known_configs,
)
from vaswani.common.options import Checked, argument, option
from vaswani.common.processes import limit_workers
from vaswani.common.yaml_tables import read_yaml
from vaswani.data import text
from vaswani.data.prepared_text import STAGES, outputs_of
from vaswani.data.read_recipe import find_recipe, recipe_from
from vaswani.data.shared_vocabulary import is_text, shared_vocabulary
from vaswani.folders.recipe import RECIPE_FILE, SENTENCEPIECE, SUBWORD_MODELS, Recipe
from vaswani_transformer.io import moses

if TYPE_CHECKING:
    from vaswani.data.pipeline import Job, Pair

#: what text prepared from arguments has, and that of earlier versions lacks
NEW_TEXT = {"unicode": "NFC", "text_rules": moses.VERSION}
STAGE_NAMES = ("raw", "text", "tok", "codes", "bpe", "data-bin")


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """A name, or the files and languages of one's own text; and how to process it."""

    name: str | None = argument(help="an experiment or a recipe of configs/data", default=None)
    text: str | None = option(metavar="FOLDER", help="where the recipe's text files are")
    out: str | None = option(metavar="DIR", help="where to put the result (default: data/NAME)")
    source_lang: str | None = option(metavar="LANG", help="the ending of the source files")
    target_lang: str | None = option(metavar="LANG", help="the ending of the target files")
    train: list[str] | None = option(
        metavar="PREFIX",
        help="your training text: PREFIX.LANG, or FILE.tsv of two columns; several are joined",
    )
    valid: str | None = option(metavar="PREFIX", help="your validation text: PREFIX.LANG")
    test: str | None = option(metavar="PREFIX", help="your test text: PREFIX.LANG")
    like: str | None = option(
        metavar="DATA|RUN|MODEL", help="use the codes, dictionary and recipe of other text"
    )
    tokenised: bool = option(False, "your text is already tokenised")
    keep_tags: bool = option(False, "trees: keep part-of-speech tags, instead of XX for each")
    subword: str | None = option(
        choices=list(SUBWORD_MODELS),
        help="what splits text: subword_nmt, BPE of Moses' tokens (the default), or sentencepiece, "
        "which needs no spaces between words",
    )
    bpe: int | None = option(
        metavar="N",
        help="merges of the joint BPE; with sentencepiece, the number of pieces",
        least=1,
    )
    split_digits: bool = option(False, "no subword has two digits: 2010 becomes 2 0 1 0")
    bpe_dropout: float | None = option(
        metavar="P",
        help="split the training text with each merge left out with this probability (0.1 in "
        "Provilkov et al., 2020)",
        above=0,
    )
    copies: int | None = option(
        metavar="K",
        help="with --bpe-dropout: the training text K times, each split differently",
        least=1,
    )
    max_words: int | None = option(metavar="N", help="leave out longer pairs", least=1)
    ratio: float | None = option(
        metavar="R", help="highest ratio of longer to shorter side", least=1
    )
    limit: int | None = option(metavar="PAIRS", help="a trial with this many pairs", least=1)
    workers: int = option(cores(), metavar="N", help="processes (default: all cores)", least=1)
    start: str | None = option(flag="--from", choices=STAGE_NAMES, help="redo from here on")
    if_missing: bool = option(False, "do nothing where data-bin is complete, from any text")
    show_dropped: int = option(0, "show N examples of pairs left out", metavar="N", least=0)
    archives: str = option("data/archives", "downloads (default: data/archives)", metavar="DIR")
    manifest: str | None = option(metavar="FILE", help="other URLs for the archives")


def run(options: Options) -> int:
    """Prepare what the arguments name."""
    from vaswani.data.pipeline import run_stages, stages_of

    job = job_of(options)
    data_bin = outputs_of(job.folder / "data-bin")
    if options.if_missing and data_bin.are_made(data_bin.table().get("key", "")):
        print(f"{job.folder / 'data-bin'}: already prepared", file=sys.stderr)
        return 0
    if not job.parts:
        job = replace(job, sources=source_files(job.recipe, Path(options.text or "")))
    names = [stage.name for stage in stages_of(job)]
    later = STAGE_NAMES[STAGE_NAMES.index(options.start) :] if options.start else ()
    redo = max(0, len(names) - len(later))  # not all text has the stage raw
    check_places(job, names)
    lock = job.folder / STAGES / "lock"
    with writing(job.folder), locked(lock, f"{job.folder} is being prepared"):
        # downloads continue where they stopped
        signals.set_resumable(lambda: bool(job.parts) and any(job.archives.glob("*")))
        if not run_stages(job, redo, options.show_dropped):
            print(f"{job.folder}: already prepared from the same text and options", file=sys.stderr)
    if "train" in job.recipe.splits:
        print(f"next: {next_command(job, options.name, options.like)}", file=sys.stderr)
    return 0


def next_command(job: "Job", name: str | None, like: str | None) -> str:
    """The command that follows: an experiment on this data is trained, else one is made for it.

    Args:
        job: what was prepared
        name: of the recipe, if one was named
        like: the data, run or model whose codes were used; a run or model is fine-tuned
    """
    name = name or job.folder.name
    folder = job.folder
    if file_stem(name) in known_configs():
        data = read_yaml(find_config(name)).get("task", {}).get("data")
        if first_data_bin(data).parent == folder:
            return f"vaswani train {name}"
    new = folder.name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", folder.name) else "mine"
    start = ["--from", like] if like and not is_text(like) else []
    return shlex.join(["vaswani", "new", new, "--data", str(folder), *start])


def job_of(options: Options) -> "Job":
    """What the arguments name: a recipe or one's own text, the output folder, and the archives.

    Raises:
        UserError: an unknown recipe, or invalid options.
    """
    from vaswani.data.pipeline import Job

    recipe, folder = recipe_of(options)
    if recipe.archives and options.text:
        raise UserError("--text names a folder of text files, but this recipe uses none")
    if recipe.trees and not (isinstance(recipe.train, str) and recipe.valid):
        raise UserError(
            "give one --train FILE and --valid FILE: trees in Penn brackets, one whole tree a line"
        )
    if recipe.subword == SENTENCEPIECE:
        import sentencepiece  # noqa: F401  (if it is missing, this is said before the first stages)
    parts: dict[str, list[Any]] = {}
    read: dict[str, Path] = {}
    if options.name and Path(options.name).is_file():
        read["recipe"] = Path(options.name)
    if recipe.like:
        read["codes"], read["dictionary"] = shared_vocabulary(recipe.like).files
    if recipe.archives:
        from vaswani.data.archives import read_parts

        read["manifest"] = find_config(options.manifest or recipe.archives, "data/archives")
        for split in recipe.splits:
            if recipe.parts(split):
                parts[split] = read_parts(read["manifest"], recipe.parts(split))
    workers = limit_workers(options.workers)
    return Job(recipe, folder, workers, {}, parts, Path(options.archives), read)


def recipe_of(options: Options) -> tuple[Recipe, Path]:
    """The recipe that the arguments name or make up, and where its result goes.

    Raises:
        UserError: there is no such recipe, or the arguments contradict it.
    """
    own = {item.name: getattr(options, item.name, None) for item in fields(Recipe)}
    own.update(archives=None, like=None)  # the options of these names say where they are
    own = {name: value for name, value in own.items() if value is not None and value is not False}
    if options.train and len(options.train) == 1:
        own["train"] = options.train[0]
    if options.name and not options.like:
        recipe, folder = find_recipe(options.name)
        recipe = recipe_from({**asdict(recipe), **own}, f"recipe {options.name} with options")
        return recipe, Path(options.out) if options.out else folder
    if options.name or not options.out:
        raise UserError(
            "give the name of a recipe; or --out DIR and your own text, with --like or without"
        )
    if options.like:
        vocabulary = shared_vocabulary(options.like)
        return vocabulary.recipe_for(own, options.like), Path(options.out)
    rules = rules_of_earlier_text(Path(options.out)) or NEW_TEXT
    return recipe_from({**rules, **own}, "the arguments"), Path(options.out)


def rules_of_earlier_text(folder: Path) -> Table:
    """The keys of ``NEW_TEXT`` as a folder has them, whose text this command has made before.

    So it is not made anew where an earlier version made it, under a run that was trained on it.
    """
    path = folder / RECIPE_FILE
    with contextlib.suppress(UserError):  # not one that prepare wrote: it will be kept aside
        before = read_yaml(path) if path.is_file() else {}
        return {key: before.get(key, getattr(Recipe, key)) for key in NEW_TEXT if before}
    return {}


def source_files(recipe: Recipe, folder: Path) -> "dict[str, list[Pair]]":
    """The two files of each set of one's own text; the same file for both sides, of trees and of
    tables (``.tsv``).

    Without a folder, the demo's text is that which comes with ``vaswani``.

    Raises:
        UserError: one is missing or empty.
    """
    files: "dict[str, list[Pair]]" = {}
    for split in recipe.splits:
        for name in recipe.parts(split):
            comes_with_it = not folder.parts and (SHIPPED / name).parent == DEMO_TEXT
            prefix = (SHIPPED if comes_with_it else folder) / name
            if recipe.trees or text.is_table(prefix):
                source = target = prefix
            else:
                source, target = (text.find_text(prefix, lang) for lang in recipe.langs)
            files.setdefault(split, []).append((source, target))
    return files


def check_places(job: "Job", names: list[str]) -> None:
    """Raises UserError if an input is inside an output; called before anything is touched."""
    inputs = list(job.read.values())
    for pairs in job.sources.values():
        for pair in pairs:
            inputs += pair
    if job.parts:
        inputs.append(job.archives)
    for path in inputs:
        for name in (*names, STAGES):
            if is_inside(path, job.folder / name):
                raise UserError(
                    f"{path} is in {job.folder / name}, which this command makes itself: move it "
                    "elsewhere, or give another --out"
                )
