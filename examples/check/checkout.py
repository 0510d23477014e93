"""Imports from a repository, whose checkout the environment variable CHECKOUT names."""

import ast
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if "CHECKOUT" not in os.environ:
    raise SystemExit("set CHECKOUT to the folder of a checkout; the record names its commit")
FOLDER = Path(os.environ["CHECKOUT"])
sys.path.insert(0, str(FOLDER))


def source_of(file: str) -> str:
    """Return the Python code of a file, of a notebook's cells, or of a page's PyTorch blocks."""
    text = (FOLDER / file).read_text(encoding="utf-8")
    if file.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    elif file.endswith(".md"):
        block = r"^```\{\.python \.input\}\n%%tab pytorch\n(.*?)^```"
        text = "\n".join(re.findall(block, text, re.MULTILINE | re.DOTALL))
    return re.sub(r"^[%!].*$", "", text, flags=re.MULTILINE)


def definitions(
    file: str, only: tuple[str, ...] = (), changes: dict[str, str] | None = None, **names: Any
) -> SimpleNamespace:
    """Return the classes and functions of a file whose other statements cannot be run here.

    Args:
        file: its path in the checkout
        only: the classes and functions to define; all, if not given
        changes: text to replace, where the code needs an older torch
        names: the imports of that file that they need
    """
    source = source_of(file)
    for old, new in (changes or {}).items():
        source = source.replace(old, new)
    tree = ast.parse(source)
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and (not only or node.name in only)
    ]
    exec(compile(tree, file, "exec"), names)
    return SimpleNamespace(**names)
