"""Writes NAME.yaml, a configuration for your own prepared text, with a reason for each value.

    vaswani new mine --data data/mine                  sizes to suit the number of pairs and the GPU
    vaswani new mine --data data/mine --preset base
    vaswani new tuned --data data/more --from mine     fine-tunes a trained run, or a folder made by
                                                       'vaswani pack'
    vaswani new tuned --data data/more --from checkpoint.pt
                                                       fine-tunes a checkpoint, also of fairseq's
                                                       own transformer; it is packed beside it

NAME.yaml goes into configs/ if the current folder has one, else into the current folder;
'vaswani train NAME' finds it in either. Nothing is overwritten: edit the file as you like.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, check_folder, writing
from vaswani.common.find import configuration_paths, file_stem
from vaswani.common.options import argument, option
from vaswani.folders.data_bin import DataBin
from vaswani.planning.published_settings import PRESETS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, kw_only=True)
class Options:
    """A name, the data, and what the user decides."""

    name: str = argument("NAME", "name of the configuration and of its run")
    data: str = option(
        metavar="DIR", help="folder written by 'vaswani prepare', or a data-bin", required=True
    )
    preset: str | None = option(
        choices=PRESETS,
        help="size of the model (default: chosen for the amount of text and the GPU)",
    )
    start: str | None = option(
        flag="--from",
        metavar="RUN|MODEL|CHECKPOINT",
        help="fine-tune these weights; CHECKPOINT may also come from fairseq's own transformer",
    )


def run(options: Options) -> int:
    """Write the experiment and describe it."""
    from vaswani.planning.fine_tuning import fine_tuned
    from vaswani.planning.first_experiment import first_experiment, next_commands

    if options.preset and options.start:
        raise UserError(
            "--preset and --from cannot be used together, because --from keeps the size of its "
            "model: leave out --preset"
        )
    name, path = name_and_path(options.name)
    check_folder(path.parent)
    data = Path(options.data)
    data = DataBin.at(data).folder
    if options.start:
        text, facts = fine_tuned(name, data, options.start)
    else:
        text, facts = first_experiment(name, data, options.preset)
    with writing(path), atomic_write(path) as stream:
        stream.write(text)
    print(path, flush=True)
    for line in facts:
        print(f"  {line}", file=sys.stderr)
    print("next:", *next_commands(name, data), sep="\n  ", file=sys.stderr)
    return 0


def name_and_path(requested: str) -> tuple[str, Path]:
    """Return the experiment's name, and where its file goes.

    Raises:
        UserError: the name is invalid or taken.
    """
    plain = requested[: -len(".yaml")] if requested.endswith(".yaml") else requested
    if not _NAME.fullmatch(plain):
        raise UserError(
            f"'{requested}' is not a valid configuration name: use letters, digits, _ and -"
        )
    name = file_stem(plain)
    for path in (*configuration_paths(name), Path("runs") / name):
        if path.exists() or path.is_symlink():
            raise UserError(f"{path} already exists: choose another name")
    return name, (Path("configs") if Path("configs").is_dir() else Path()) / f"{name}.yaml"
