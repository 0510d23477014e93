"""The direction of imports and the size of files, read off the source.

What may import what is stated here once. A new file of the plugin needs a line in ``MAY_IMPORT``.
"""

import ast
import sys
from pathlib import Path
from typing import Iterator, List, Set, Tuple

import pytest

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
        *{"fast.attention", "fast.dropout", "fast.linear", "fast.malloc"},
        *{"inference", "initialisation", "layers"},
    },
    "criterion": {"config", "fast.chunked_loss", "loss"},
    "optimizer": {"config"},
    "lr_schedule": {"config"},
    "checkpoints.parameters": set(),
    "checkpoints.pickle_bounds": set(),
    "checkpoints.outline": {"checkpoints.pickle_bounds"},
    "checkpoints.reading": {"checkpoints.outline", "checkpoints.parameters"},
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
    "task": {"batch_size", "config", "search.generator"},
    "compat.loading": {"checkpoints", "checkpoints.parameters", "compat.scope"},
    "compat.saving": set(),
    "compat.scope": set(),
    "compat.dictionaries": {"checkpoints", "compat.scope"},
    "compat.resuming": {"checkpoints", "compat.dictionaries", "compat.scope"},
    "compat.batches": {"compat.scope", "config"},
    "compat.data": {"config"},
    "compat.decoding": set(),
    "compat.divergence": set(),
    "compat.generation_options": {"compat.scope", "config"},
    "compat.refusals": {"checkpoints", "compat.scope", "config"},
    "compat.stale_warnings": set(),
    "compat": {f"compat.{path.stem}" for path in (PLUGIN / "compat").glob("[a-z]*.py")},
    "__init__": {"compat", "criterion", "lr_schedule", "model", "optimizer", "task"},
}
TORCH_ONLY = ["attention", "cache", "embedding", "layers", "loss", "precision"]
TORCH_ONLY += [f"fast.{path.stem}" for path in (PLUGIN / "fast").glob("[a-z]*.py")]
# the rooms of vaswani/, highest first: each may import those below it
ROOMS = [
    *("cli", "commands", "paper", "attention_page", "export", "scoring", "planning", "decoding"),
    *("model_folder", "data", "experiment", "demo", "common"),
]
#: 'vaswani reproduce' calls the other verbs, and says what a result takes before it does
UP = {("paper", "commands")}
SLOW_TO_IMPORT = {"torch", "fairseq", "fairseq_cli", "transformer_plugin"}
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 60

plugin_files = sorted(PLUGIN.rglob("*.py"))
command_files = sorted(COMMANDS.rglob("*.py"))
room_files = [path for path in command_files if path.name != "__init__.py"]
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


@pytest.mark.parametrize("path", plugin_files, ids=module_of)
def test_imports_inside_the_plugin_go_down(path: Path) -> None:
    name = module_of(path)
    assert name in MAY_IMPORT, f"say in MAY_IMPORT what {path.name} may import"
    assert own_modules(path) <= MAY_IMPORT[name]


def test_what_may_import_what_has_no_circle() -> None:
    """The table itself goes one way: files can be taken off it one by one, lowest first."""
    left = {name: set(below) for name, below in MAY_IMPORT.items()}
    while left:
        lowest = {name for name, below in left.items() if not below & set(left)}
        assert lowest, f"these import each other: {sorted(left)}"
        left = {name: below for name, below in left.items() if name not in lowest}


@pytest.mark.parametrize("path", plugin_files, ids=module_of)
def test_the_plugin_needs_no_command(path: Path) -> None:
    assert {n for n in imports(path) if n.split(".")[0] in ("vaswani", "tests")} == set()


@pytest.mark.parametrize("name", TORCH_ONLY)
def test_the_formulas_need_torch_only(name: str) -> None:
    outside = {
        n.split(".")[0] for n in imports(PLUGIN.joinpath(*name.split(".")).with_suffix(".py"))
    } - {PLUGIN.name}
    assert outside - set(sys.stdlib_module_names) <= {"torch"}


@pytest.mark.parametrize("path", command_files, ids=lambda p: str(p.relative_to(ROOT)))
def test_help_is_not_kept_waiting(path: Path) -> None:
    """``vaswani --help`` answers in half a second: what takes seconds is imported in functions."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_import = [
        n for node in statements_at_import(tree.body) for n in imported_names(node, package)
    ]
    assert {n for n in at_import if n.split(".")[0] in SLOW_TO_IMPORT} == set()


@pytest.mark.parametrize("path", command_files, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_commands_need_no_tests_and_no_benchmarks(path: Path) -> None:
    outside = {"tests", "benchmarks", "scripts", "examples"}
    assert {n for n in imports(path) if n.split(".")[0] in outside} == set()


def room_of(path: Path) -> str:
    """The room that a file of vaswani/ is in: its folder, or ``cli``."""
    return path.relative_to(COMMANDS).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", room_files, ids=lambda p: str(p.relative_to(COMMANDS)))
def test_imports_between_rooms_go_down(path: Path) -> None:
    room = room_of(path)
    assert room in ROOMS, f"say in ROOMS where {room} is"
    imported = {n.split(".")[1] for n in imports(path) if n.startswith("vaswani.")} & set(ROOMS)
    allowed = set(ROOMS[ROOMS.index(room) :])
    assert {name for name in imported - allowed if (room, name) not in UP} == set()


def test_the_verbs_and_their_files() -> None:
    """``vaswani/commands`` has one file for each verb, and nothing else."""
    files = {path.stem for path in (COMMANDS / "commands").glob("*.py")} - {"__init__"}
    assert files == {verb.replace("-", "_") for verb in VERBS}


def test_no_folder_is_scanned_by_fairseq() -> None:
    """fairseq imports what lies in ``models/`` and ``tasks/``, but only at the first import."""
    assert not (PLUGIN / "models").exists()
    assert not (PLUGIN / "tasks").exists()


@pytest.mark.parametrize(
    "path", plugin_files + command_files + other_files, ids=lambda p: str(p.relative_to(ROOT))
)
def test_sizes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    # a walk through the whole paper, in cells, is as long as it is
    assert text.count("\n") <= LINES_OF_A_FILE or path == ROOT / "examples" / "paper.py"
    functions: List[Tuple[str, int]] = [
        (node.name, (node.end_lineno or 0) - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    assert [f for f in functions if f[1] > LINES_OF_A_FUNCTION] == []
