"""The maps of the plugin name every file of it, and nothing that is gone."""

import ast
import re
from pathlib import Path
from typing import Set, Tuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "transformer_plugin"
PACKAGES = sorted(path.parent for path in PLUGIN.rglob("__init__.py"))
SECTIONS = {"CONTRIBUTING.md": "Where a thing goes"}


def contents(folder: Path) -> Set[str]:
    """The modules and packages of a folder as a map names them: ``loss.py``, ``fast/``."""
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    return files | {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}


def section(page: str) -> str:
    """The part of a page that is a map."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {SECTIONS[page]}\n")[2].partition("\n## ")[0]


def named(text: str) -> Tuple[Set[str], Set[str]]:
    """The Python files and the folders that a text names."""
    text = text.replace("`transformer_plugin/", "`")
    files = set(re.findall(r"(?<![\w/.])(?:[\w.]+/)*\w+\.py\b", text))
    return files, set(re.findall(r"(?<![\w/.])(?:\w+/)+(?![\w.])", text))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_names_what_is_in_it(package: Path) -> None:
    """In the docstring; ``../loss.py`` is a file beside the package."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    files, folders = named(ast.get_docstring(tree) or "")
    assert {name for name in files | folders if "../" not in name} == contents(package)
    assert [name for name in files if not (package / name).is_file()] == []


@pytest.mark.parametrize("page", SECTIONS)
def test_a_page_names_every_file(page: str) -> None:
    """Each file of the plugin's root, and each of its packages."""
    files, folders = named(section(page))
    assert contents(PLUGIN) - files - folders == set()
    places = (PLUGIN, ROOT, ROOT / "vaswani")
    gone = [name for name in files | folders if not any((p / name).exists() for p in places)]
    assert gone == []


def test_every_fast_form_says_what_it_equals() -> None:
    """In the docstring of its file."""
    for path in (PLUGIN / "fast").glob("[a-z]*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert " equal to " in docstring, path.name
