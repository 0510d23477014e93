"""Prepares text: from a recipe's name, or one's own files, to the folder with a data-bin."""

import contextlib
import re
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vaswani.common import signals
from vaswani.common.errors import UserError
from vaswani.common.files import is_inside, locked, writing
from vaswani.common.find import (
    DEMO_TEXT,
    SHIPPED,
    file_stem,
    find_config,
    first_data_bin,
    known_configs,
)
from vaswani.common.processes import limit_workers
from vaswani.common.yaml_tables import read_yaml
from vaswani.data.archives import read_parts
from vaswani.data.pipeline import Job, Pair, run_stages, stages_of
from vaswani.data.read_recipe import PrepareOptions, find_recipe, recipe_from
from vaswani.data.shared_vocabulary import is_text, shared_vocabulary
from vaswani.data.text import find_text, is_table
from vaswani.folders.prepared_text import STAGES, PreparedText
from vaswani.folders.recipe import SENTENCEPIECE, Recipe
from vaswani_transformer.io import moses

#: what text prepared from arguments has, and that of earlier versions lacks
NEW_TEXT = {"unicode": "NFC", "text_rules": moses.VERSION}


def prepare(options: PrepareOptions) -> PreparedText:
    """Prepare text, unless it is prepared already, with progress on standard error.

    Raises:
        UserError: an unknown recipe, invalid options, or text that cannot be used.
    """
    job = job_of(options)
    if options.if_missing and job.prepared.has_complete_data_bin():
        print(f"{job.prepared.data_bin.folder}: already prepared", file=sys.stderr)
        return job.prepared
    if not job.parts:
        job = replace(job, sources=source_files(job.recipe, Path(options.text or "")))
    names = [stage.name for stage in stages_of(job)]
    later = STAGES[STAGES.index(options.start) :] if options.start else ()
    redo = max(0, len(names) - len(later))  # not all text has the stage raw
    check_places(job, names)
    busy = f"{job.folder} is being prepared"
    with writing(job.folder), locked(job.prepared.lock, busy):
        # downloads continue where they stopped
        signals.set_resumable(lambda: bool(job.parts) and any(job.archives.glob("*")))
        if not run_stages(job, redo, options.show_dropped):
            print(f"{job.folder}: already prepared from the same text and options", file=sys.stderr)
    if "train" in job.recipe.splits:
        command = next_command(job.prepared, options.name, options.like)
        print(f"next: {command}", file=sys.stderr)
    return job.prepared


def next_command(text: PreparedText, name: str | None, like: str | None) -> str:
    """Return the next command: train the experiment for this data, or make one.

    Args:
        text: what was prepared
        name: of the recipe, if one was named
        like: the data, run or model whose codes were used; a run or model is fine-tuned
    """
    folder = text.folder
    name = name or folder.name
    if file_stem(name) in known_configs():
        data = read_yaml(find_config(name)).get("task", {}).get("data")
        if first_data_bin(data).parent == folder:
            return f"vaswani train {name}"
    new = folder.name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", folder.name) else "mine"
    start = ["--from", like] if like and not is_text(like) else []
    return shlex.join(["vaswani", "new", new, "--data", str(folder), *start])


def job_of(options: PrepareOptions) -> Job:
    """Return the job that the arguments describe: a recipe or own text, output folder, archives.

    Raises:
        UserError: an unknown recipe, or invalid options.
    """
    recipe, folder = recipe_of(options)
    if recipe.archives and options.text:
        raise UserError("this recipe reads no folder of text files: leave out --text")
    if recipe.trees and not (isinstance(recipe.train, str) and recipe.valid):
        raise UserError(
            "give one --train FILE and --valid FILE: trees in Penn brackets, one whole tree per "
            "line"
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
        read["manifest"] = find_config(options.manifest or recipe.archives, "data/archives")
        for split in recipe.splits:
            if recipe.parts(split):
                parts[split] = read_parts(read["manifest"], recipe.parts(split))
    workers = limit_workers(options.workers)
    return Job(recipe, PreparedText(folder), workers, {}, parts, Path(options.archives), read)


def recipe_of(options: PrepareOptions) -> tuple[Recipe, Path]:
    """Return the recipe that the arguments name or describe, and where its result goes.

    Raises:
        UserError: there is no such recipe, or the arguments contradict it.
    """
    own = options.keys()
    if options.name and not options.like:
        recipe, folder = find_recipe(options.name)
        recipe = recipe_from({**asdict(recipe), **own}, f"recipe {options.name} with options")
        return recipe, Path(options.out) if options.out else folder
    if options.name or not options.out:
        raise UserError(
            "give the name of a recipe, or give --out DIR and your own text, with or without --like"
        )
    if options.like:
        vocabulary = shared_vocabulary(options.like)
        return vocabulary.recipe_for(own, options.like), Path(options.out)
    rules = rules_of_earlier_text(PreparedText(Path(options.out))) or NEW_TEXT
    return recipe_from({**rules, **own}, "the arguments"), Path(options.out)


def rules_of_earlier_text(text: PreparedText) -> dict[str, object]:
    """Return the values of the keys ``NEW_TEXT`` with which the folder's text was made.

    So it is not made anew where an earlier version made it, under a run that was trained on it.
    """
    with contextlib.suppress(UserError):  # not one that prepare wrote: it will be kept aside
        before = text.recipe_as_written()
        if before and before.source_lang:
            return {"unicode": before.unicode, "text_rules": before.text_rules}
    return {}


def source_files(recipe: Recipe, folder: Path) -> dict[str, list[Pair]]:
    """Return the two files of each set of one's own text.

    Trees and tables (``.tsv``) have the same file for both sides.
    """
    files: dict[str, list[Pair]] = {}
    for split in recipe.splits:
        for name in recipe.parts(split):
            comes_with_it = not folder.parts and (SHIPPED / name).parent == DEMO_TEXT
            prefix = (SHIPPED if comes_with_it else folder) / name
            if recipe.trees or is_table(prefix):
                source = target = prefix
            else:
                source, target = (find_text(prefix, lang) for lang in recipe.langs)
            files.setdefault(split, []).append((source, target))
    return files


def check_places(job: Job, names: list[str]) -> None:
    """Raise UserError if an input is inside an output; called before anything is touched."""
    inputs = list(job.read.values())
    for pairs in job.sources.values():
        for pair in pairs:
            inputs += pair
    if job.parts:
        inputs.append(job.archives)
    for path in inputs:
        for place in (*map(job.prepared.stage, names), job.prepared.records):
            if is_inside(path, place):
                raise UserError(
                    f"{path} is in {place}, where this command writes its own files: move the "
                    "file elsewhere, or give another --out"
                )
