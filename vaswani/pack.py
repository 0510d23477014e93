"""Packs a trained model into a folder that translates text, here or elsewhere.

    vaswani pack RUN                         the run's average, else best, else last checkpoint;
                                             into runs/NAME/model
    vaswani pack CHECKPOINT --data DIR --out MODEL
                                             a checkpoint; of fairseq's own transformer, too

The folder has all that 'vaswani translate' needs: parameters, dictionaries, BPE codes, how text is
prepared and how the run decodes; beside them the run's scores, hashes and a model card. Where there
is no recipe.yaml of 'vaswani prepare', how text is prepared is read off the dictionaries, unless
options say it.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any, Dict

from vaswani.errors import UserError
from vaswani.model_folder import (
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to pack, where to, and what its data does not say."""
    parser.add_argument("model", metavar="RUN|CHECKPOINT")
    parser.add_argument("--out", metavar="MODEL", help="the folder to make (RUN/model)")
    parser.add_argument("--data", metavar="DIR", help="the data-bin, or a folder with dict.*.txt")
    parser.add_argument("--source-lang", metavar="LANG")
    parser.add_argument("--target-lang", metavar="LANG")
    parser.add_argument("--bpe-codes", metavar="FILE", help="the data's, if it lacks them")
    parser.add_argument(
        "--tokeniser",
        choices=["moses", "none"],
        help="none: what is translated will be tokens (as the data's recipe, else moses)",
    )
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="small letters only (if the dictionary has no others)",
    )


def run(args: argparse.Namespace) -> int:
    """Pack what the arguments name."""
    from vaswani.checkpoints import find_checkpoint
    from vaswani.packing import Told, gather

    checkpoint, folder = find_checkpoint(args.model)
    if not args.out and not (folder / "config.yaml").is_file():
        raise UserError(f"{checkpoint} is in no run: say with --out MODEL where to put the model")
    out = Path(args.out) if args.out else folder / "model"
    told = {name: getattr(args, name) for name in Told.__dataclass_fields__}
    found = gather(checkpoint, folder, Told(**told))
    if write(out, found):
        print(f"{out}: {checkpoint} packed ({size(out) / 1e6:,.1f} MB)", file=sys.stderr)
    else:
        print(f"{out}: {checkpoint} is already packed", file=sys.stderr)
    return 0


def write(out: Path, found: Any) -> bool:
    """Make the folder, unless it is there; returns whether it was made."""
    from vaswani.model_card import card

    config = config_of(found)
    if not changed_since(out, config):
        return False

    def fill(part: Path) -> None:
        write_json(part / CONFIG, config)
        tied = not found.architecture["untie_embeddings"]
        write_weights(part / WEIGHTS, found.parameters, tied)
        langs = (found.text.source_lang, found.text.target_lang)
        for lang, path in zip(langs, found.dictionaries, strict=True):
            shutil.copyfile(path, part / f"dict.{lang}.txt")
        if found.codes:
            shutil.copyfile(found.codes, part / CODES)
        (part / CARD).write_text(card(config, found, out), encoding="utf-8", newline="\n")

    write_folder(out, fill)
    return True


def changed_since(out: Path, config: Dict[str, Any]) -> bool:
    """Whether a folder is to be made anew: another model, or none. The card may be edited."""
    from vaswani.files import read_json

    if not out.is_dir() or read_json(out / CONFIG) != config:
        return True
    return any(name != CARD for name in changed_since_packed(out))


def config_of(found: Any) -> Dict[str, Any]:
    """config.json."""
    config = {"format": FORMAT, "format_version": FORMAT_VERSION, "scores": found.scores}
    sections = (found.architecture, found.text.table(), found.generation, found.origin)
    return {**config, **dict(zip(SECTIONS, sections, strict=True))}


def size(folder: Path) -> int:
    """The bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.iterdir())
