"""Reads YAML as it is meant: what PyYAML would silently misread is refused, with its line.

Refused is a key that occurs twice: the last would win. ``1e-4`` is a number and ``2026-11-21`` is
text, as in omegaconf's reader, which fairseq-hydra-train uses.
"""

import re
from pathlib import Path
from typing import Any, Dict

import yaml

from vaswani.common.errors import UserError

_FLOAT = re.compile(r"^[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$")


class _Refused(yaml.constructor.ConstructorError):
    """Something that YAML allows but an experiment does not."""

    def __init__(self, problem: str, node: yaml.Node) -> None:
        super().__init__(None, None, problem, node.start_mark)


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, without its surprises."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A table, unless a key occurs in it twice."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _Refused(f"'{key.value}' occurs twice: keep one of the two", key)
                seen.add(key.value)
        return node


StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if not tag.endswith(":timestamp")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def parse(text: str, where: str) -> Any:
    """The value of a YAML text; ``where`` names its origin in messages.

    Raises:
        UserError: it is not YAML, or would be read as something other than was meant.
    """
    try:
        return yaml.load(text, StrictLoader)  # noqa: S506  (derived from the safe one)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark and "\n" in text.strip() else ""
        invalid = "" if isinstance(error, _Refused) else "not valid YAML: "
        raise UserError(f"{where}{line}: {invalid}{error.problem or error.context}") from None


def read_table(path: Path) -> Dict[str, Any]:
    """A YAML file whose top level is a table.

    Raises:
        UserError: not readable as YAML (with the line), or not a table.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid YAML in UTF-8: {error}") from None
    content = parse(text, str(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected sections such as 'task:' and 'model:', found none")
    return content
