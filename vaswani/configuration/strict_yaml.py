"""YAML as it is meant: what PyYAML would quietly read as something else is refused, with its line.

A key that stands twice (the last would win), numbers in base 8 or 60 (``010`` is 8 in YAML 1.1,
``1:15`` is 75), and aliases that unfold to more than any experiment holds. ``1e-4`` is a number
and ``2026-11-21`` is text, as in omegaconf's reader, which fairseq-hydra-train has.
"""

import re
from pathlib import Path
from typing import Any, Dict, List

import yaml

from vaswani.errors import UserError

#: of a file, and of what its aliases unfold to; the largest experiment has 100 values in 5 kB
MOST_BYTES, MOST_VALUES = 1_000_000, 100_000
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_LEADING_ZERO = re.compile(r"[-+]?0(o[0-7_]+|[0-9_]+)")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+")


class _Refused(yaml.constructor.ConstructorError):
    """What YAML allows and an experiment does not."""

    def __init__(self, problem: str, node: yaml.Node) -> None:
        super().__init__(None, None, problem, node.start_mark)


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, without its surprises."""

    def get_single_data(self) -> Any:
        """The document, unless its aliases unfold to too much."""
        node = self.get_single_node()
        if node is None:
            return None
        if _values(node, {}) > MOST_VALUES:
            raise _Refused(f"its aliases unfold to more than {MOST_VALUES:,} values", node)
        return self.construct_document(node)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """A number in base 10 (or, said plainly, 16 or 2)."""
        text = str(node.value)
        if _BASE_60.fullmatch(text):
            raise _Refused(
                f"{text} is a number in base 60 to YAML: write it in base 10, or in quotes if it "
                "is text",
                node,
            )
        if _LEADING_ZERO.fullmatch(text) and text.strip("+-0_"):
            raise _Refused(
                f"{text} may be read in base 8: write it without the zero in front, or in quotes "
                "if it is text",
                node,
            )
        if _FLOAT.fullmatch(text):
            return float(text.replace("_", ""))
        if node.tag.endswith(":int"):
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)


def _values(node: yaml.Node, known: Dict[int, int]) -> int:
    """How many values a node unfolds to, counted without unfolding; ``known`` by its parts' ids.

    Raises:
        _Refused: a node that holds itself, or a table with a key twice.
    """
    if id(node) in known:
        if known[id(node)] == 0:  # begun, not done
            raise _Refused("an alias holds itself", node)
        return known[id(node)]
    known[id(node)] = 0
    parts: List[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        parts = node.value
    elif isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        seen = set()
        for key in keys:
            if key.value in seen:
                raise _Refused(f"'{key.value}' stands here twice: keep one of the two", key)
            seen.add(key.value)
    known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]


def _set_up() -> None:
    """Which plain words are numbers: more than YAML 1.1's, so that they can be refused."""
    kept = {
        first: [(tag, pattern) for tag, pattern in rules if not tag.endswith(":timestamp")]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    StrictLoader.yaml_implicit_resolvers = kept
    for pattern in (_LEADING_ZERO, _FLOAT):
        whole = re.compile(f"^(?:{pattern.pattern})$")
        StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", whole, list("-+.0123456789"))
    for kind in ("int", "float"):
        StrictLoader.add_constructor(f"tag:yaml.org,2002:{kind}", StrictLoader.construct_number)


_set_up()


def parse(text: str, where: str) -> Any:
    """The value that a YAML text stands for; ``where`` it is from, for messages.

    Raises:
        UserError: no YAML, or one that reads as something else than is meant.
    """
    try:
        return yaml.load(text, StrictLoader)  # noqa: S506  (derived from the safe one)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark and "\n" in text.strip() else ""
        invalid = "" if isinstance(error, _Refused) else "not valid YAML: "
        raise UserError(f"{where}{line}: {invalid}{error.problem or error.context}") from None
    except RecursionError:
        raise UserError(f"{where}: brackets or lists are nested too deeply in it") from None
    except (yaml.YAMLError, ValueError, LookupError) as error:
        raise UserError(f"{where}: not valid YAML: {str(error).splitlines()[0]}") from None


def read_table(path: Path) -> Dict[str, Any]:
    """A YAML file whose top level is a table.

    Raises:
        UserError: not readable as YAML (with the line), or not a table.
    """
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path}: too long for an experiment, {path.stat().st_size:,} bytes")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid YAML in UTF-8: {error}") from None
    content = parse(text, str(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected sections such as 'task:' and 'model:', found none")
    return content
