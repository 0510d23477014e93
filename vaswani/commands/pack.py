"""Packs a trained model into a folder that translates text, here or elsewhere.

    vaswani pack RUN                         its model with the lowest validation loss, into
                                             runs/NAME/model
    vaswani pack CHECKPOINT --data DIR --out MODEL
                                             a checkpoint, also of fairseq's own transformer

The folder has all that 'vaswani translate' needs: parameters, dictionaries, BPE codes, how text is
prepared and how the run decodes; also the run's scores, hashes and a model card. If there is no
recipe.yaml from 'vaswani prepare', the text preparation is inferred from the dictionaries, unless
you give it with options.
"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.options import argument, option
from vaswani.model_folder.data_text import DataOptions


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions):
    """What to pack and where; also what its data does not say."""

    model: str = argument(
        "RUN|CHECKPOINT", "a run (its folder, or its name under runs/) or a checkpoint"
    )
    out: str | None = option(metavar="MODEL", help="the folder to make (default: RUN/model)")
    half: bool = option(
        False, "store float16, in half the bytes; translation still computes in float32"
    )


def run(options: Options) -> int:
    """Pack what the arguments name."""
    from vaswani.model_folder.packing import collect_model, stored_as_halves, write_model
    from vaswani.training.checkpoints import find_checkpoint

    checkpoint, trained = find_checkpoint(options.model)
    if not options.out and not trained.exists:
        raise UserError(f"{checkpoint} is not in a run: say with --out MODEL where to put it")
    out = Path(options.out) if options.out else trained.model
    contents = collect_model(checkpoint, trained, options)
    if options.half:
        contents = stored_as_halves(contents, checkpoint)
    if write_model(out, contents):
        print(f"{out}: {checkpoint} packed ({size(out) / 1e6:,.1f} MB)", file=sys.stderr)
    else:
        print(f"{out}: {checkpoint} is already packed", file=sys.stderr)
    print(f"next: vaswani translate {shlex.quote(str(out))}", file=sys.stderr)
    return 0


def size(folder: Path) -> int:
    """The total size of a folder's files in bytes."""
    return sum(path.stat().st_size for path in folder.iterdir())
