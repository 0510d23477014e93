"""The direction of imports and the size of files, read off the source.

What may import what is stated here once. A new file of the plugin needs a line in ``MAY_IMPORT``.
"""

import ast
import sys
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Set

from vaswani.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "transformer_plugin"
COMMANDS = ROOT / "vaswani"

# file of the plugin (a folder stands for its __init__.py) → the files of the plugin that it may
# import, lowest first
MAY_IMPORT = {
    "cache": set(),
    "loss": set(),
    "precision": set(),
    "fast.processor": set(),
    "fast.linear": {"fast.processor"},
    "fast.dropout": set(),
    "fast.attention": set(),
    "fast.malloc": set(),
    "fast.chunked_loss": {"fast.linear", "fast.processor", "loss", "precision"},
    "fast": set(),
    "attention": {"cache", "fast.attention", "fast.dropout", "fast.linear"},
    "embedding": {"fast.dropout"},
    "layers": {"attention", "cache", "fast.dropout", "fast.linear"},
    "initialisation": {"attention", "layers"},
    "config": {
        "attention",
        "embedding",
        "initialisation",
        "precision",
    },  # only for the names of their choices
    "encoder": {"attention", "config", "embedding", "layers", "precision"},
    "decoder": {
        *{"attention", "cache", "config", "embedding", "encoder", "layers", "loss", "precision"},
    },
    "inference": {"config", "fast.dropout", "fast.linear", "precision"},
    "model": {
        *{"checkpoints", "checkpoints.parameters", "config", "decoder", "embedding", "encoder"},
        *{"fast.dropout", "fast.linear", "fast.malloc"},
        *{"inference", "initialisation", "layers"},
    },
    "criterion": {
        *{"compat.translation_task", "config", "decoder", "fast.chunked_loss", "fast.linear"},
        *{"loss", "task"},
    },
    "optimizer": {"config"},
    "lr_schedule": {"config"},
    "checkpoints.parameters": set(),
    "checkpoints.reading": {"config"},
    "checkpoints": {"checkpoints.reading"},
    "search.scoring_rules": set(),
    "search.history": set(),
    "search.beam_search": {"search.history", "search.scoring_rules"},
    "search.generator": {
        *{"cache", "config", "decoder", "loss", "precision"},
        *{"search.beam_search", "search.scoring_rules"},
    },
    "search": set(),
    "batch_size": set(),
    "valid_bleu": {"config", "search.generator"},
    "task": {
        *{"batch_size", "compat.translation_task", "config", "search.generator", "valid_bleu"},
    },
    "compat.replacing": set(),
    "compat.stale_warnings": set(),
    "compat.dictionaries": set(),
    "compat.generation_options": {"config"},
    "compat.batches": {"compat.replacing"},
    "compat.data": {"compat.replacing"},
    "compat.decoding": {"compat.replacing"},
    "compat.divergence": {"compat.replacing"},
    "compat.saving": {"compat.replacing", "compat.resuming", "compat.translation_task"},
    "compat.translation_task": {
        *{"checkpoints", "compat.dictionaries", "compat.generation_options"},
        *{"compat.replacing", "compat.scope", "config", "fast.malloc"},
    },
    "compat.scope": set(),
    "compat.loading": {
        *{"checkpoints", "checkpoints.parameters", "compat.replacing", "compat.scope"},
    },
    "compat.resuming": {
        *{"checkpoints", "compat.dictionaries", "compat.replacing", "compat.translation_task"},
    },
    "compat": {f"compat.{path.stem}" for path in (PLUGIN / "compat").glob("[a-z]*.py")},
    "__init__": {"compat", "criterion", "lr_schedule", "model", "optimizer", "task"},
}
TORCH_ONLY = ["attention", "cache", "embedding", "layers", "loss", "precision"]
TORCH_ONLY += [f"fast.{path.stem}" for path in (PLUGIN / "fast").glob("[a-z]*.py")]
# the packages of vaswani/, highest first: each may import those below it
ORDER = [
    *("__main__", "cli", "commands", "paper", "attention_page", "export", "scoring", "planning"),
    *("decoding", "model_folder", "data", "experiment", "common"),
]
SLOW_TO_IMPORT = {"torch", "fairseq", "fairseq_cli", "transformer_plugin"}
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 60

