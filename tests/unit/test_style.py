"""The sources keep the rules of CONTRIBUTING's section "Style" that a program can check."""

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("vaswani_transformer", "transformer_check", "transformer_plugin", "vaswani")
TOOLS = ("benchmarks", "experiments", "scripts", "examples", ".ci")
FOLDERS = (*PACKAGES, *TOOLS, "tests")
#: models as others write them
EXCLUDED = ROOT / "tests" / "plain" / "check_styles"

#: line, and what to do
Problem = tuple[int, str]
Rule = Callable[[ast.Module], Iterator[Problem]]
Function = ast.FunctionDef | ast.AsyncFunctionDef

#: how a docstring of a function may begin
VERBS = """
Add Allocate Allow Answer Append Apply Assert Attend Average Begin Binarise Block Build Call Change
Check Choose Clear Close Collect Commit Compare Compile Complete Compute Continue Convert Copy
Correct Count Decide Decode Define Describe Determine Differentiate Discard Distort Divide Do
Download Draw Drop Embed Encode End Enter Estimate Execute Expect Export Fill Find Fit Follow Forget
Format Gather Give Group Have Hide Hold Ignore Import Join Keep Learn Leave Let Limit List Load Lock
Log Look Make Mark Measure Merge Move Multiply Name Normalise Note Open Overwrite Pack Pad Parse
Pass Plan Plant Prepare Print Process Project Publish Put Raise Read Record Reduce Register Release
Remove Rename Replace Report Reproduce Restore Return Reverse Rotate Round Run Save Say Score Search
Send Separate Serve Set Shorten Show Silence Skip Sort Split Start Stop Store Sum Summarise Suppress
Swap Switch Take Tell Test Time Trace Train Transform Translate Turn Unpack Update Use Validate Wait
Warn Watch Wrap Write Yield
"""
LEAST_WORDS = 4
#: names that need their neighbours to be understood
VAGUE = {"found", "given", "kept", "known", "meant", "one", "others", "said"}
#: functions that take all of a generator
CONSUMERS = {"all", "any", "deque", "dict", "list", "set", "sum", "tuple"}


def sources(folders: tuple[str, ...]) -> Iterator[Path]:
    """Yield the path of every module in some folders of the repository, relative to its root."""
    paths = list(ROOT.glob("*.py"))
    for folder in folders:
        paths += sorted((ROOT / folder).rglob("*.py"))
    for path in paths:
        if EXCLUDED not in path.parents:
            yield path.relative_to(ROOT)


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file of the repository, once for all rules."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def offenders(rule: Rule, folders: tuple[str, ...] = FOLDERS) -> list[str]:
    """Return ``FILE:LINE: what to do`` for every line that breaks a rule."""
    lines = []
    for path in sources(folders):
        lines += [f"{path}:{line}: {advice}" for line, advice in rule(parsed(path))]
    return lines


def functions(tree: ast.Module) -> Iterator[Function]:
    """Yield the functions of a module, with those inside classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def is_property(function: Function) -> bool:
    """Return whether a function is a property or a part of one."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def docstrings(tree: ast.Module) -> Iterator[Problem]:
    """Yield docstrings of functions that begin with no verb, or say nothing.

    A property is described by a noun, and a test by the claim that it checks.
    """
    for function in functions(tree):
        docstring = ast.get_docstring(function)
        if docstring is None or is_property(function):
            continue
        line = function.body[0].lineno
        words = docstring.partition("\n\n")[0].split()
        verb = words[0].rstrip(",.:;") if words else ""
        if len(words) < LEAST_WORDS:
            yield line, f"name what {function.name} returns or does, in four words or more"
        elif verb not in VERBS.split() and not function.name.startswith("test_"):
            advice = "begin with an imperative verb, such as 'Return'"
            yield line, f"{advice} (or add {verb!r} to VERBS in {Path(__file__).name} if it is one)"


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    assert offenders(docstrings) == []


@pytest.mark.parametrize(
    "docstring, advice",
    [
        ("Whether the mask is causal.", "begin with an imperative verb, such as 'Return' (or add"),
        ("The mask of later words.", "begin with an imperative verb"),
        ("``1 line``, ``2 lines``, and so on.", "begin with an imperative verb"),
        ("None.", "name what f returns or does, in four words or more"),
        ("Return the mask.", "name what f returns or does, in four words or more"),
    ],
)
def test_a_docstring_without_a_verb_or_without_words_is_found(docstring: str, advice: str) -> None:
    tree = ast.parse(f'class A:\n    def f(self):\n        """{docstring}"""\n')
    [(line, problem)] = docstrings(tree)
    assert line == 3 and problem.startswith(advice)


def test_a_property_and_a_test_need_no_verb_but_words() -> None:
    text = """
        @functools.cached_property
        def mask(self):
            "The mask."

        def test_mask():
            "A later word is hidden."

        def test_masks():
            "Every mask."
        """
    [(line, problem)] = docstrings(ast.parse(textwrap.dedent(text)))
    assert line == 10 and problem.startswith("name what test_masks")


