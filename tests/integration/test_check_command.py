"""vaswani check: a card for people or machines, a template that runs, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transformer_check import check
from transformer_check.card import DIFFERS, ERROR, ON_PURPOSE

EXAMPLES = Path(__file__).resolve().parents[2] / "transformer_check" / "known"
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
    counted = done.stdout.splitlines()[0].removeprefix("mine.py: ").partition(" checks: ")
    assert counted[2] == f"{counted[0]} as in the paper"


def test_an_error_is_shown_and_exits_with_1(cli: Any, tmp_path: Path) -> None:
    leaky = tmp_path / "leaky.py"
    leaky.write_text(FILE.format("return right(model, source, target).roll(-1, 1)"))
    done = cli("check", str(leaky))
    assert done.code == 1
    assert "3.2.3   ERROR: later target words change nothing" in done.out
    found = json.loads(cli("check", str(leaky), "--json").out)
    assert found["counts"]["error"] >= 1
    wrong = [item["check"] for item in found["checks"] if item["status"] == "error"]
    assert "later target words change nothing" in wrong


def test_a_difference_that_is_no_error_exits_with_0(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text(FILE.format("return right(model, source, target)"))
    assert cli("check", str(tmp_path / "fine.py")).code == 0


def test_a_file_that_fails_is_one_sentence_with_the_functions_name(
    cli: Any, tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text(FILE.format("return target"))
    done = cli("check", str(tmp_path / "bad.py"))
    assert (done.code, done.out) == (1, "")
    assert "logits returned a tensor of int64 [2, 5]: expected a tensor of floats" in done.err
    assert cli("check").code == 1


def test_what_a_file_prints_is_not_part_of_its_card(cli: Any, tmp_path: Path) -> None:
    chatty = tmp_path / "chatty.py"
    text = FILE.format("print('shapes:', source.shape); return right(model, source, target)")
    chatty.write_text(f"print('loading'){text}", encoding="utf-8")
    done = cli("check", str(chatty), "--json")
    card = json.loads(done.out)
    assert card["counts"]["error"] == 0
    assert card["not_looked_at"][-1] == "averaged checkpoints"
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
    assert card.titles(ERROR) == ["source padding changes nothing"]
    assert card.titles(DIFFERS) == [
        "embeddings are multiplied by √d_model",
        "target: embeddings are multiplied by √d_model",
        "sinusoids have the paper's values",
        "target: sinusoids have the paper's values",
        "Adam has β = (0.9, 0.98) and ε = 1e-9",
        "dropout is in the paper's places",
        "dropout is on the sum of embedding and position",
        "target: dropout is on the sum of embedding and position",
        "the loss is label-smoothed cross entropy",
    ]
    assert len(card.titles(ON_PURPOSE)) == 4


def test_torchs_transformer_differs_only_in_its_training_and_on_purpose() -> None:
    card = check(EXAMPLES / "torch_nn.py")
    assert not card.titles(ERROR)
    assert card.titles(DIFFERS) == [
        "the learning rate is equation 3",
        "the loss is label-smoothed cross entropy",
    ]


@pytest.mark.slow
def test_marian_has_the_papers_model() -> None:
    pytest.importorskip("transformers", reason="Marian's card is NOT tested", exc_type=ImportError)
    card = check(EXAMPLES / "marian.py")
    assert not card.titles(ERROR)
    assert card.titles(DIFFERS) == ["beam search divides log P by ((5 + length) / 6)^0.6"]
