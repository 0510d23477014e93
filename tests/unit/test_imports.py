"""What imports what: the contracts of pyproject.toml, and what ``--help`` may wait for."""

import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from vaswani.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]
IMPORT_COMMANDS = """
import importlib, pkgutil, sys
import vaswani.cli
import vaswani.commands
for found in pkgutil.iter_modules(vaswani.commands.__path__, "vaswani.commands."):
    importlib.import_module(found.name)
print(*{"torch", "fairseq", "fairseq_cli", "transformer_plugin"} & set(sys.modules))
"""


def test_imports_keep_the_contracts_of_pyproject():
    """In a process of its own: it switches off the loggers that there are."""
    check = "import importlinter.cli as cli; raise SystemExit(cli.lint_imports(no_cache=True))"
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_help_does_not_wait_for_torch():
    """A command imports what takes seconds in ``run``; the packages below import it at the top."""
    command = [sys.executable, "-c", IMPORT_COMMANDS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


#: modules, and the packages that they have to do without
WITHOUT = {
    "translate and attention, of a packed model": (
        "decoding.torch_engine decoding.translated_file attention_page.maps attention_page.page "
        "attention_page.picture commands.translate commands.attention",
        "fairseq fairseq_cli omegaconf hydra yaml transformer_plugin",
    ),
    "translate, with an export": (
        "decoding.ctranslate2_engine decoding.translated_file commands.translate",
        "torch fairseq fairseq_cli omegaconf hydra yaml transformer_plugin",
    ),
    "each process of prepare": ("data.pipeline", "torch fairseq fairseq_cli transformer_plugin"),
}


@pytest.mark.parametrize("modules, packages", WITHOUT.values(), ids=WITHOUT)
def test_what_has_to_do_without_a_package_does(modules, packages):
    program = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({packages.split()}))\n"
        f"for name in {modules.split()}:\n"
        "    importlib.import_module(f'vaswani.{name}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


#: verb → the most files of ``vaswani`` that may be needed to understand it, itself included
FILES = {"train": 24, "plan": 19, "prepare": 32, "translate": 30}


@pytest.mark.parametrize("verb", FILES)
def test_a_command_is_read_in_few_files(verb):
    """All that it imports, and what that imports, also inside functions."""
    graph = grimp.build_graph("vaswani", cache_dir=None)
    module = f"vaswani.commands.{verb}"
    needed = {module, *graph.find_upstream_modules(module)}
    files = sorted(name for name in needed if not graph.find_children(name))
    assert len(files) <= FILES[verb], files


def test_experiments_run_no_example_as_a_script():
    scripts = [
        path
        for path in (ROOT / "experiments").rglob("*.py")
        if re.search(r"\brunpy\b", path.read_text(encoding="utf-8"))
    ]
    assert scripts == []


def test_each_verb_has_a_file_and_each_file_is_a_verb():
    files = {path.stem for path in (ROOT / "vaswani" / "commands").glob("[a-z]*.py")}
    assert files == {verb.replace("-", "_") for verb in VERBS}


@pytest.mark.parametrize("folder", ["models", "tasks"])
def test_fairseq_scans_no_folder_of_the_plugin(folder):
    """It imports what lies in folders of these names, but only at the first import."""
    assert not (ROOT / "transformer_plugin" / folder).exists()


def test_torchs_objects_are_left_out_of_garbage_collection():
    """In a process of its own; the collector is as it was afterwards."""
    program = (
        "import gc; from vaswani.common.environment import import_torch;"
        "import_torch(); frozen = gc.get_freeze_count(); import torch;"
        "gc.collect(); import_torch();"
        "print(frozen > 50_000, gc.get_freeze_count() == frozen, gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True True True\n"), done.stderr
