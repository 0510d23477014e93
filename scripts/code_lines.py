"""Lines of code, without blank lines, comments and docstrings:  python scripts/code_lines.py

Counts what git tracks: Python by package, templates and YAML by folder, then the Python of product,
tools and tests. It limits nothing: a limit made lines dense, and fewer lines are not the aim.
"""

import ast
import io
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: the folders of each group
GROUPS = {
    "product": ("vaswani", "transformer_plugin", "vaswani_transformer", "transformer_check"),
    "tools": ("benchmarks", "experiments", "scripts", "examples"),
    "tests": ("tests",),
}
TEMPLATES = {".j2", ".html", ".css", ".js"}
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def python_lines(text: str) -> int:
    """Count the lines with a token of code; a string over several lines counts with all of them."""
    lines: set = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def plain_lines(text: str) -> int:
    """Count the lines that are neither blank nor a # comment."""
    lines = (line.strip() for line in text.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


def count() -> Counter:
    """Count lines by (kind, top folder, folder in it)."""
    lines: Counter = Counter()
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, tracked.stdout.split("\0")):
        path = ROOT / name
        top, *inner = name.split("/")[:-1] or ["."]
        if not path.is_file() or "/records/" in name or name.startswith("benchmarks/results/"):
            continue
        folder = f"{top}/{inner[0]}" if inner else top
        if path.suffix == ".py":
            lines["Python", top, folder] += python_lines(path.read_text(encoding="utf-8"))
        elif path.suffix in TEMPLATES:
            lines["templates", top, folder] += plain_lines(path.read_text(encoding="utf-8"))
        elif path.suffix in {".yaml", ".yml"}:
            lines["YAML", top, folder] += plain_lines(path.read_text(encoding="utf-8"))
    return lines


def main() -> None:
    """Print the lines of each folder, then of each group."""
    lines = count()
    for (kind, _top, folder), number in sorted(lines.items()):
        print(f"{kind:10} {folder:34} {number:7,}")
    for group, folders in GROUPS.items():
        total = sum(
            number
            for (kind, top, _folder), number in lines.items()
            if kind == "Python" and top in folders
        )
        print(f"{group}: {total:,} lines of Python")


if __name__ == "__main__":
    main()
