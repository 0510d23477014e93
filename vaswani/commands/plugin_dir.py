"""Prints the plugin's folder: fairseq-train DATA --user-dir "$(vaswani plugin-dir)" …"""

from dataclasses import dataclass

from vaswani.common.environment import plugin_dir


@dataclass(frozen=True, kw_only=True)
class Options:
    """None."""


def run(options: Options) -> int:
    """Print the plugin's folder."""
    print(plugin_dir())
    return 0
