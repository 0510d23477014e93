"""The names of the files in a user's folders are known to one module each."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from vaswani.folders.prepared_text import STAGES

PACKAGE = Path(__file__).resolve().parents[2] / "vaswani"
#: name → the module that may have it
NAMES = {
    "recipe.yaml": "folders/prepared_text.py",
    ".stages": "folders/prepared_text.py",
    "data-bin": "folders/data_bin.py",
    **dict.fromkeys(
        [
            *("config.yaml", "env.json", "train.jsonl", "train.log", "curve.png", "finished.json"),
            *("checkpoint_last.pt", "checkpoint_best.pt", "eval", ".score.json"),
        ],
        "folders/run.py",
    ),
    "vaswani.json": "folders/model_folder.py",
    "README.md": "folders/model_folder.py",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module of ``vaswani``, parsed, with its path in it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text(encoding="utf-8"))


def constants(tree: ast.AST) -> set[str]:
    """Return the words and texts in a module; a part of a message is not the name alone."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def joined_to_paths(tree: ast.AST) -> set[str]:
    """Return the names that a module joins to paths, as in ``folder / "text"``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            names |= constants(node.right)
    return names


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_is_in_one_module(name: str) -> None:
    assert [path for path, tree in modules() if name in constants(tree)] == [NAMES[name]]


def test_a_stage_of_prepared_text_is_no_path_elsewhere() -> None:
    users = {path: joined_to_paths(tree) & set(STAGES) for path, tree in modules()}
    assert {path: names for path, names in users.items() if names} == {}


def test_json_is_read_by_the_modules_that_know_the_files() -> None:
    """Others get records with types."""
    users = []
    for path, tree in modules():
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if "read_json" in names:
            users.append(path)
    assert users and {path.partition("/")[0] for path in users} <= {"folders", "common"}
