"""Tables in YAML, as omegaconf reads them, and so fairseq-hydra-train."""

import contextlib
import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import Table

#: a configuration: section → its options by name
Sections = dict[str, dict[str, Any]]


def read_yaml(path: Path) -> Table:
    """Read a YAML file whose top level is a table.

    Raises:
        UserError: not readable as YAML (with the line), or not a table.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid YAML in UTF-8: {error}") from None


def parse_yaml(text: str, where: str) -> Table:
    """Parse a table in YAML as omegaconf and fairseq-hydra-train do; messages name it by ``where``.

    It refuses a key that occurs twice; ``1e-4`` is a number and ``2026-11-21`` is text.
    """
    with yaml_errors(where):
        table = _parse(text)
    if not isinstance(table, dict):
        raise UserError(f"{where}: expected sections such as 'task:' and 'model:', found none")
    return copy.deepcopy(table)


@functools.lru_cache(maxsize=32)
def _parse(text: str) -> object:
    """Parse a text in YAML, and remember the result, which is not to be changed."""
    from omegaconf import OmegaConf  # here, as PyYAML below: --help does without them

    return OmegaConf.to_container(OmegaConf.create(text))


@contextlib.contextmanager
def yaml_errors(where: str) -> Iterator[None]:
    """Turn PyYAML's errors in the block into a UserError with ``where``, line and problem."""
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{where}{line}: not valid YAML: {error.problem}") from None
    except RecursionError:
        raise UserError(
            f"{where}: a value contains itself (an alias *name inside the value that it refers "
            "to), or is nested too deeply: write the value out"
        ) from None