def assignments(tree: ast.Module) -> Iterator[Problem]:
    """Yield assignments of several values that are not of one kind, or to attributes.

    Alike are constants of a type, calls of a function, or calls of a method or on an object. An
    exchange needs its values at the same time.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        targets = [target for target in node.targets if isinstance(target, ast.Tuple)]
        if not targets:
            continue
        names = {ast.unparse(name) for name in targets[0].elts}
        values = {ast.unparse(part) for part in ast.walk(node.value) if isinstance(part, ast.expr)}
        if names & values:
            continue
        to_attributes = any(isinstance(name, ast.Attribute) for name in targets[0].elts)
        if to_attributes or not set.intersection(*map(kinds, node.value.elts)):
            yield node.lineno, "assign one value on each line"


def kinds(value: ast.expr) -> set[str]:
    """Return what other values must share with this one to be alike."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return {f"method {value.func.attr}", f"on {ast.unparse(value.func.value)}"}
    if isinstance(value, ast.Call):
        return {f"call of {ast.unparse(value.func)}"}
    if isinstance(value, ast.UnaryOp):
        return kinds(value.operand)
    if isinstance(value, ast.Constant):
        is_number = isinstance(value.value, int | float)
        return {"number" if is_number else type(value.value).__name__}
    return {type(value).__name__}


def comprehensions(tree: ast.Module) -> Iterator[Problem]:
    """Yield comprehensions of three loops, or of two loops with a condition."""
    for node in ast.walk(tree):
        loops = getattr(node, "generators", [])
        if len(loops) > 2 or len(loops) == 2 and any(loop.ifs for loop in loops):
            yield node.lineno, "write loops, or a comprehension for each loop"


def walruses(tree: ast.Module) -> Iterator[Problem]:
    """Yield walruses that are not all of the condition of an ``if`` or ``while``."""
    conditions = {id(node.test) for node in ast.walk(tree) if isinstance(node, ast.If | ast.While)}
    for node in ast.walk(tree):
        if isinstance(node, ast.NamedExpr) and id(node) not in conditions:
            yield node.lineno, "assign on a line of its own"


def consumed(tree: ast.Module) -> Iterator[Problem]:
    """Yield comprehensions and generators that are only run, as ``list(map(f, x))`` is."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr):
            continue
        called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
        if called in CONSUMERS or hasattr(node.value, "generators"):
            yield node.lineno, "write a loop"


def names(tree: ast.Module) -> Iterator[Problem]:
    """Yield variables and arguments whose name is a participle or a pronoun."""
    for function in functions(tree):
        for node in ast.walk(function):
            name = getattr(node, "arg", None) if isinstance(node, ast.arg) else None
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            if name in VAGUE:
                yield node.lineno, f"call {name!r} by a noun: what it is"


@pytest.mark.parametrize("rule", [assignments, comprehensions, walruses])
def test_a_line_does_one_thing(rule: Rule) -> None:
    assert offenders(rule) == []


def test_no_generator_is_consumed_for_what_it_does_by_the_way() -> None:
    """A test may: it expects an error."""
    assert offenders(consumed, (*PACKAGES, *TOOLS)) == []


def test_names_are_nouns() -> None:
    """A test may call a result ``found``, beside ``expected``, and so does the check's card."""
    folders = {*PACKAGES, *TOOLS} - {"transformer_check"}
    assert offenders(names, tuple(sorted(folders))) == []


def test_no_row_is_kept_from_the_formatter() -> None:
    rows = []
    for path in sources(FOLDERS):
        if re.search(r"# fmt: (skip|off)", (ROOT / path).read_text(encoding="utf-8")):
            rows.append(path)
    assert rows == []


@pytest.mark.parametrize(
    "rule, code",
    [
        (assignments, "name, heads = f'layers.{number}', config['heads']"),
        (assignments, "x, heads = torch.randn(2), 4"),
        (assignments, "self.source, self.target = source, target"),
        (assignments, "found, expected = gradients(ours), from_fairseq(theirs)"),
        (comprehensions, "[word for line in text if line for word in line]"),
        (comprehensions, "{a for b in c for d in b for a in d}"),
        (walruses, "codes = {name: code for name in names if (code := run(name))}"),
        (walruses, "if ready and (code := run()): exit(code)"),
        (consumed, "list(map(run, commands))"),
        (consumed, "[run(command) for command in commands]"),
        (consumed, "any(run(command) for command in commands)"),
        (names, "def f(given): return given"),
        (names, "def f(rows):\n    for one in rows: print(one)"),
        (names, "def f(rows):\n    found = []\n    return found"),
    ],
)
def test_a_line_that_does_more_is_found(rule: Rule, code: str) -> None:
    assert len([*rule(ast.parse(code))]) == 1


@pytest.mark.parametrize(
    "rule, code",
    [
        (assignments, "query, key = self.query(x), self.key(memory)"),
        (assignments, "source, target = batch.source, batch.target"),
        (assignments, "first, second = second, first"),
        (assignments, "PAD, EOS = 1, 2"),
        (comprehensions, "[word for line in text for word in line]"),
        (comprehensions, "[line for line in text if line]"),
        (walruses, "while block := stream.read(size): digest.update(block)"),
        (consumed, "run(command for command in commands)"),
        (names, "def f(rows):\n    for row in rows: print(row)"),
    ],
)
def test_a_plain_line_is_left_alone(rule: Rule, code: str) -> None:
    assert [*rule(ast.parse(code))] == []


def test_no_function_has_more_than_60_lines_and_no_file_more_than_400() -> None:
    """The walkthrough is exempt: one page of the whole paper, in cells."""
    long = []
    for path in sources((*PACKAGES, *TOOLS)):
        lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
        if lines > 400 and path.name != "paper.py":
            long.append(str(path))
        for function in functions(parsed(path)):
            if (function.end_lineno or 0) - function.lineno >= 60:
                long.append(f"{path}: {function.name}")
    assert long == []
