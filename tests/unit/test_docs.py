"""What the documents point to is there, and files are as short as CONTRIBUTING promises."""

import ast
import re
import shlex
from pathlib import Path

from vaswani import cli

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("vaswani_transformer", "transformer_plugin", "vaswani", "benchmarks", "scripts")
FOLDERS += ("examples",)


def test_the_drawing_of_figure_1_names_files_that_exist():
    """docs/figure1.svg: each box says which file of the plugin it is."""
    named = set(
        re.findall(r"\b\w+\.py\b", (ROOT / "docs" / "figure1.svg").read_text(encoding="utf-8"))
    )
    assert len(named) > 5
    there = {path.name for path in (ROOT / "vaswani_transformer").rglob("*.py")}
    assert named <= there


def test_no_function_has_more_than_60_lines_and_no_file_more_than_400():
    """But for examples/paper.py: a walk through the whole paper, in cells, is as long as it is."""
    long = []
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if text.count("\n") > 400 and path.name != "paper.py":
                long.append(str(path))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 60:
                    long.append(f"{path}: {node.name}")
    assert long == []


def test_the_documents_commands_can_be_given(monkeypatch):
    """Verbs, options and choices in blocks of shell; none is run."""
    for verb in cli.VERBS:
        monkeypatch.setattr(cli.module_of(verb), "run", lambda options: 0)
    given = []
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if "vaswani" in words:
                    given.append(words[words.index("vaswani") + 1 :])
    assert len(given) > 20
    for words in given:
        ends = [n for n, word in enumerate(words) if word in {"|", "&&", ";", ">", "2>"}]
        assert cli.run_verb(words[: min(ends, default=None)]) == 0, words
