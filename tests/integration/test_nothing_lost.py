"""A training that is interrupted, repeated or continued wrongly costs nothing that was saved.

By fairseq-train with our task, in this process; what `vaswani train` adds is at the end.
"""

import json
import shutil
from pathlib import Path
from typing import Dict

import pytest

from tests import stock
from tests.integration.test_vaswani import run, workplace  # noqa: F401
from transformer_plugin.checkpoints import CheckpointError, load_checkpoint

OURS = ["--task", "vaswani_translation"]
SMALL = [*OURS, "--batch-size", "40", "--max-tokens", "100000", "--update-epoch-batch-itr", "True"]
EVERY_3 = [*SMALL, "--save-interval-updates", "3", "--no-epoch-checkpoints"]


def updates(path: Path) -> int:
    return load_checkpoint(path)["optimizer_history"][-1]["num_updates"]


def contents(folder: Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.pt"))}


@pytest.fixture(scope="module")
def seven_updates(tiny_data_bin, tmp_path_factory) -> Path:
    """Checkpoints of updates 3, 6 and (best, last) 7."""
    folder = tmp_path_factory.mktemp("seven")
    stock.train(tiny_data_bin, folder, *EVERY_3, "--max-update", "7")
    return folder


@pytest.fixture
def begun(seven_updates, tmp_path) -> Path:
    """A copy of its own for each test."""
    return Path(shutil.copytree(seven_updates, tmp_path / "begun"))


# --- where a training goes on from -------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "damaged", "taken"),
    [
        (["last", "best"], [], "checkpoint_2_6.pt"),
        (["last"], ["best", "2_6"], "checkpoint_1_3.pt"),
        (["best"], ["last"], "checkpoint_2_6.pt"),
    ],
)
def test_without_the_last_checkpoint_it_goes_on_from_the_newest(
    begun, tiny_data_bin, missing, damaged, taken
):
    for name in missing:
        (begun / f"checkpoint_{name}.pt").unlink()
    for name in damaged:
        path = begun / f"checkpoint_{name}.pt"
        path.write_bytes(path.read_bytes()[:-100])
    lines = stock.train(tiny_data_bin, begun, *EVERY_3, "--max-update", "8")
    assert any(f"going on from {taken}" in line for line in lines)
    assert updates(begun / "checkpoint_last.pt") == 8


def test_if_none_can_be_read_nothing_is_trained_over_them(begun, tiny_data_bin):
    (begun / "checkpoint_last.pt").unlink()
    for path in begun.glob("*.pt"):
        path.write_bytes(path.read_bytes()[:-100])
    before = contents(begun)
    with pytest.raises(CheckpointError, match="damaged"):
        stock.train(tiny_data_bin, begun, *EVERY_3, "--max-update", "8")
    assert contents(begun) == before


def test_a_restore_file_that_does_not_exist_is_refused(tiny_data_bin, tmp_path):
    """fairseq starts over, in silence."""
    missing = ["--restore-file", str(tmp_path / "gone.pt")]
    with pytest.raises(CheckpointError, match="gone.pt"):
        stock.train(tiny_data_bin, tmp_path / "new", *SMALL, *missing, "--max-update", "2")
    assert not list(tmp_path.rglob("*.pt"))


# --- no update too many ------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["--max-update 7", "--max-update 100 --stop-time-hours 1e-9"])
def test_a_training_that_is_done_is_not_trained_further(begun, tiny_data_bin, limit):
    """All versions train one update more, and replace the last and the best checkpoint."""
    before = contents(begun)
    stock.train(tiny_data_bin, begun, *EVERY_3, *limit.split())
    assert contents(begun) == before


# --- with what it goes on ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_words(tiny_data_bin, tmp_path_factory) -> Path:
    """The same data with a dictionary of the same size, its words in another order."""
    folder = Path(shutil.copytree(tiny_data_bin, tmp_path_factory.mktemp("other") / "data-bin"))
    for path in folder.glob("dict.*.txt"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join([*lines[1:], lines[0]]), encoding="utf-8")
    return folder


@pytest.mark.parametrize("flag", ["--save-dir", "--restore-file"])
def test_training_with_other_words_is_refused(begun, other_words, tmp_path, flag):
    path = str(begun if flag == "--save-dir" else begun / "checkpoint_last.pt")
    before = contents(begun)
    with pytest.raises(CheckpointError, match="another source dictionary"):
        stock.train(other_words, tmp_path / "new", *EVERY_3, flag, path, "--max-update", "9")
    assert contents(begun) == before


@pytest.mark.parametrize("flags", ["--finetune-from-model", "--reset-optimizer --restore-file"])
def test_another_training_may_begin_with_other_words(begun, other_words, tmp_path, flags):
    """The optimizer is reset on purpose: a warning."""
    options = [*flags.split(), str(begun / "checkpoint_last.pt"), "--reset-dataloader"]
    options = options[: 2 if "finetune" in flags else None]
    lines = stock.train(other_words, tmp_path / "new", *EVERY_3, *options, "--max-update", "2")
    assert any("another source dictionary" in line for line in lines)
    assert updates(tmp_path / "new" / "checkpoint_last.pt") == 2
    lines = stock.train(other_words, tmp_path / "new", *EVERY_3, "--max-update", "3")
    assert not any("another source dictionary" in line for line in lines)


def test_translating_and_validating_with_other_words_is_refused(begun, other_words):
    for command in (stock.generate, stock.validate):
        with pytest.raises(CheckpointError, match="another source dictionary"):
            command(other_words, begun / "checkpoint_last.pt", *OURS)


