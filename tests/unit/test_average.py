"""Section 6.1: which checkpoints are averaged, and that their mean is the mean."""

import argparse
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from transformer_plugin.checkpoints import load_checkpoint
from vaswani import cli
from vaswani.commands import average
from vaswani.common.errors import UserError
from vaswani.common.options import parse
from vaswani.folders.run import Run
from vaswani.reproduction import full_size
from vaswani.training.averaging import average_models
from vaswani.training.checkpoints import describe, find_checkpoint

# ---- averaging ------------------------------------------------------------------------------


def mean_of(*tensors: torch.Tensor) -> torch.Tensor:
    return average_models((str(n), {"w": tensor}) for n, tensor in enumerate(tensors))["w"]


@pytest.mark.paper("6.1")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@settings(deadline=None, derandomize=True, database=None)
@given(some.lists(some.lists(some.floats(-9, 9), min_size=3, max_size=3), min_size=1, max_size=20))
def test_mean_is_the_sum_over_the_number(dtype: torch.dtype, rows: list[list[float]]) -> None:
    models = torch.tensor(rows, dtype=torch.float64).to(dtype)
    before = models.clone()
    mean = mean_of(*models)
    exact = models.double().sum(0) / len(rows)
    assert mean.dtype == dtype and torch.equal(models, before)
    torch.testing.assert_close(mean.double(), exact, rtol=0, atol=9 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    """A running mean kept in half precision would lose these small steps one by one."""
    values = torch.tensor([1.0, *[1 + 2**-7] * 40]).to(dtype)
    assert mean_of(*values).item() == values.double().mean().to(dtype).item()


def test_tied_matrices_stay_one() -> None:
    def tied(value: float) -> dict[str, torch.Tensor]:
        table = torch.full((2, 2), value)
        return {"embedding": table, "output": table, "other": table.clone()}

    mean = average_models([("a", tied(1.0)), ("b", tied(4.0))])
    assert mean["embedding"].data_ptr() == mean["output"].data_ptr() != mean["other"].data_ptr()
    assert mean["output"].tolist() == [[2.5, 2.5], [2.5, 2.5]]


# ---- the command ----------------------------------------------------------------------------


def save(path: Path, updates: int | None, value: float = 0.0, **changed: Any) -> Path:
    """Save a checkpoint as fairseq writes it, with one parameter of four equal values."""
    dictionaries, seed = changed.pop("dictionaries", {}), changed.pop("seed", 1)
    state = {
        "cfg": {
            "common": {"seed": seed},
            "task": {"source_lang": "en", "target_lang": "de", "data": "data-bin"},
            "model": {"_name": "vaswani_transformer", "dropout": 0.1, **changed},
        },
        "model": {"weight": torch.full((4,), float(value))},
        "optimizer_history": [{} if updates is None else {"num_updates": updates}],
        "task_state": {"dictionaries_sha256": dictionaries},
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.zeros(4)}}},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


def invoke(*arguments: Any) -> int:
    """Run ``vaswani average ARGUMENTS``, whose errors are raised."""
    words = [str(argument) for argument in arguments]
    return average.run(parse(argparse.ArgumentParser(), average.Options, words))


def weight(path: Path) -> list[float]:
    return load_checkpoint(path)["model"]["weight"].tolist()


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Save updates 100 to 600 under fairseq's names, with the parameter at updates / 100."""
    folder = tmp_path / "runs" / "demo" / "checkpoints"
    files = {1: "checkpoint1", 2: "checkpoint_2_200", 3: "checkpoint2"}
    files.update({4: "checkpoint_3_400", 5: "checkpoint3", 6: "checkpoint_last"})
    for number, name in files.items():
        save(folder / f"{name}.pt", 100 * number, number)
    save(folder / "checkpoint_best.pt", 500, 5)
    return folder.parent


