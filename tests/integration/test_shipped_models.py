"""The trained models in models/, and the page of the demo's attention."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vaswani import Translator
from vaswani.commands.attention import COMMAND, RECORD
from vaswani.common.outputs import FolderOutputs, changed_files
from vaswani.folders.model_folder import SUMS, WEIGHTS, sums_of

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
MODEL = MODELS / "demo_en_de"
PAGE = MODELS / "demo_en_de_attention"


def test_the_shipped_model_is_as_it_was_made():
    """Whole, of halves and so small; and what it says of itself."""
    assert changed_files(MODEL, SUMS, sums_of(MODEL)) == []  # its card included
    assert {value.dtype for value in load_file(MODEL / WEIGHTS).values()} == {torch.float16}
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 2.2e6
    origin = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))["origin"]
    assert (origin["data"], origin["seed"], origin["stored_as"]) == ("demo_en_de", 1, "float16")


def test_git_changes_no_line_ends_in_model_folders():
    """Git for Windows does by default, and every hash would differ."""
    files = sorted(path.relative_to(ROOT).as_posix() for path in MODELS.rglob("*.*"))
    answer = subprocess.run(
        ["git", "check-attr", "text", *files], cwd=ROOT, capture_output=True, text=True
    )
    if answer.returncode:
        pytest.skip("needs git, in a clone")
    changed = [line for line in answer.stdout.splitlines() if not line.endswith("text: unset")]
    assert changed == []


def test_the_everyday_model_is_as_it_was_made_and_translates():
    model = MODELS / "tatoeba_en_de"
    assert changed_files(model, SUMS, sums_of(model)) == []
    assert sum(path.stat().st_size for path in model.iterdir()) < 20e6
    sentences = ["Can you help me?", "She has been living in Berlin since 2010."]
    translations = [one.text for one in Translator.from_pretrained(model).translate(sentences)]
    assert translations == ["Kannst du mir helfen?", "Sie lebt seit 2010 in Berlin."]


def test_the_shipped_page_is_whole_and_of_this_model():
    """A whole one, of this model's translation."""
    FolderOutputs(PAGE, RECORD, COMMAND).check()
    record = json.loads((PAGE / RECORD).read_text(encoding="utf-8"))
    (translation,) = Translator.from_pretrained(MODEL).translate([record["source"]])
    assert record["target"] == translation.text
    assert (record["model"], record["translated_by_the_model"]) == ("models/demo_en_de", True)
