"""What was recorded (tests/recorded) is read, continued and translated as it was then."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from tests import stock
from tests.recorded.make import HERE, MODEL, RECORD
from transformer_plugin.checkpoints import load_checkpoint
from vaswani import Translator

#: the sizes of its model: one layer of width 16 on each side
SIZES = ["--arch", "vaswani_transformer_tiny", "--dropout", "0"]
for side in ("encoder", "decoder"):
    SIZES += [f"--{side}-layers", "1", f"--{side}-embed-dim", "16"]
    SIZES += [f"--{side}-ffn-embed-dim", "32", f"--{side}-attention-heads", "2"]


@pytest.fixture(scope="module")
def official_stack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the results of the official stack, and return their folder."""
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(HERE / "official_stack.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "official_stack"


def test_the_shipped_model_gives_the_recorded_translations_and_scores():
    rows = json.loads(RECORD.read_text(encoding="utf-8"))
    found = Translator.from_pretrained(MODEL).translate([row["source"] for row in rows])
    assert [one.text for one in found] == [row["text"] for row in rows]
    assert [one.score for one in found] == pytest.approx([row["score"] for row in rows], abs=1e-4)


def test_a_checkpoint_of_the_official_stack_decodes_to_the_same_text(official_stack):
    checkpoint = str(official_stack / "checkpoint_last.pt")
    lines = stock.generate(official_stack / "data-bin", checkpoint, "--remove-bpe")
    found = {int(number): text[-1] for number, text in stock.results(lines, "D").items()}
    assert [found[n] for n in sorted(found)] == (
        official_stack / "test.hyp"
    ).read_text().splitlines()


def test_a_checkpoint_of_the_official_stack_is_trained_on(official_stack, tmp_path):
    shutil.copy(official_stack / "checkpoint_last.pt", tmp_path)
    before = load_checkpoint(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]
    more = ["--max-tokens", "400", "--max-update", "905", "--no-epoch-checkpoints"]
    stock.train(official_stack / "data-bin", tmp_path, *more, model=SIZES)
    after = load_checkpoint(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]
    assert (before["num_updates"], after["num_updates"]) == (900, 905)
