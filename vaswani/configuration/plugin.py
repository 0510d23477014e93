"""The plugin and user-dirs, loaded; the configurations that checkpoints have in them."""

import argparse
import logging
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from fairseq.utils import import_user_module

import transformer_plugin  # noqa: F401  (everything registers itself)
from transformer_plugin import compat
from transformer_plugin.checkpoints import checkpoint_metadata
from vaswani.common.environment import plugin_dir
from vaswani.common.errors import UserError
from vaswani.folders.run import Run


def load_plugin() -> None:
    """Silence fairseq's log messages; importing this module has already loaded the plugin."""
    fairseq_logs(logging.WARNING)
    compat.quiet()
    logging.getLogger().setLevel(logging.WARNING)  # some library lowers it at import


def load_user_dir(user_dir: str | None) -> str:
    """Load the plugin, then a user-dir if one is given, and return its absolute path.

    A folder called ``transformer_plugin`` means the plugin that is in use, wherever it was when a
    run was trained: Python cannot load two packages of one name.

    Raises:
        UserError: there is no such folder, or it cannot be a package.
    """
    load_plugin()
    if not user_dir or Path(user_dir).name == plugin_dir().name:
        return str(plugin_dir())
    folder = os.path.abspath(user_dir)
    if not os.path.isdir(folder):
        raise UserError(
            f"common.user_dir: there is no folder {user_dir}: give its path, with "
            "common.user_dir=DIR for 'vaswani train' or --user-dir DIR for 'vaswani generate'"
        )
    name = os.path.basename(folder)
    if not name or "." in name:
        raise UserError(
            f"common.user_dir: {folder} cannot be imported, because a Python package needs a name "
            "without a dot: rename the folder, or give another"
        )
    try:
        import_user_module(argparse.Namespace(user_dir=folder))
    except ImportError as error:
        if error.name is None:  # fairseq's: another module has the folder's name
            raise UserError(f"common.user_dir: {error}") from None
        raise
    return folder


def fairseq_logs(level: int) -> None:
    """Set how much fairseq logs."""
    for name in ("fairseq", "fairseq_cli"):
        logging.getLogger(name).setLevel(level)


def saved_config(checkpoint: Path, run: Run) -> defaultdict[str, dict[str, Any]]:
    """Return a checkpoint's configuration by section, as in the folder of its run if it has one.

    A checkpoint alone is not trusted: a user-dir, which is a program, is taken from a run's folder.

    Raises:
        CheckpointError: the file is not a checkpoint.
    """
    saved = checkpoint_metadata(checkpoint).get("cfg") or {}
    config = defaultdict(dict, {name: to_dict(section) for name, section in saved.items()})
    config["common"].pop("user_dir", None)
    config.update(run.configuration())
    return config


def to_dict(section: object) -> dict[str, Any]:
    """Return a section as a table in any version of fairseq; empty if it is not a section."""
    return dict(section if isinstance(section, dict) else getattr(section, "__dict__", {}))
