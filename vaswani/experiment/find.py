"""Where experiments, recipes, runs and user-dirs are found, and how their YAML is read.

An experiment is ``configs/NAME.yaml`` (fairseq's own sections, so ``fairseq-hydra-train`` reads it
too); a recipe for its data is ``configs/data/NAME.yaml``, since several experiments may share
one; a run is a folder ``runs/NAME``. Names may be written with - or _.
"""

import argparse
import contextlib
import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vaswani.common.environment import plugin_dir
from vaswani.common.errors import UserError, nearest

_HERE = Path(__file__).resolve().parents[1]
#: the shipped experiments, documents and text: inside an installed package, beside it in a checkout
SHIPPED = _HERE if (_HERE / "configs").is_dir() else _HERE.parent
CONFIGS, DOCS = SHIPPED / "configs", SHIPPED / "docs"
#: in recipes, ``examples/demo_text/train`` is found from any folder
DEMO_TEXT = SHIPPED / "examples" / "demo_text"

#: in configs/, but changes to experiments
TABLES = ("table3", "small_tables")

#: in a run's folder: its experiment, complete
RUN_CONFIG = "config.yaml"


def file_stem(name: str) -> str:
    """``wmt14-en-de-base`` as its file is named: ``wmt14_en_de_base``."""
    return name.replace("-", "_")


def config_folders(kind: str = "") -> list[Path]:
    """The folders searched, in order: ./configs, then the repository's; or ``kind`` below them."""
    return [folder / kind for folder in (Path("configs"), CONFIGS)]


def experiment_paths(stem: str, kind: str = "") -> list[Path]:
    """Where a name's file may be: in ``config_folders``; for an experiment, also here."""
    folders = [*config_folders(kind), *([] if kind else [Path()])]
    return [folder / f"{stem}.yaml" for folder in folders]


def find_config(name: str, kind: str = "") -> Path:
    """The YAML file of an experiment (``kind`` empty) or of a data recipe (``kind`` "data").

    ``name`` is a path, or a name in one of ``config_folders``; for an experiment, also NAME.yaml in
    the current folder.

    Raises:
        UserError: there is no such file; suggests the nearest name.
    """
    path = Path(name)
    if path.is_file():
        return path
    stem = file_stem(
        path.name[: -len(path.suffix)] if path.suffix in (".yaml", ".yml") else path.name
    )
    known: list[str] = []
    if path.parent == Path("."):
        for path in experiment_paths(stem, kind):
            if path.is_file():
                return path
        known = known_configs(kind)
    what = {"": "experiment", "data": "data recipe"}.get(kind, "manifest of archives")
    offer = f"; known: {', '.join(known)}" if known else ""
    raise UserError(f"there is no {what} '{name}'{nearest(stem, known)}{offer}")


def known_configs(kind: str = "") -> list[str]:
    """The names of the experiments, or of the data recipes, where they are looked for."""
    paths = [path for folder in config_folders(kind) for path in sorted(folder.glob("*.yaml"))]
    here = [] if kind else [path for path in sorted(Path().glob("*.yaml")) if is_experiment(path)]
    names = [path.stem for path in [*here, *paths]]
    return [name for name in dict.fromkeys(names) if kind or name not in TABLES]


def is_experiment(path: Path) -> bool:
    """Whether a YAML file looks like an experiment: others may be in the current folder."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return {"task:", "model:"} <= {line.rstrip() for line in text.splitlines()}


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file whose top level is a table.

    Raises:
        UserError: not readable as YAML (with the line), or not a table.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid YAML in UTF-8: {error}") from None


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """A table in YAML, as omegaconf reads it, and so fairseq-hydra-train; ``where`` it is from.

    It refuses a key that occurs twice; ``1e-4`` is a number and ``2026-11-21`` is text.
    """
    from omegaconf import OmegaConf  # not at the top: --help does not need it

    with yaml_errors(where):
        table: Any = OmegaConf.create(text)
    if not OmegaConf.is_dict(table):
        raise UserError(f"{where}: expected sections such as 'task:' and 'model:', found none")
    return dict(OmegaConf.to_container(table))


@contextlib.contextmanager
def yaml_errors(where: str) -> Iterator[None]:
    """An error of PyYAML's in the block becomes a UserError: ``where``, line, problem."""
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{where}{line}: not valid YAML: {error.problem}") from None


