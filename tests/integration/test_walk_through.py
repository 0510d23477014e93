"""examples/walkthrough/paper.py, the walk through the paper, and the notebook made from it."""

import ast
import inspect
import json
import lzma
import re
import runpy
import sys
import textwrap
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from vaswani_transformer.vocabulary import UNK

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "examples" / "walkthrough" / "paper.py"
DEMO = ROOT / "models" / "demo_en_de"
NUMBERS = [str(number) for number in range(1, 17)]
cells = runpy.run_path(str(ROOT / "scripts" / "paper_notebook.py"))["cells"]
CELLS = cells(PAGE.read_text(encoding="utf-8"))
#: what the page must do without; section 14 may have the last one
SKELETON_FUNCTIONS = [
    "my_causal_mask",
    "my_heads",
    "my_positions",
    "my_feed_forward",
    "my_add_and_norm",
    "my_encoder_layer",
    "my_decoder_layer",
    "my_loss",
    "my_learning_rate",
]
ABSENT = ["fairseq", "transformer_plugin", "vaswani", "subword_nmt", "sacremoses", "sacrebleu"]
ABSENT += ["yaml", "omegaconf", "hydra", "safetensors"]
#: in the cell of section 11 that trains a model; it and those after it take most of the time
TRAINS = "in range(2, 601):"
#: how many sections have an answer before that cell
ANSWERED_BEFORE = 11


class Run(NamedTuple):
    """What is left of the page when it has run; by the number of a section where it says so."""

    shown: list[Any]
    """the functions whose source it showed"""
    variables: dict[str, dict[str, Any]]
    """of each section, at its end"""
    answers: dict[str, list[Exception | None]]
    """of each section, what the code in its folded answers raised"""
    is_whole: bool = True
    """False if it stopped before its first training"""


def answer_in(text: str) -> str | None:
    """Return the code in the folded answer of a Markdown cell."""
    folded = re.search(r"<details><summary>Answer</summary>\n\n(.*?)\n</details>", text, re.DOTALL)
    return re.search(r"```python\n(.*?)```", folded[1], re.DOTALL)[1] if folded else None  # type: ignore[index]


def outcome(code: str, variables: dict[str, Any]) -> Exception | None:
    """Return the exception of an answer, without changing variables or random numbers."""
    with torch.random.fork_rng():
        try:
            exec(code, dict(variables))
        except Exception as error:
            return error
    return None


def run_page(patch: pytest.MonkeyPatch, cells: list[tuple[str, str]]) -> Run:
    """Run the cells one after the other, and each answer where it stands."""
    allowed = pytest.importorskip("safetensors")
    for name in ABSENT:
        patch.setitem(sys.modules, name, None)
    section = "0"
    variables = {}
    run = Run([], {}, {})
    for kind, text in cells:
        if kind == "code":
            exec(compile(text, f"section {section}", "exec"), variables)
            continue
        answer = answer_in(text)
        if answer:
            run.variables[section] = dict(variables)
            run.answers.setdefault(section, []).append(outcome(answer, variables))
        for section in re.findall(r"^## (\d+) ", text, re.MULTILINE):
            patch.setitem(sys.modules, "safetensors", allowed if section == "14" else None)
    run.variables[section] = dict(variables)
    return run


PARTS = [
    pytest.param(False, id="to the first training"),
    pytest.param(True, id="whole", marks=pytest.mark.slow),
]
on_the_whole_page = pytest.mark.parametrize("page", PARTS[1:], indirect=True)


@pytest.fixture(scope="module", params=PARTS)
def page(request) -> Run:
    """Run the page, or what comes before its first training: every assert on it holds."""
    trains = [TRAINS in text for _, text in CELLS].index(True)
    cells = CELLS if request.param else CELLS[:trains]
    pyplot = pytest.importorskip("matplotlib.pyplot")
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, pyplot.rc_context(), redirect_stdout(StringIO()):
        pyplot.switch_backend("agg")
        patch.setattr(pyplot, "show", lambda: pyplot.close("all"))
        patch.syspath_prepend(str(PAGE.parent))
        import paper_helpers

        shown: list[Any] = []
        patch.setattr(paper_helpers, "code", lambda *functions: shown.extend(functions))
        run = run_page(patch, cells)
    torch.set_num_threads(threads)
    torch.set_printoptions(profile="default")
    return run._replace(shown=shown, is_whole=request.param)


def test_the_sections_are_those_of_the_contents() -> None:
    """Sixteen, in order, and each link leads to a heading."""
    text = "\n".join(cell for kind, cell in CELLS if kind == "markdown")
    titles = re.findall(r"^## (\d+ .*)$", text, re.MULTILINE)
    links = re.findall(r"^\| (\d+) \| \[(.*?)\]\(#(.*?)\)", text, re.MULTILINE)
    assert [f"{number} {title}" for number, title, _ in links] == titles
    assert [link for _, _, link in links] == [title.replace(" ", "-") for title in titles]
    assert [title.split()[0] for title in titles] == NUMBERS


