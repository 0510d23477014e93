"""Reproduces a result of the paper: plan → prepare → train → average → generate → score → pack.

    vaswani reproduce wmt14-en-de-base --dry-run       the commands, disk, hours, operations, BLEU
    vaswani reproduce wmt14-en-de-base --dry-run --fairseq      fairseq's own commands, to edit
    vaswani reproduce wmt14-en-de-base                 Table 2, on the GPUs of this machine
    vaswani reproduce wmt14-en-de-base --row A-h1      a row of Table 3: newstest2013, not averaged
    vaswani reproduce table1                           Table 1: layers, counted and measured
    vaswani reproduce table4                           Table 4: parsing, trained on WSJ alone

Names: wmt14-en-de-base, wmt14-en-de-big, wmt14-en-fr-base, wmt14-en-fr-big, table1, table4. Each
stage is a command, which is printed. It continues unfinished work and skips finished work. To
compare small models, run 'python -m experiments' in a checkout. See docs/reproduce.md.
"""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from vaswani.reproduction import FILES


def file_for(words: Sequence[str]) -> str:
    """Return the file in ``vaswani.reproduction`` for the result that a command line names."""
    return next((FILES[word] for word in words if word in FILES), "full_size")


def module_of(file: str) -> ModuleType:
    """Import a file of ``vaswani.reproduction`` and return its module."""
    return importlib.import_module(f"vaswani.reproduction.{file}")


def options_for(words: Sequence[str]) -> type:
    """Return the dataclass of options for a command line."""
    file = file_for(words)
    if file == "full_size":  # it imports torch, for which --help does not wait
        file = "options"
    options: type = module_of(file).Options
    return options


def run(options: Any) -> int:
    """Reproduce a table or a result, or print fairseq's commands for it."""
    file = file_for([options.name])
    if getattr(options, "fairseq", False):
        file = "fairseq_commands"
    return int(module_of(file).run(options))
