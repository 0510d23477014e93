"""Packs a trained model into a folder that translates text, here or elsewhere.

    vaswani pack RUN                         what of the run has the lowest validation loss, into
                                             runs/NAME/model
    vaswani pack CHECKPOINT --data DIR --out MODEL
                                             a checkpoint, also of fairseq's own transformer

The folder has all that 'vaswani translate' needs: parameters, dictionaries, BPE codes, how text is
prepared and how the run decodes; also the run's scores, hashes and a model card. If there is no
recipe.yaml from 'vaswani prepare', the text preparation is inferred from the dictionaries, unless
you give it with options.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional

from vaswani.common.errors import UserError
from vaswani.common.options import argument, option
from vaswani.experiment.find import is_run
from vaswani.model_folder.data_text import DataOptions
from vaswani.model_folder.folder import (
    CARD,
    CODES,
    CONFIG,
    FORMAT,
    FORMAT_VERSION,
    SECTIONS,
    WEIGHTS,
    changed_since_packed,
    write_folder,
    write_json,
    write_weights,
)


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions):
    """What to pack and where; also what its data does not say."""

    model: str = argument(
        "RUN|CHECKPOINT", "a run (its folder, or its name under runs/) or a checkpoint"
    )
    out: Optional[str] = option(metavar="MODEL", help="the folder to make (RUN/model)")


def run(options: Options) -> int:
    """Pack what the arguments name."""
    from vaswani.experiment.best_checkpoint import find_checkpoint
    from vaswani.model_folder.packing import gather

    checkpoint, folder = find_checkpoint(options.model)
    if not options.out and not is_run(folder):
        raise UserError(f"{checkpoint} is not in a run: say with --out MODEL where to put it")
    out = Path(options.out) if options.out else folder / "model"
    found = gather(checkpoint, folder, options)
    if write(out, found):
        print(f"{out}: {checkpoint} packed ({size(out) / 1e6:,.1f} MB)", file=sys.stderr)
    else:
        print(f"{out}: {checkpoint} is already packed", file=sys.stderr)
    return 0


def write(out: Path, found: Any) -> bool:
    """Make the folder unless it exists; returns whether it was made."""
    from vaswani.model_folder.model_card import card

    config = config_of(found)
    if not changed_since(out, config):
        return False

    def fill(part: Path) -> None:
        write_json(part / CONFIG, config)
        tied = not found.architecture["untie_embeddings"]
        write_weights(part / WEIGHTS, found.parameters, tied)
        for lang, path in zip(found.text.langs, found.dictionaries, strict=True):
            shutil.copyfile(path, part / f"dict.{lang}.txt")
        if found.codes:
            shutil.copyfile(found.codes, part / CODES)
        (part / CARD).write_text(card(config, found, out), encoding="utf-8", newline="\n")

    write_folder(out, fill)
    return True


def changed_since(out: Path, config: Dict[str, Any]) -> bool:
    """Whether a folder must be made again: it has another model, or none. Card edits are fine."""
    from vaswani.common.files import read_json

    if not out.is_dir() or read_json(out / CONFIG) != config:
        return True
    return any(name != CARD for name in changed_since_packed(out))


def config_of(found: Any) -> Dict[str, Any]:
    """config.json."""
    config = {"format": FORMAT, "format_version": FORMAT_VERSION, "scores": found.scores}
    sections = (found.architecture, found.text.table(), found.generation, found.origin)
    return {**config, **dict(zip(SECTIONS, sections, strict=True))}


def size(folder: Path) -> int:
    """The total size of a folder's files in bytes."""
    return sum(path.stat().st_size for path in folder.iterdir())