def test_the_last_five_updates_are_averaged(run_folder: Path, monkeypatch: Any) -> None:
    """200 to 600, so the mean of 2, 3, 4, 5, 6; an average is never an input of the next one."""
    monkeypatch.chdir(run_folder.parent.parent)
    written = run_folder / "checkpoints" / "checkpoint_average_last5.pt"
    for run in (run_folder, "demo", run_folder / "checkpoints"):
        assert invoke(run, "--last", 5) == 0
        assert weight(written) == [4.0] * 4
    assert invoke("demo", "--last", 5, "--output", "mine") == 0
    assert find_checkpoint("mine") == (Path("mine"), Run(Path())), (
        "it is decoded by the name it has"
    )
    state = load_checkpoint(written)
    assert "last_optimizer_state" not in state
    assert state["optimizer_history"][-1]["num_updates"] == 600


@pytest.mark.parametrize("count", [1, 7])
def test_a_number_of_checkpoints_that_there_is_not_is_refused(run_folder: Path, count: int) -> None:
    """There are six: the best is a copy."""
    with pytest.raises(UserError, match="6 checkpoints.*--last"):
        invoke(run_folder, "--last", count)


def test_an_update_named_twice_is_refused(run_folder: Path) -> None:
    names = ("checkpoint3.pt", "checkpoint1.pt", "checkpoint_best.pt")
    with pytest.raises(UserError, match="same update"):
        invoke(*(run_folder / "checkpoints" / name for name in names))


