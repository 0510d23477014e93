"""Makes docs/paper.md: each part of the paper, our code for it, and the tests that check it.

    python scripts/paper_index.py            write the page
    python scripts/paper_index.py --check    exit 1 if the page is stale, or an item has no test

The items come from docs/paper.yaml. Code is found by the names of classes and functions, tests by
``@pytest.mark.paper("3.2.1")``. The page links to files, not to lines: it changes when a name, a
file or a mark does, not with every edit.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("vaswani_transformer", "transformer_plugin", "vaswani", "benchmarks")
PAGE = ROOT / "docs" / "paper.md"
HEAD = """# The paper as an index

Find the code and the tests of each part of "Attention Is All You Need"
([arXiv:1706.03762](https://arxiv.org/abs/1706.03762)). For all differences see
[fidelity](fidelity.md), for explanations [the walkthrough](../examples/walkthrough/paper.ipynb). To
make this page again:

```sh
python scripts/paper_index.py
```
"""

Definition = ast.ClassDef | ast.FunctionDef


@lru_cache(maxsize=None)
def definitions(path: Path) -> list[Definition]:
    """Return the classes and functions of a file, including those inside classes."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))]


def find_code(name: str) -> str:
    """Return a link to a file of the project, or to the only class or function of that name.

    Raises:
        SystemExit: there is none, or more than one.
    """
    if "/" in name:
        if not (ROOT / name).is_file():
            raise SystemExit(f"docs/paper.yaml: there is no file {name}")
        return f"[`{name}`](../{name})"
    files = files_that_define(name)
    if len(files) != 1:
        raise SystemExit(f"docs/paper.yaml: '{name}' is defined {len(files)} times")
    return f"[`{name}`](../{files[0].relative_to(ROOT)})"


def files_that_define(name: str) -> list[Path]:
    """Return the files with a class or function of that name, once for each definition."""
    files = []
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            names = [definition.name for definition in definitions(path)]
            files += [path] * names.count(name)
    return files


def marks(decorators: list[ast.expr]) -> Iterator[str]:
    """Yield the keys in ``pytest.mark.paper(…)`` among decorators."""
    for call in decorators:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.paper":
            yield from (ast.literal_eval(key) for key in call.args)


def find_tests() -> dict[str, list[str]]:
    """Return links to the tests of each item of the paper; pytestmark marks a whole file."""
    links: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        target = f"../{path.relative_to(ROOT)}"
        for key in marks_of_file(path):
            links.setdefault(key, []).append(f"[{path.stem}]({target})")
        for node in definitions(path):
            for key in marks(node.decorator_list):
                links.setdefault(key, []).append(f"[{node.name}]({target})")
    return links


def marks_of_file(path: Path) -> Iterator[str]:
    """Yield the keys in ``pytestmark = pytest.mark.paper(…)``."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(statement, ast.Assign):
            continue
        if ast.unparse(statement.targets[0]) == "pytestmark":
            yield from marks([statement.value])


def page(items: dict[str, dict[str, Any]], tests: dict[str, list[str]]) -> tuple[str, list[str]]:
    """Return the page as Markdown, and its mistakes."""
    lines = [HEAD]
    problems = [f"no item '{key}' in docs/paper.yaml" for key in tests.keys() - items]
    for key, item in items.items():
        name = key if not key[0].isdigit() else f"section {key}"
        lines.append(f"## {name[0].upper() + name[1:]}: {item['title']}\n\n{item['says']}\n")
        lines.append("- **code**: " + ", ".join(map(find_code, item["code"])))
        held = tests.get(key, [])
        if not held:
            problems.append(f"no test is marked with '{key}'")
        lines.append("- **tests**: " + ", ".join(held))
        if item.get("deviation"):
            lines.append(f"- **difference**: {item['deviation']}")
        lines.append("")
    return "\n".join(lines), sorted(problems)


def main(argv: list[str]) -> int:
    """Write or check the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true")
    check = options.parse_args(argv).check
    items = yaml.safe_load((ROOT / "docs" / "paper.yaml").read_text(encoding="utf-8"))
    text, problems = page(items, find_tests())
    stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif stale:
        problems.append("docs/paper.md is stale: run python scripts/paper_index.py")
    for problem in problems:
        print(f"paper_index.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