plugin_files = sorted(PLUGIN.rglob("*.py"))
command_files = sorted(COMMANDS.rglob("*.py"))
ordered_files = [path for path in command_files if path.name != "__init__.py"]
other_files = [
    path
    for folder in ("benchmarks", "scripts", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def imported_names(node: ast.AST, package: str) -> List[str]:
    """The dotted names that one statement imports, relative ones made absolute."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        parts = package.split(".")
        above = parts[: len(parts) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        return [f"{module}.{alias.name}" for alias in node.names]
    return []


def packages(names: Iterable[str]) -> Set[str]:
    """The first parts of dotted names."""
    return {name.split(".")[0] for name in names}


def imports(path: Path) -> Set[str]:
    """Every dotted name that a file imports, wherever in the file."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {name for node in nodes for name in imported_names(node, package)}


def statements_at_import(body: List[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs when a file is imported: everything outside functions and type checking."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        for part in ("body", "orelse", "finalbody"):
            yield from statements_at_import(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from statements_at_import(handler.body)


def module_of(path: Path) -> str:
    """The dotted name of a file inside the plugin: ``compat.saving``; of a folder, ``compat``."""
    parts = path.relative_to(PLUGIN).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def own_modules(path: Path) -> Set[str]:
    """The files of the plugin that a file imports, as ``module_of`` names them."""
    known = {module_of(p) for p in plugin_files}
    found = set()
    for name in imports(path):
        package, *parts = name.split(".")
        if package == PLUGIN.name:
            while parts and ".".join(parts) not in known:  # the name of something in a file
                parts.pop()
            found.add(".".join(parts) or "__init__")
    return found


def offending(paths: Iterable[Path], find: Callable[[Path], Collection[Any]]) -> Dict[str, Any]:
    """What was found in each file, without the files in which nothing was."""
    found = {str(path.relative_to(ROOT)): find(path) for path in paths}
    return {path: what for path, what in found.items() if what}


def test_imports_inside_the_plugin_go_down() -> None:
    names = {module_of(path) for path in plugin_files}
    assert names <= MAY_IMPORT.keys(), "say in MAY_IMPORT what a new file may import"
    assert not offending(plugin_files, lambda p: own_modules(p) - MAY_IMPORT[module_of(p)])


def test_what_may_import_what_has_no_circle() -> None:
    """The table itself goes one way: files can be taken off it one by one, lowest first."""
    left = {name: set(below) for name, below in MAY_IMPORT.items()}
    while left:
        lowest = {name for name, below in left.items() if not below & set(left)}
        assert lowest, f"these import each other: {sorted(left)}"
        left = {name: below for name, below in left.items() if name not in lowest}


def test_the_plugin_needs_no_command() -> None:
    assert not offending(plugin_files, lambda path: packages(imports(path)) & {"vaswani", "tests"})


def test_the_formulas_need_torch_only() -> None:
    files = [PLUGIN.joinpath(*name.split(".")).with_suffix(".py") for name in TORCH_ONLY]
    allowed = {PLUGIN.name, "torch", *sys.stdlib_module_names}
    assert not offending(files, lambda path: packages(imports(path)) - allowed)


def test_help_is_not_kept_waiting() -> None:
    """``vaswani --help`` answers in half a second: what takes seconds is imported in functions."""

    def slow(path: Path) -> Set[str]:
        package = ".".join(path.relative_to(ROOT).parent.parts)
        at_import = statements_at_import(ast.parse(path.read_text(encoding="utf-8")).body)
        names = (name for node in at_import for name in imported_names(node, package))
        return packages(names) & SLOW_TO_IMPORT

    assert not offending(command_files, slow)


def test_the_commands_need_no_tests_and_no_benchmarks() -> None:
    outside = {"tests", "benchmarks", "scripts", "examples"}
    assert not offending(command_files, lambda path: packages(imports(path)) & outside)


def place_of(path: Path) -> str:
    """Where in ORDER a file of vaswani/ is: its folder, or ``cli``."""
    return path.relative_to(COMMANDS).parts[0].removesuffix(".py")


def test_imports_between_packages_go_down() -> None:
    assert {place_of(path) for path in ordered_files} <= set(ORDER), "put a new one into ORDER"

    def upwards(path: Path) -> Set[str]:
        imported = {n.split(".")[1] for n in imports(path) if n.startswith("vaswani.")}
        return imported & set(ORDER[: ORDER.index(place_of(path))])

    assert not offending(ordered_files, upwards)


def test_commands_call_functions_below_not_each_other() -> None:
    """``reproduce`` alone calls others: it runs them."""
    others = [
        path for path in (COMMANDS / "commands").glob("[a-z]*.py") if path.stem != "reproduce"
    ]

    def commands(path: Path) -> Set[str]:
        return {name for name in imports(path) if name.startswith("vaswani.commands.")}

    assert not offending(others, commands)


def test_no_files_import_each_other() -> None:
    """Not in a longer circle either, nor inside functions.

    Files that import none of the others, or that none of the others imports, are in no circle.
    """
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ordered_files}
    names = {
        name: imports(path) for name, path in paths.items()
    }  # of modules, or of what is in one
    left = {
        name: {part for found in names[name] for part in (found, found.rpartition(".")[0])}
        & set(paths)
        for name in paths
    }
    while True:
        imported = set().union(*left.values())
        outside = {name for name, below in left.items() if not below or name not in imported}
        if not outside:
            break
        left = {name: below - outside for name, below in left.items() if name not in outside}
    assert not left, f"these import each other: {sorted(left)}"


def test_the_verbs_and_their_files() -> None:
    """``vaswani/commands`` has one file for each verb, and nothing else."""
    files = {path.stem for path in (COMMANDS / "commands").glob("*.py")} - {"__init__"}
    assert files == {verb.replace("-", "_") for verb in VERBS}


def test_no_folder_is_scanned_by_fairseq() -> None:
    """fairseq imports what lies in ``models/`` and ``tasks/``, but only at the first import."""
    assert not (PLUGIN / "models").exists()
    assert not (PLUGIN / "tasks").exists()


def test_sizes() -> None:
    def too_long(path: Path) -> Dict[str, int]:
        text = path.read_text(encoding="utf-8")
        lines = {
            node.name: (node.end_lineno or 0) - node.lineno + 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        # a walk through the whole paper, in cells, is as long as it is
        most = float("inf") if path == ROOT / "examples" / "paper.py" else LINES_OF_A_FILE
        long = {name: count for name, count in lines.items() if count > LINES_OF_A_FUNCTION}
        count = text.count("\n")
        return {**long, **({"the file": count} if count > most else {})}

    assert not offending(plugin_files + command_files + other_files, too_long)
