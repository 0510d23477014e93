"""vaswani check: a card for people or machines, a template that runs, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import planted_bugs as mutants
from transformer_check import check
from transformer_check.findings import DIFFERENCE, ERROR
from transformer_check.registry import CHECKS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "check"
FILE = """
from transformer_check.template import CONFIG, build, logits as right

def logits(model, source, target):
    {}
"""
#: the command where what a bare install lacks cannot be imported: fairseq, and the extras' packages
COMMAND = """
import sys
for name in "fairseq hydra omegaconf yaml tqdm sacremoses subword_nmt sentencepiece".split():
    sys.modules[name] = None
for name in "sacrebleu requests matplotlib".split():
    sys.modules[name] = None
from vaswani.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


def test_the_template_passes_every_check_without_fairseq(cli: Any, tmp_path: Path) -> None:
    """The three of beam search after a training, which ended after 80 to 140 of 400 updates.

    So it did with five seeds, on each of three instruction sets.
    """
    template = cli("check", "--template")
    (tmp_path / "mine.py").write_text(template.out, encoding="utf-8")
    command = [sys.executable, "-c", COMMAND, "check", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first = "mine.py: 0 errors, 0 differences, 0 variants; "
    assert done.stdout.startswith(f"{first}{len(CHECKS)} passed, 0 not run"), done.stdout


def test_an_error_is_shown_and_exits_with_1(cli: Any, tmp_path: Path) -> None:
    leaky = tmp_path / "leaky.py"
    leaky.write_text(FILE.format("return right(model, source, target).roll(-1, 1)"))
    done = cli("check", str(leaky), "--select", "3.2.3")
    assert done.code == 1
    assert "ERROR: The decoder attends to future tokens.  [causal-mask, 3.2.3]" in done.out
    card = json.loads(cli("check", str(leaky), "--select", "3.2.3", "--json").out)
    assert card["counts"]["error"] >= 1
    wrong = [item["id"] for item in card["checks"] if item["status"] == "error"]
    assert "causal-mask" in wrong


def test_a_difference_exits_with_0_but_strict_fails_for_what_the_file_does_not_accept(
    cli: Any, tmp_path: Path
) -> None:
    file = tmp_path / "scaled.py"
    text = FILE.format("return 2 * right(model, source, target)")
    file.write_text(text, encoding="utf-8")
    differs = cli("check", str(file), "--select", "3.4")
    assert differs.code == 0
    assert "[output-scale, 3.4]" in differs.out
    strict = cli("check", str(file), "--select", "3.4", "--strict")
    assert strict.code == 1
    assert "[output-scale, 3.4]" in strict.out
    file.write_text(f"{text}\nACCEPT = ['output-scale']", encoding="utf-8")
    accepted = cli("check", str(file), "--select", "3.4", "--strict")
    assert accepted.code == 0
    assert "Accepted         The logits are multiplied by 2 [output-scale]" in accepted.out
    unknown = cli("check", str(file), "--select", "3.9")
    assert (unknown.code, unknown.out) == (1, "")
    assert "--select 3.9: there is no check or section of this name" in unknown.err


def test_explain_needs_no_file(cli: Any) -> None:
    done = cli("check", "--explain", "target-shift")
    assert done.code == 0
    assert "decoder_input = F.pad(target[:, :-1], (1, 0), value=start)" in done.out
    assert "In this project: transformer_check/template.py:" in done.out
    wrong = cli("check", "--explain", "shift")
    assert (wrong.code, wrong.out) == (1, "")


def test_a_file_that_fails_is_one_sentence_with_the_functions_name(
    cli: Any, tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text(FILE.format("return target"))
    done = cli("check", str(tmp_path / "bad.py"))
    assert (done.code, done.out) == (1, "")
    assert "logits() returned a tensor of int64 [2, 5]: expected a tensor of floats" in done.err
    assert cli("check").code == 1


def test_what_a_file_prints_is_not_part_of_its_card(cli: Any, tmp_path: Path) -> None:
    chatty = tmp_path / "chatty.py"
    text = FILE.format("print('shapes:', source.shape); return right(model, source, target)")
    chatty.write_text(f"print('loading'){text}", encoding="utf-8")
    done = cli("check", str(chatty), "--select", "3.4", "--json")
    card = json.loads(done.out)
    assert card["counts"]["error"] == 0
    assert card["not_covered"][-1] == "averaged checkpoints"
    assert "loading" in done.err
    assert "shapes:" in done.err


@pytest.mark.parametrize("where", ["on import", "in a function"])
def test_a_file_that_exits_has_failed(where: str, cli: Any, tmp_path: Path) -> None:
    ends = "import sys; sys.exit(0)"
    text = ends if where == "on import" else FILE.format(ends)
    (tmp_path / "ends.py").write_text(text, encoding="utf-8")
    done = cli("check", str(tmp_path / "ends.py"))
    assert (done.code, done.out) == (1, "")
    assert "raised SystemExit" in done.err


def test_the_homeworks_card_is_the_one_of_the_page() -> None:
    """docs/check.md gives the answers."""
    card = check(EXAMPLES / "homework.py")
    assert card.ids(ERROR) == ["source-padding"]
    assert [problem.check.id for problem in card.problems] == [
        "source-padding",
        "embedding-scale",
        "sinusoids",
        "adam",
        "embedding-dropout",
        "label-smoothing",
        "norm-epsilon",
        "output-bias",
        "shared-matrix",
    ]


def test_torchs_transformer_differs_only_in_its_training_and_on_purpose() -> None:
    card = check(EXAMPLES / "torch_nn.py")
    assert not card.ids(ERROR)
    differences = [p.check.id for p in card.problems if p.status == DIFFERENCE]
    assert differences == ["learning-rate", "label-smoothing"]


@pytest.mark.slow
def test_marian_has_the_papers_model() -> None:
    pytest.importorskip("transformers", reason="Marian's card is NOT tested", exc_type=ImportError)
    card = check(EXAMPLES / "marian.py")
    assert not card.ids(ERROR)
    assert card.ids(DIFFERENCE) == ["length-penalty"]


#: bug of docs/bugs.md → a check that has to find it, if it is planted in a copy of the sources
QUIZ = {
    "embedding-not-scaled": "embedding-scale",
    "causal-mask-missing": "causal-mask",
    "positions-missing": "source-order",
    "warmup-missing": "learning-rate",
    "step-at-the-next-position": "beam-search",
    "labels-not-shifted": "target-shift",
    "residual-missing": "residual-connections",
    "dropout-in-evaluation": "evaluation-dropout",
    "kernel-not-scaled": "equation-1-scale",
    "padding-not-masked": "source-padding",
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", QUIZ)
def test_the_quiz_can_be_solved_with_the_check(bug: str, tmp_path: Path) -> None:
    place = mutants.copy_sources(tmp_path / "sources")
    assert mutants.plant(bug, place)
    command = [sys.executable, "-m", "vaswani", "check", "examples/check/fairseq_model.py"]
    variables = {**mutants.environment(place), "OURS": "1"}
    done = subprocess.run(
        [*command, "--json"], cwd=place, env=variables, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    named = [item["id"] for item in checks if item["status"] in ("error", "difference")]
    assert QUIZ[bug] in named, named
