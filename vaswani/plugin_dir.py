"""Prints the plugin's folder: fairseq-train DATA --user-dir "$(vaswani plugin-dir)" …"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from vaswani.errors import UserError


def plugin_dir() -> Path:
    """The absolute folder of ``transformer_plugin``, found without importing it (or torch).

    Raises:
        UserError: the package cannot be found beside this one.
    """
    spec = importlib.util.find_spec("transformer_plugin")
    if spec is None or spec.origin is None:
        raise UserError(
            "transformer_plugin cannot be found: install the project with 'make setup', or run "
            "from the repository's root"
        )
    return Path(spec.origin).resolve().parent


@dataclass(frozen=True, kw_only=True)
class Options:
    """None."""


def run(options: Options) -> int:
    """Print the folder."""
    print(plugin_dir())
    return 0
