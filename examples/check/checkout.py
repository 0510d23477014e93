"""Imports from somebody's repository, whose checkout the environment variable CHECKOUT names."""

import ast
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if "CHECKOUT" not in os.environ:
    raise SystemExit("set CHECKOUT to the folder of a checkout; its record names the commit")
FOLDER = Path(os.environ["CHECKOUT"])
sys.path.insert(0, str(FOLDER))


def definitions(file: str, **names: Any) -> SimpleNamespace:
    """The classes and functions of a file whose imports or other statements cannot be run here.

    Args:
        file: its path in the checkout
        names: what they need of that file's imports
    """
    tree = ast.parse((FOLDER / file).read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    exec(compile(tree, file, "exec"), names)
    return SimpleNamespace(**names)