def saved_config(checkpoint: Path, folder: Path) -> defaultdict[str, dict[str, Any]]:
    """The sections of a checkpoint's configuration; for a run's, those of its config.yaml.

    A checkpoint alone is not trusted: a user-dir, which is a program, is taken from a config.yaml.

    Raises:
        CheckpointError: the file is not a checkpoint.
    """
    from transformer_plugin.checkpoints import checkpoint_metadata

    saved = checkpoint_metadata(checkpoint).get("cfg") or {}
    config = defaultdict(dict, {name: to_dict(section) for name, section in saved.items()})
    config["common"].pop("user_dir", None)
    if is_run(folder):
        config.update(read_yaml(folder / RUN_CONFIG))
    return config


def to_dict(section: Any) -> dict[str, Any]:
    """A section as a table, whatever form the fairseq version gave it; empty if it is none."""
    return dict(section if isinstance(section, dict) else getattr(section, "__dict__", {}))


def run_folders(name: str) -> list[Path]:
    """What a run's name may mean: a path, or a name under ./runs."""
    return [Path(name), Path("runs") / name, Path("runs") / file_stem(name)]


def is_run(folder: Path) -> bool:
    """Whether something was trained in a folder."""
    return (folder / RUN_CONFIG).is_file()


def first_data_bin(data: Any) -> Path:
    """The (first) data-bin that ``task.data`` names: fairseq takes several, separated by colons."""
    return Path(str(data).split(":")[0])


def find_run(name: str) -> Path:
    """The folder of a run: a path, or a name under ./runs.

    Raises:
        UserError: there is no such folder, or nothing was trained in it.
    """
    for folder in run_folders(name):
        if is_run(folder):
            return folder
    known = sorted(path.parent.name for path in Path("runs").glob(f"*/{RUN_CONFIG}"))
    offer = f"; known: {', '.join(known)}" if known else "; train one with 'vaswani train CONFIG'"
    raise UserError(f"there is no run '{name}'{nearest(name, known)}{offer}")


# ---- the plugin and user-dirs -------------------------------------------------------------------


def load_plugin() -> None:
    """Import the plugin, and with it fairseq and torch, and silence fairseq's log messages."""
    fairseq_logs(logging.WARNING)  # now: it logs at import what it could use
    import transformer_plugin  # noqa: F401  (everything registers itself)
    from transformer_plugin import compat

    compat.quiet()
    logging.getLogger().setLevel(logging.WARNING)  # some library lowers it at import


def load_user_dir(user_dir: str | None) -> str:
    """Import the plugin, then a user-dir of one's own if there is one; returns its absolute path.

    A folder called ``transformer_plugin`` means the plugin that is in use, wherever it was when a
    run was trained: Python cannot load two packages of one name.

    Raises:
        UserError: there is no such folder.
    """
    load_plugin()
    if not user_dir or Path(user_dir).name == plugin_dir().name:
        return str(plugin_dir())
    from fairseq.utils import import_user_module

    folder = os.path.abspath(user_dir)
    if not os.path.isdir(folder):
        raise UserError(
            f"common.user_dir: there is no folder {user_dir}: say where it is, to 'vaswani train' "
            "with common.user_dir=DIR, to 'vaswani generate' with --user-dir DIR"
        )
    import_user_module(argparse.Namespace(user_dir=folder))
    return folder


def fairseq_logs(level: int) -> None:
    """Set how much fairseq logs."""
    for name in ("fairseq", "fairseq_cli"):
        logging.getLogger(name).setLevel(level)