def test_a_checkpoint_of_before_is_compared_by_size_alone(begun, other_words):
    path = stock.without_dictionaries(begun / "checkpoint_last.pt", begun / "old.pt")
    assert stock.results(stock.generate(other_words, path, *OURS), "H")


def test_options_that_changed_are_said(begun, tiny_data_bin):
    changed = ["--label-smoothing", "0.2", "--dropout", "0.5", "--seed", "3"]
    lines = stock.train(tiny_data_bin, begun, *EVERY_3, *changed, "--max-update", "8")
    message = next(line for line in lines if "going on with other options" in line)
    for name in ("criterion.label_smoothing", "model.dropout", "common.seed"):
        assert f"{name} was " in message
    assert message.count(" was ") == 3
    lines = stock.train(tiny_data_bin, begun, *EVERY_3, *changed, "--max-update", "9")
    assert not any("other options" in line for line in lines)


# --- vaswani train -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(workplace) -> Path:  # noqa: F811
    """A run of 4 updates in ``workplace``."""
    with pytest.MonkeyPatch.context() as patch:
        train = ("train", "small", "run=done", "optimization.max_update=4")
        assert run(workplace, patch, *train) == 0
    return workplace / "runs" / "done"


@pytest.fixture
def four(done, workplace, monkeypatch, request):  # noqa: F811
    """A copy of the run, and a function that runs ``vaswani train`` on it."""
    folder = workplace / "runs" / f"four{abs(hash(request.node.name))}"
    shutil.copytree(done, folder)

    def train(*overrides: str) -> int:
        return run(workplace, monkeypatch, "train", "small", f"run={folder.name}", *overrides)

    return folder, train


FOUR = "optimization.max_update=4"


def test_a_kill_between_the_last_save_and_finished_json(four, capsys):
    folder, train = four
    (folder / "finished.json").unlink()
    before = contents(folder / "checkpoints")
    assert train(FOUR) == 0
    assert contents(folder / "checkpoints") == before
    assert json.loads((folder / "finished.json").read_text())["num_updates"] == 4
    assert "nothing is left to train" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("resets", "first"),
    [((), 4), (("checkpoint.reset_optimizer=true", "checkpoint.reset_dataloader=true"), 0)],
    ids=["whole", "parameters"],
)
def test_a_restore_file_begins_a_run_once(four, done, resets, first):
    """The same command again goes on with all that the run has trained since."""
    folder, train = four
    shutil.rmtree(folder)
    begin = (f"checkpoint.restore_file={done}/checkpoints/checkpoint_last.pt", *resets)
    for limit in (5, 6, 7):
        assert train(*begin, f"optimization.max_update={limit}") == 0
    lines = (folder / "train.jsonl").read_text().splitlines()
    resumed = [json.loads(line)["num_updates"] for line in lines if '"resumed"' in line]
    assert resumed == [first, 5, 6]


def test_a_restore_file_does_not_replace_what_a_run_has_trained(four, done, capsys):
    """For example where the path is written otherwise than in the first command."""
    folder, train = four
    begin = f"checkpoint.restore_file={done}/checkpoints/checkpoint_last.pt"
    assert train(begin, "optimization.max_update=5") == 1
    assert "has checkpoints of its own" in capsys.readouterr().err
    assert updates(folder / "checkpoints" / "checkpoint_last.pt") == 4


def test_a_changed_training_text_is_refused(four, workplace, capsys):  # noqa: F811
    """Of the same lengths, so that sizes and index stay as they were."""
    folder, train = four
    path = workplace / "data" / "digits" / "data-bin" / "train.en-de.en.bin"
    before = path.read_bytes()
    try:
        path.write_bytes(before[2:4] + before[:2] + before[4:])
        assert train("optimization.max_update=6") == 1
        assert "train.en-de.en.bin has changed" in capsys.readouterr().err
        assert updates(folder / "checkpoints" / "checkpoint_last.pt") == 4
        again = ("optimization.max_update=6", "checkpoint.reset_dataloader=true")
        assert train(*again) == 0
    finally:
        path.write_bytes(before)


def test_options_that_changed_are_said_on_the_terminal(four, capsys):
    _, train = four
    assert train("criterion.label_smoothing=0.2", "optimization.max_update=5") == 0
    assert "criterion.label_smoothing was 0.1" in capsys.readouterr().err


def test_a_users_config_yaml_is_not_replaced(workplace, monkeypatch, capsys):  # noqa: F811
    """``vaswani train mine/config.yaml`` with ``mine/checkpoints``, or ``run=mine``."""
    mine = workplace / "mine"
    mine.mkdir()
    shutil.copy(workplace / "configs" / "small.yaml", mine / "config.yaml")
    before = (mine / "config.yaml").read_bytes()
    assert run(workplace, monkeypatch, "train", "mine/config.yaml", "run=./mine", FOUR) == 1
    assert "mine/config.yaml already exists" in capsys.readouterr().err
    assert (mine / "config.yaml").read_bytes() == before
    assert [path.name for path in mine.iterdir()] == ["config.yaml"]


def test_a_training_that_diverges_ends_in_a_sentence(four, capsys):
    folder, train = four
    before = contents(folder / "checkpoints")
    hot = ("lr_scheduler.lr_factor=1e30", "optimization.max_update=9")
    assert train(*hot) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert "diverged at update 6" in message and "learning rate" in message
    assert f"the last good checkpoint is {folder.relative_to(folder.parents[1])}" in message
    after = contents(folder / "checkpoints")
    assert {name: after[name] for name in before} == before
