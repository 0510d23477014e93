"""README's first screen: the commands give what it prints, and the flags for fairseq are enough."""

import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from scripts import demo_report
from tests import stock
from tests.shared import SIZES
from transformer_plugin.checkpoints import load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
(CONSOLE,) = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def answer(command: str) -> list[str]:
    """Return the lines below a command, up to the next."""
    after = CONSOLE.partition(f"$ {command}")[2].partition("\n")[2]
    return after.partition("$ ")[0].splitlines()


def test_the_shipped_model_answers_as_printed(cli: Any, monkeypatch: Any) -> None:
    command = next(line for line in CONSOLE.splitlines() if "vaswani translate" in line)
    said, translate = command.removeprefix("$ ").split(" | ")
    text = shlex.split(said)[1] + "\n"
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    ended = cli(*shlex.split(translate)[1:])
    assert ended.out.splitlines() == answer(command.removeprefix("$ "))
    assert ended.err == ""


def test_the_demo_ends_with_lines_of_this_form() -> None:
    """Its numbers depend on the processor, within the range that the page gives."""
    bleu, right = (line for line in answer("make demo") if line != "…")
    score, signature = bleu.split()[1:]
    low, high = map(float, re.findall(r"scores ([\d.]+) to ([\d.]+) BLEU,", README)[0])
    assert low <= float(score) <= high
    report = {
        "bleu": {"score": float(score), "signature": signature},
        "exact_match": float(right.split()[-2]),
        "numbers_right": 0.0,
        "nearest_training_sentence_bleu": 0.0,
        "training": {"updates": 0, "seconds": 0.0},
        "generation_seconds": 0.0,
        "stage_seconds": {},
    }
    assert demo_report.summary(report)[:2] == [bleu, right]


def test_a_stock_command_with_two_flags_more_trains_our_model(
    tiny_data_bin: Path, tmp_path: Path, cli: Any
) -> None:
    """As printed, but for the sizes; the path of README was found in a checkout alone."""
    section = README.partition("## Use it in fairseq")[2]
    block = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]
    folder = cli("plugin-dir").out.strip()
    words = shlex.split(block.replace('"$(vaswani plugin-dir)"', folder).replace("\\\n", " "))
    assert words[:4] == ["fairseq-train", "DATA", "--user-dir", folder]
    sizes = [f"--{name.replace('_', '-')}={size}" for name, size in SIZES.items()]
    stock.train(tiny_data_bin, tmp_path, "--max-update", "2", model=sizes, recipe=words[2:])
    saved = load_checkpoint(tmp_path / "checkpoint_last.pt")
    assert saved["optimizer_history"][-1]["num_updates"] == 2
    assert saved["cfg"]["model"]["_name"] == "vaswani_transformer"


def test_the_table_has_its_seven_rows() -> None:
    table = README.partition("| I want to … |")[2].partition("\n\n")[0]
    assert len(re.findall(r"^\| (?!-)", table, re.MULTILINE)) == 7
    assert "not run by us yet" in table