def test_every_section_has_an_exercise_whose_answer_holds(page) -> None:
    assert list(page.answers) == (NUMBERS if page.is_whole else NUMBERS[:ANSWERED_BEFORE])
    failed = {number: errors for number, errors in page.answers.items() if any(errors)}
    assert failed == {}


def readers_functions() -> dict[str, str]:
    """Return the functions that the page asks for, by name, from its folded answers."""
    sources = {}
    for kind, text in CELLS:
        answer = answer_in(text) if kind == "markdown" else None
        for statement in ast.parse(answer or "").body:
            if isinstance(statement, ast.FunctionDef) and statement.name.startswith("my_"):
                sources[statement.name] = ast.unparse(statement)
    return sources


def test_the_answers_in_the_skeleton_are_the_papers_transformer(tmp_path) -> None:
    """As a reader ends up with: nothing differs, and no function of the skeleton is left over."""
    from transformer_check import check, load

    sources = readers_functions()
    lines = []
    for statement in ast.parse((PAGE.parent / "skeleton.py").read_text(encoding="utf-8")).body:
        is_readers = isinstance(statement, ast.FunctionDef) and statement.name.startswith("my_")
        lines.append(sources[statement.name] if is_readers else ast.unparse(statement))
    assert set(sources) == {*SKELETON_FUNCTIONS, "my_attention"}
    (tmp_path / "mine.py").write_text("\n\n".join(lines), encoding="utf-8")
    card = check(load(tmp_path / "mine.py"))
    assert card.ids("difference", "error") == [], card.text()


def test_the_skeleton_says_which_section_a_function_is_from() -> None:
    variables = runpy.run_path(str(PAGE.parent / "skeleton.py"))
    functions = {name: f for name, f in variables.items() if name.startswith("my_")}
    assert list(functions) == SKELETON_FUNCTIONS
    for function in functions.values():
        arguments = [None] * function.__code__.co_argcount
        with pytest.raises(NotImplementedError, match=r"section \d+"):
            function(*arguments)


def test_the_text_is_split_as_for_the_demos_model(page) -> None:
    """subword-nmt's own splits, and no subword of the text is unknown."""
    seen = page.variables["11"]
    with lzma.open(ROOT / "examples/demo_text/test.en.xz", "rt", encoding="utf-8") as lines:
        sentences = [line.strip() for line in lines]
    from subword_nmt.apply_bpe import BPE

    with open(DEMO / "bpecodes", encoding="utf-8") as codes:
        bpe = BPE(codes)
    for sentence in sentences:
        tokenised = " ".join(seen["words"](sentence))
        assert seen["subwords"](sentence) == bpe.process_line(tokenised).split()
    assert not any(UNK in side for pair in seen["TRAIN"] for side in pair)
    assert seen["PAIR"] not in seen["TRAIN"]


@on_the_whole_page
def test_the_small_model_has_learned_to_copy_before_it_is_asked_for_more(page) -> None:
    """Section 15: 99 % at each trained length, before the last update that it may have."""
    seen = page.variables["15"]
    assert seen["number"] < 2000
    assert min(seen["by_length"][length] for length in range(2, 7)) > 0.95


def test_a_source_is_shown_whole_and_without_its_docstring(page) -> None:
    """No line of code is missing, and it fits beside a text."""
    source_of = runpy.run_path(str(PAGE.parent / "paper_helpers.py"))["source_of"]
    assert {function.__name__ for function in page.shown} >= {"attention", "learning_rate"}
    for function in page.shown:
        whole = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
        definition = whole.body[0]
        assert isinstance(definition, ast.FunctionDef)
        if ast.get_docstring(definition):
            definition.body = definition.body[1:]
        shown = source_of(function)
        assert ast.dump(ast.parse(shown)) == ast.dump(whole)
        lines = shown.split("\n")
        assert len(lines) <= 35 and max(map(len, lines)) <= 100, function.__qualname__


def test_the_notebook_is_the_page(page) -> None:
    """Its cells are those of the page, all were run, in order, and none failed.

    What it shows of our sources is what they are now.
    """
    text = PAGE.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert len(text) < 1_500_000
    notebook = json.loads(text)
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert found == CELLS, "run python scripts/paper_notebook.py"
    run = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in run] == list(range(1, len(run) + 1))
    outputs = [output for cell in run for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert {output["name"] for output in outputs if "name" in output} == {"stdout"}
    drawn = sum("image/png" in output.get("data", {}) for output in outputs)
    assert drawn == sum("plt.show()" in "".join(cell["source"]) for cell in run) > 10
    source_of = runpy.run_path(str(PAGE.parent / "paper_helpers.py"))["source_of"]
    sources = [output["data"] for output in outputs if "text/markdown" in output.get("data", {})]
    shown = ["".join(data["text/plain"]) for data in sources]
    in_page = list(map(source_of, page.shown))
    assert len(in_page) == len(shown) if page.is_whole else len(in_page) > 20
    assert shown[: len(in_page)] == in_page, "run python scripts/paper_notebook.py"
    for data, source in zip(sources, shown, strict=True):
        assert f"```python\n{source}\n```" in "".join(data["text/markdown"])
