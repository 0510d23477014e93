"""Packs a trained model into a folder that translates text, here or elsewhere.

    vaswani pack RUN                         its model with the lowest validation loss, into
                                             runs/NAME/model
    vaswani pack CHECKPOINT --data DIR --out MODEL
                                             also a checkpoint of fairseq's own transformer

The folder has all that 'vaswani translate' needs: parameters, dictionaries, BPE codes, and the
settings of text preparation and of decoding. It also has the run's scores, hashes and a model card.
If there is no recipe.yaml from 'vaswani prepare', the text preparation is inferred from the
dictionaries; options override it.
"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.options import argument, option
from vaswani.folders.model_folder import ModelFolder
from vaswani.folders.run import Run
from vaswani.packing.data_text import DataOptions


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions):
    """What to pack and where; also what its data does not say."""

    model: str = argument(
        "RUN|CHECKPOINT", "a run (its folder, or its name under runs/) or a checkpoint"
    )
    out: str | None = option(metavar="MODEL", help="output folder (default: RUN/model)")
    half: bool = option(
        False, "store weights as float16, half the size; translation still computes in float32"
    )


def run(options: Options) -> int:
    """Pack the model that the arguments name."""
    from vaswani.training.checkpoints import find_checkpoint

    checkpoint, trained = find_checkpoint(options.model)
    if not options.out and not trained.exists:
        raise UserError(f"{checkpoint} is not in a run: give the output folder with --out MODEL")
    out = Path(options.out) if options.out else None
    folder = pack(trained, checkpoint, out, options, options.half)
    print(f"next: vaswani translate {shlex.quote(str(folder.path))}", file=sys.stderr)
    return 0


def pack(
    run: Run,
    checkpoint: Path | None = None,
    out: Path | None = None,
    options: DataOptions | None = None,
    half: bool = False,
) -> ModelFolder:
    """Pack a model into a folder that translates text, unless the folder exists already.

    Args:
        run: was trained by ``vaswani train``, or is the folder that ``checkpoint`` is in
        checkpoint: the model (default: the run's with the lowest validation loss)
        out: the folder (default: the run's model folder)
        options: what the data does not say (default: nothing)
        half: whether to store the parameters in float16

    Raises:
        UserError: something is missing or does not fit, or the model cannot be packed.
        CheckpointError: the file is not a usable checkpoint.
    """
    from vaswani.packing.collect import collect_model, round_to_float16, write_model
    from vaswani.training.checkpoints import best_of_run

    checkpoint = checkpoint or best_of_run(run)
    out = out or run.model
    contents = collect_model(checkpoint, run, options or DataOptions())
    if half:
        contents = round_to_float16(contents, checkpoint)
    if write_model(out, contents):
        print(f"{out}: {checkpoint} packed ({size(out) / 1e6:,.1f} MB)", file=sys.stderr)
    else:
        print(f"{out}: {checkpoint} is already packed", file=sys.stderr)
    return ModelFolder.read(out)


def size(folder: Path) -> int:
    """Return the total size of a folder's files in bytes."""
    return sum(path.stat().st_size for path in folder.iterdir())
