"""Translates a test set by beam search; writes runs/NAME/eval/.

    vaswani generate RUN                     its model with the lowest validation loss
    vaswani generate CHECKPOINT --subset valid --beam 4 --lenpen 0.6 --max-len-a 1 --max-len-b 50
    vaswani generate CHECKPOINT --length-penalty gnmt --beam 4 --lenpen 0.6 …   the paper's search
    vaswani generate RUN --workers 1         in one process; the default on a CPU is one per core

The default of an option is its value in the run's ``generation:`` or ``task:`` section. For each
subset it writes SUBSET.hyp.tok (tokens, or SentencePiece's pieces, in the order of the source),
SUBSET.hyp (detokenised), SUBSET.log (lines S-, H-, D- and P- as in fairseq-generate) and
SUBSET.json (options and counts). The translations do not depend on the number of processes.
"""

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.artifact import check_folder, is_inside, writing
from vaswani.common.errors import UserError, listed, plural
from vaswani.common.files import Table, locked, sha256_of
from vaswani.common.find import is_run
from vaswani.common.options import argument, option
from vaswani.decoding.translations import check_replaceable, translations_of
from vaswani.folders import search_options
from vaswani.folders.search_options import BEAM_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Options(search_options.as_arguments([*BEAM_OPTIONS, "length_penalty", "max_tokens"])):  # type: ignore[misc]
    """What to decode, and with what; also fairseq's beam search options."""

    model: str = argument(
        "RUN|CHECKPOINT", "a run (its folder, or its name under runs/) or a checkpoint"
    )
    data: str | None = option(metavar="DIR", help="use this data-bin, not the run's")
    subset: str = option("test", "train, valid or test (default: test)")
    out: str | None = option(metavar="DIR", help="where to put the results (default: RUN/eval)")
    precision: str = option(
        "fp32", "of the matrix products (default: fp32)", choices=["fp32", "bf16"]
    )
    workers: int | None = option(
        metavar="N",
        help="processes, on a CPU (default: one per core), never more than there are batches",
        least=1,
    )
    user_dir: str | None = option(
        metavar="DIR", help="a user-dir of your own that the model needs (default: the run's)"
    )


def run(options: Options) -> int:
    """Translate, unless the same translation is there already."""
    from vaswani.decoding.batch_decoder import data_files, text_of_run
    from vaswani.decoding.generation import (
        Request,
        generation_config,
        key_of_translation,
        translate,
    )
    from vaswani.decoding.process_engine import search_processes
    from vaswani.training.checkpoints import find_checkpoint
    from vaswani.training.launch import on_cpu
    from vaswani_transformer.fast.malloc import keep_freed_memory
    from vaswani_transformer.precision import computed_in

    keep_freed_memory()
    checkpoint, folder = find_checkpoint(options.model)
    request = Request(
        subset=options.subset,
        precision=options.precision,
        data=options.data,
        user_dir=options.user_dir,
        search=search_options.cli_overrides(options),
    )
    config, search = generation_config(request, checkpoint, folder)
    out = Path(options.out) if options.out else folder / "eval"
    data, total = data_files(config, options.subset)
    if is_inside(out, text_of_run(config.task).folder):
        raise UserError(f"{out} is where the data is: give another folder with --out")
    check_folder(out)
    workers = search_processes(options.workers, on_cpu(config))
    precision = computed_in(options.precision, "cpu" if on_cpu(config) else "cuda")
    key = key_of_translation(config, [checkpoint, *data], precision)
    results = translations_of(out, options.subset)
    with writing(results.record), locked(out / ".lock", f"{out} is being written"):
        results.recover()
        if options.out:
            check_replaceable(results)
        if results.are_made(key):
            print(f"{out}: already translated by {checkpoint}", file=sys.stderr)
        else:
            start = time.monotonic()
            with results.making(key) as (part, report):
                left_out, used = translate(config, search, part, total, workers)
                report.update(
                    checkpoint=str(checkpoint),
                    sha256={path.name: sha256_of(path) for path in [checkpoint, *data]},
                    data=str(config.task.data),
                    options=recorded_options(search),
                    precision=precision,
                    max_tokens=config.dataset.max_tokens,
                    workers=used,
                    sentences=total,
                    not_translated=left_out,
                    seconds=round(time.monotonic() - start, 1),
                )
            print_report(report, out / f"{options.subset}.hyp")
    if is_run(folder) and not options.out and text_of_run(config.task).has_recipe:
        print_next_command(folder, options.subset)
    return 0


def recorded_options(search: search_options.TranslationOptions) -> Table:
    """Return the options of the search that the report of a subset records."""
    return {name: getattr(search, name) for name in (*BEAM_OPTIONS, "length_penalty")}


def print_report(report: Table, path: Path) -> None:
    """Say what was done, and name every sentence that was not translated."""
    left_out = report["not_translated"]
    if left_out:
        count = plural(len(left_out), "sentence")
        print(
            f"warning: {count} longer than the model's limit, left empty in {path}: "
            f"{listed(left_out)}",
            file=sys.stderr,
        )
    done = f"{report['sentences']:,} sentences by {report['checkpoint']}"
    print(f"{path}: {done} in {report['seconds']:.0f} s", file=sys.stderr)


def print_next_command(run: Path, subset: str) -> None:
    """Print the command that scores a run's translations."""
    words = ["vaswani", "score", str(run)]
    if subset != "test":
        words += ["--subset", subset]
    print(f"next: {shlex.join(words)}", file=sys.stderr)
