"""What an earlier version left (tests/frozen) is read, continued and decoded as it was then."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch

from tests import stock
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.experiment.checkpoints import run_of
from vaswani.experiment.validation import Validation

FROZEN = Path(__file__).resolve().parents[1] / "frozen" / "0.1.0.tar.xz"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("frozen")
    with tarfile.open(FROZEN) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def work(frozen, tmp_path, monkeypatch) -> Path:
    """A copy of it, which is the current folder."""
    folder = tmp_path / "work"
    shutil.copytree(frozen, folder)
    monkeypatch.chdir(folder)
    return folder


def files(folder: Path) -> dict:
    """Path and content of all files but locks."""
    found = (path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)
    return {path: path.read_bytes() for path in found}


def test_prepared_data_are_not_made_again(work, capsys):
    before = files(work / "data")
    arguments = [f"--{part}=text/{part}" for part in ("train", "valid", "test")]
    languages = ["--source-lang", "en", "--target-lang", "de"]
    bpe = ["--bpe", "60", "--out", "data/numbers"]
    assert stock.vaswani("prepare", *languages, *arguments, *bpe) == 0
    assert "already prepared from the same text and options" in capsys.readouterr().err
    after = files(work / "data")
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert changed <= {"recipe.yaml", "recipe.yaml.json"}  # which has the options of today


def test_a_finished_run_has_nothing_left_to_train(work, capsys):
    checkpoints = work / "runs/numbers/checkpoints"
    before = files(checkpoints)
    assert stock.vaswani("train", "numbers.yaml") == 0
    assert "other options" not in capsys.readouterr().err  # nor is --init of any matter
    assert files(checkpoints) == before


def test_a_run_is_trained_on(work):
    assert stock.vaswani("train", "numbers.yaml", "optimization.max_update=905") == 0
    last = work / "runs/numbers/checkpoints/checkpoint_last.pt"
    checkpoint = load_checkpoint(last)
    assert checkpoint["optimizer_history"][-1]["num_updates"] == 905
    assert checkpoint["extra_state"]["train_iterator"]["epoch"] > 128


def test_a_run_has_the_same_average_translations_and_scores(work):
    run = work / "runs/numbers"
    average = run / "checkpoints/checkpoint_average_last2.pt"
    weights, hypotheses = load_checkpoint(average)["model"], (run / "eval/test.hyp").read_bytes()
    scores = json.loads((run / "eval/test.score.json").read_text())
    average.unlink()
    shutil.rmtree(run / "eval")
    assert stock.vaswani("average", "numbers", "--last", "2") == 0
    again = load_checkpoint(average)["model"]
    assert list(again) == list(weights)
    assert all(torch.equal(again[name], value) for name, value in weights.items())
    assert stock.vaswani("generate", str(average)) == 0 and stock.vaswani("score", "numbers") == 0
    assert (run / "eval/test.hyp").read_bytes() == hypotheses
    found = json.loads((run / "eval/test.score.json").read_text())["bleu"]
    assert found.items() >= scores["bleu"].items()


def test_a_model_folder_translates_as_its_run_did(work):
    assert (
        stock.vaswani("translate", "runs/numbers/model", "text/test.en", "--output", "out.de") == 0
    )
    assert Path("out.de").read_bytes() == Path("runs/numbers/eval/test.hyp").read_bytes()


def test_a_checkpoint_of_the_official_stack_decodes_to_the_same_text(work):
    lines = stock.generate(
        Path("data/numbers/data-bin"), "official/checkpoint_last.pt", "--remove-bpe"
    )
    found = {int(number): text[-1] for number, text in stock.results(lines, "D").items()}
    assert [found[n] for n in sorted(found)] == Path("official/test.hyp").read_text().splitlines()


@pytest.mark.parametrize("folder", ["runs/numbers/checkpoints", "official"])
def test_its_validation_loss_is_what_it_was(work, folder):
    """Also that of a checkpoint of the other stack: ``val_loss`` has three digits."""
    last = Path(folder) / "checkpoint_last.pt"
    state = load_checkpoint(last)
    loss = Validation(last, run_of(last)).measured(state["model"])["loss"]
    assert loss == pytest.approx(state["extra_state"]["val_loss"], abs=1e-3)
