"""Translates a test set by beam search, and writes runs/NAME/eval/.

    vaswani generate RUN                     its model with the lowest validation loss
    vaswani generate CHECKPOINT --subset valid --beam 4 --lenpen 0.6 --max-len-a 1 --max-len-b 50
    vaswani generate CHECKPOINT --length-penalty gnmt --beam 4 --lenpen 0.6 …   the paper's search
    vaswani generate RUN --workers 1         in one process; the default on a CPU is one per core

The default of an option is its value in the section 'generation' or 'task' of the run's
configuration. For each subset 'vaswani generate' writes SUBSET.hyp.tok (tokens, or SentencePiece's
pieces, in the order of the source), SUBSET.hyp (detokenised), SUBSET.log (lines S-, H-, D- and P-
as in fairseq-generate) and SUBSET.json (options and counts). The translations do not depend on the
number of processes.
"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.options import argument, option
from vaswani.folders import search_options
from vaswani.folders.run import Run
from vaswani.folders.search_options import BEAM_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Options(search_options.as_arguments([*BEAM_OPTIONS, "length_penalty", "max_tokens"])):  # type: ignore[misc]
    """What to decode, and with what; also fairseq's beam search options."""

    model: str = argument(
        "RUN|CHECKPOINT", "a run (its folder, or its name under runs/) or a checkpoint"
    )
    data: str | None = option(metavar="DIR", help="data-bin with the test set (default: the run's)")
    subset: str = option("test", "train, valid or test (default: test)")
    out: str | None = option(metavar="DIR", help="output folder (default: RUN/eval)")
    precision: str = option(
        "fp32", "precision of the matrix products (default: fp32)", choices=["fp32", "bf16"]
    )
    workers: int | None = option(
        metavar="N",
        help="number of processes on a CPU (default: one per core; at most one per batch)",
        least=1,
    )
    user_dir: str | None = option(
        metavar="DIR", help="your user-dir, if the model needs one (default: the run's)"
    )


def run(options: Options) -> int:
    """Translate a test set, unless the same translation exists already."""
    from vaswani.decoding.generation import Request, generate, has_references
    from vaswani.training.checkpoints import find_checkpoint
    from vaswani_transformer.fast.malloc import keep_freed_memory

    keep_freed_memory()
    checkpoint, trained = find_checkpoint(options.model)
    request = Request(
        subset=options.subset,
        precision=options.precision,
        data=options.data,
        user_dir=options.user_dir,
        search=search_options.cli_overrides(options),
    )
    out = Path(options.out) if options.out else None
    translations = generate(trained, request, checkpoint, out, options.workers)
    if trained.exists and out is None and has_references(translations):
        print_next_command(trained, options.subset)
    return 0


def print_next_command(run: Run, subset: str) -> None:
    """Print the command that scores a run's translations."""
    words = ["vaswani", "score", str(run)]
    if subset != "test":
        words += ["--subset", subset]
    print(f"next: {shlex.join(words)}", file=sys.stderr)