@pytest.mark.parametrize("name", ["checkpoint99.pt", "mine.pt", "notes.txt"])
def test_nothing_but_an_average_is_replaced(run_folder: Path, name: str) -> None:
    output = run_folder / "checkpoints" / name
    save(output.with_name("mine.pt"), 50)
    output.with_name("notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in output.parent.iterdir()}
    with pytest.raises(UserError, match=name):
        invoke(run_folder, "--output", output)
    assert {path: path.read_bytes() for path in output.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"dropout": 0.3}, "dropout is 0.1 and 0.3"),
        ({"seed": 2}, "seed is 1 and 2"),
        ({"dictionaries": {"source": "a" * 64}}, "source dictionary"),
        ({"value": float("nan")}, r"b\.pt has NaN"),
        ({"updates": None}, r"b\.pt does not say"),
    ],
)
def test_checkpoints_of_different_runs_or_without_numbers_are_refused(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    first = save(tmp_path / "a.pt", 10, dictionaries={"source": "b" * 64})
    same: dict[str, Any] = {"updates": 20, "dictionaries": {"source": "b" * 64}}
    other = save(tmp_path / "b.pt", **{**same, **changed})
    with pytest.raises(UserError, match=named):
        invoke(first, other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt"]


def test_an_average_that_cannot_be_written_leaves_the_earlier_one(
    run_folder: Path, monkeypatch: Any
) -> None:
    invoke(run_folder, "--last", "2")
    before = {path: path.read_bytes() for path in (run_folder / "checkpoints").iterdir()}
    original = torch.save

    def save_half(state: Any, stream: Any) -> None:
        original(state, stream)
        raise OSError(errno.ENOSPC, "No space")

    monkeypatch.setattr(torch, "save", save_half)
    assert cli.main(["average", str(run_folder), "--last", "2"]) == 1
    assert {path: path.read_bytes() for path in (run_folder / "checkpoints").iterdir()} == before


# ---- by validation loss -----------------------------------------------------------------------


class Distance:
    """Stands for a run's validation: the loss is how far the parameter is from ``aim``."""

    aim = 0.0
    calls = 0

    def __init__(self, *_: Path) -> None:
        pass

    def __len__(self) -> int:
        return 1

    def __call__(self, model: dict[str, torch.Tensor], told: Any = None) -> float:
        Distance.calls += 1
        return abs(model["weight"][0].item() - Distance.aim)


@pytest.fixture
def validated(run_folder: Path, monkeypatch: Any) -> Path:
    """Make ``run_folder`` a run whose validation is ``Distance``; its best is update 500, 5.0."""
    (run_folder / "config.yaml").write_text("task: {data: gone}", encoding="utf-8")
    monkeypatch.setattr("vaswani.training.choosing_average.Validation", Distance)
    monkeypatch.setattr("vaswani.training.checkpoints.Validation", Distance)
    return run_folder


@pytest.mark.parametrize(("aim", "count"), [(5.4, 2), (4.6, 4), (3.5, 6)])
def test_as_many_are_averaged_as_have_the_lowest_loss(
    validated: Path, monkeypatch: Any, aim: float, count: int
) -> None:
    monkeypatch.setattr(Distance, "aim", aim)
    assert invoke(validated) == 0
    made = validated / "checkpoints" / f"checkpoint_average_last{count}.pt"
    assert weight(made) == [pytest.approx((13 - count) / 2)] * 4
    stored = describe(made)
    assert stored.loss == pytest.approx(abs((13 - count) / 2 - aim))
    assert stored.beside == {600: pytest.approx(6 - aim), 500: pytest.approx(abs(5 - aim))}
    monkeypatch.setattr(Distance, "calls", 0)
    assert find_checkpoint(str(validated)) == (made, Run(validated))
    assert Distance.calls == 0, "the losses in the average are enough"


def test_where_a_single_checkpoint_is_best_none_is_made(validated: Path, monkeypatch: Any) -> None:
    """And an older average that is worse is not decoded; nor is it from an earlier version."""
    monkeypatch.setattr(Distance, "aim", 4.99)
    folder = validated / "checkpoints"
    made, best = folder / "checkpoint_average_last2.pt", folder / "checkpoint_best.pt"
    assert invoke(validated, "--last", 2) == 0
    before = made.read_bytes()
    assert invoke(validated) == 0
    assert made.read_bytes() == before and len(list(folder.glob("*average*.pt"))) == 1
    assert find_checkpoint(str(validated)) == (best, Run(validated))
    state = load_checkpoint(made)
    for key in ("validation_nll", "validation_nlls"):
        del state[key]
    torch.save(state, made)
    assert find_checkpoint(str(validated)) == (best, Run(validated))


def test_a_better_checkpoint_of_later_is_decoded(validated: Path, monkeypatch: Any) -> None:
    """What the average says of the best checkpoint is of another one."""
    monkeypatch.setattr(Distance, "aim", 5.4)
    assert invoke(validated) == 0
    best = save(validated / "checkpoints" / "checkpoint_best.pt", 700, 5.41)
    assert find_checkpoint(str(validated)) == (best, Run(validated))


def test_without_data_the_last_are_averaged_but_none_are_chosen(run_folder: Path) -> None:
    assert invoke(run_folder, "--last", 2) == 0
    assert describe(run_folder / "checkpoints" / "checkpoint_average_last2.pt").loss is None
    with pytest.raises(UserError, match="data-bin.*--last"):
        invoke(run_folder)


# ---- what is decoded --------------------------------------------------------------------------


def test_where_the_loss_is_unknown_the_newest_average_is_decoded(run_folder: Path) -> None:
    """That of the last updates, not of the latest file; of equals, the one of most checkpoints."""
    folder = run_folder / "checkpoints"
    (run_folder / "config.yaml").write_text("task: {}", encoding="utf-8")
    for last in (3, 2):
        invoke(run_folder, "--last", last)
    invoke(folder / "checkpoint1.pt", folder / "checkpoint_2_200.pt")
    assert find_checkpoint(str(run_folder))[0].name == "checkpoint_average_last3.pt"


def test_reproduce_averages_again_where_training_went_on(run_folder: Path) -> None:
    """By updates, whatever the files' times."""
    folder = run_folder / "checkpoints"
    made = folder / "checkpoint_average_last5.pt"
    order: Any = SimpleNamespace(checkpoint=made, run=Run(run_folder))
    assert not full_size.is_averaged(order)
    invoke(run_folder, "--last", 5)
    os.utime(made, (1, 1))
    assert full_size.is_averaged(order)
    save(folder / "checkpoint_last.pt", 700)
    os.utime(folder / "checkpoint_last.pt", (1, 1))
    assert not full_size.is_averaged(order)
