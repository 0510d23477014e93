"""Section 6.1: which checkpoints are averaged, and that their mean is the mean."""

import argparse
import errno
import os
import subprocess
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest
import torch

from tests.preloaded import python
from vaswani import cli
from vaswani.commands import average, reproduce
from vaswani.common.errors import UserError
from vaswani.common.options import parse
from vaswani.experiment.averaging import average_models, running_means
from vaswani.experiment.best_checkpoint import find_checkpoint
from vaswani.experiment.checkpoints import (
    Checkpoint,
    check_one_run,
    describe,
    run_options,
    select_last,
    select_named,
)


def invoke(*arguments: Any) -> int:
    """``vaswani average ARGUMENTS``."""
    words = [str(argument) for argument in arguments]
    return average.run(parse(argparse.ArgumentParser(), average.Options, words))


def save(
    path: Path, updates: Optional[int], value: float = 0.0, model: Any = None, **changed: Any
) -> Path:
    """A checkpoint as fairseq writes it, with one parameter of four equal values."""
    dictionaries = changed.pop("dictionaries", None)
    options = {"_name": "vaswani_transformer", "dropout": 0.1, "encoder_layers": 6}
    cfg = {
        "common": {"seed": changed.pop("seed", 1)},
        "task": {"source_lang": "en", "target_lang": "de", "data": "data-bin"},
        "checkpoint": {"save_dir": changed.pop("save_dir", "checkpoints")},
        "model": {**options, **changed},
    }
    state = {
        "args": None,
        "cfg": cfg,
        "model": model or {"weight": torch.full((4,), float(value))},
        "criterion": None,
        "optimizer_history": [{} if updates is None else {"num_updates": updates}],
        "task_state": {"dictionaries_sha256": dictionaries} if dictionaries else {},
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.zeros(4)}}},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


def load(path: Path) -> Dict[str, Any]:
    from transformer_plugin.checkpoints import load_checkpoint

    return load_checkpoint(path)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Updates 100 to 600 with the parameter at updates / 100, as fairseq names its files."""
    folder = tmp_path / "runs" / "demo" / "checkpoints"
    names = {100: "checkpoint1", 200: "checkpoint_2_200", 300: "checkpoint2"}
    names.update({400: "checkpoint_3_400", 500: "checkpoint3", 600: "checkpoint_last"})
    for updates, name in names.items():
        save(folder / f"{name}.pt", updates, updates / 100)
    save(folder / "checkpoint_best.pt", 500, 5)
    return folder.parent


# ---- choosing -------------------------------------------------------------------------------


def found(*names_and_updates: Any) -> List[Checkpoint]:
    pairs = zip(names_and_updates[::2], names_and_updates[1::2], strict=True)
    return [Checkpoint(Path(name), updates, {}) for name, updates in pairs]


def names(checkpoints: List[Checkpoint]) -> List[str]:
    return [str(checkpoint.path) for checkpoint in checkpoints]


def test_last_by_updates_not_by_name_or_order() -> None:
    files = found("c10", 30, "c9", 20, "a", 40, "z", 10)
    assert names(select_last(files, 3, "run")) == ["c9", "c10", "a"]


def test_the_same_update_counts_once() -> None:
    """checkpoint_last.pt and checkpoint_best.pt are copies."""
    files = found("c1", 10, "c2", 20, "c3", 30, "c_best", 20, "c_last", 30)
    assert names(select_last(files, 3, "run")) == ["c1", "c2", "c3"]
    with pytest.raises(UserError, match=r"--last 4, but run has 3 .*\(updates: 10, 20, 30\)"):
        select_last(files, 4, "run")


def test_best_alone_counts() -> None:
    """Where the file of its epoch was not kept."""
    files = found("c2", 20, "c3", 30, "c_best", 10)
    assert names(select_last(files, 3, "run")) == ["c_best", "c2", "c3"]


@pytest.mark.parametrize(
    "files, count, message",
    [
        ([], 5, "--last 5, but run has 0"),
        (["c", 10, "d", 20], 3, "give 2 or more of them, or train longer"),
        (["c", 10, "d", 20], 1, "--last 1, but"),
        (["c", 10, "d", 20], 0, "--last 0, but"),
    ],
)
def test_too_few(files: List[Any], count: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        select_last(found(*files), count, "run")


def test_named_files() -> None:
    assert names(select_named(found("b", 20, "a", 10))) == ["a", "b"]
    with pytest.raises(UserError, match=r"a and b are from the same update \(10\)"):
        select_named(found("a", 10, "c", 20, "b", 10))
    with pytest.raises(UserError, match="mean is already an average"):
        select_named([*found("a", 10), Checkpoint(Path("mean"), 20, {}, averaged=2)])


# ---- averaging ------------------------------------------------------------------------------


def labelled(*models: Dict[str, torch.Tensor]) -> Any:
    return ((f"model {number}", model) for number, model in enumerate(models, start=1))


@pytest.mark.paper("6.1")
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_mean(dtype: torch.dtype, tolerance: float) -> None:
    stack = torch.randn(20, 3, 5, dtype=torch.float64)
    mean = average_models(labelled(*({"w": layer.to(dtype)} for layer in stack)))["w"]
    assert mean.dtype == dtype
    torch.testing.assert_close(mean.double(), stack.mean(0), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    """A running mean kept in half precision would lose these small steps one by one."""
    values = torch.tensor([1.0, *[1 + 2**-7] * 40]).to(dtype)
    mean = average_models(labelled(*({"w": value.reshape(1)} for value in values)))["w"]
    assert mean.dtype == dtype
    assert mean.item() == values.double().mean().to(dtype).item()


@pytest.mark.parametrize("first", [torch.float16, torch.float32])
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_and_whole_precision_give_whole(first: torch.dtype, half: torch.dtype) -> None:
    """Whichever comes first: the mean is not one that half precision can hold."""
    fine, coarse = torch.tensor([1 + 2**-20]), torch.tensor([1.0], dtype=half)
    models = [{"w": fine}, {"w": coarse}]
    mean = average_models(labelled(*(models if first == torch.float32 else models[::-1])))["w"]
    assert mean.dtype == torch.float32 and mean.item() == 1 + 2**-21
    other = torch.bfloat16 if half == torch.float16 else torch.float16
    mixed = average_models(labelled({"w": coarse}, {"w": torch.tensor([2.0], dtype=other)}))["w"]
    assert mixed.dtype == torch.float32 and mixed.item() == 1.5


def test_each_running_mean_is_the_mean_so_far() -> None:
    values = [3.0, 5.0, 1.0]
    models = labelled(*({"w": torch.tensor([value])} for value in values))
    assert [mean["w"].item() for mean in running_means(models)] == [3.0, 4.0, 3.0]


def test_equal_checkpoints_have_themselves_as_mean() -> None:
    weight = torch.randn(1000)
    mean = average_models(labelled(*({"w": weight.clone()} for _ in range(7))))["w"]
    assert torch.equal(mean, weight)


def test_integers_are_the_last_ones() -> None:
    models = [{"steps": torch.tensor([n]), "w": torch.tensor([float(n)])} for n in (1, 2, 6)]
    mean = average_models(labelled(*models))
    assert mean["steps"].tolist() == [6]
    assert mean["w"].tolist() == [3.0]


def test_tied_matrices_stay_one() -> None:
    def tied(value: float) -> Dict[str, torch.Tensor]:
        table = torch.full((2, 2), value)
        return {"embedding": table, "output": table, "other": table.clone()}

    mean = average_models(labelled(tied(1.0), tied(4.0)))
    assert mean["embedding"].data_ptr() == mean["output"].data_ptr() != mean["other"].data_ptr()
    assert mean["output"].tolist() == [[2.5, 2.5], [2.5, 2.5]]
    copied = {name: tensor.clone() for name, tensor in tied(4.0).items()}
    assert average_models(labelled(tied(1.0), copied))["output"].tolist() == [[2.5] * 2] * 2


def test_inputs_are_left_alone() -> None:
    models = [{"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}]
    average_models(labelled(*models))
    assert [model["w"].item() for model in models] == [1.0, 2.0]


# ---- the command ----------------------------------------------------------------------------


def test_run(run_folder: Path, capsys) -> None:
    """The last five updates: 200 to 600, so the mean of 2, 3, 4, 5, 6."""
    assert invoke(run_folder, "--last", 5) == 0
    written = run_folder / "checkpoints" / "checkpoint_average_last5.pt"
    state = load(written)
    assert state["model"]["weight"].tolist() == [4.0] * 4
    assert "last_optimizer_state" not in state
    assert state["cfg"]["model"]["_name"] == "vaswani_transformer"
    assert state["optimizer_history"][-1]["num_updates"] == 600
    assert "updates 200, 300, 400, 500, 600" in capsys.readouterr().out


def test_an_average_is_never_an_input(run_folder: Path) -> None:
    """A second and a third average are those of the same files; the older is replaced."""
    invoke(run_folder, "--last", "2")
    invoke(run_folder, "--last", "2")
    written = run_folder / "checkpoints" / "checkpoint_average_last2.pt"
    assert load(written)["model"]["weight"].tolist() == [5.5] * 4
    invoke(run_folder / "checkpoints", "--last", "6")
    assert load(written.with_name("checkpoint_average_last6.pt"))["model"]["weight"][0] == 3.5


def test_run_by_its_name(run_folder: Path, monkeypatch) -> None:
    """Which a folder of something else does not hide."""
    monkeypatch.chdir(run_folder.parent.parent)
    Path("demo").mkdir()
    assert invoke("demo", "--last", 5, "--output", "mean.pt") == 0
    assert load(Path("mean.pt"))["model"]["weight"].tolist() == [4.0] * 4


def test_checkpoints_by_name(run_folder: Path) -> None:
    folder = run_folder / "checkpoints"
    assert invoke(folder / "checkpoint3.pt", folder / "checkpoint1.pt") == 0
    assert load(folder / "checkpoint_average_of2.pt")["model"]["weight"].tolist() == [3.0] * 4


@pytest.mark.parametrize(
    "name, refusal",
    [
        ("checkpoint3.pt", "a name that training gives its own"),
        ("checkpoint_best.pt", "a name that training gives its own"),
        ("checkpoint99.pt", "a name that training gives its own"),
        ("mine.pt", "exists and is no average: give the output another name"),
        ("notes.txt", "exists and is no average: give the output another name"),
    ],
)
def test_replaces_nothing_but_an_average(run_folder: Path, name: str, refusal: str) -> None:
    output = run_folder / "checkpoints" / name
    if name == "mine.pt":
        save(output, 50)
    elif name == "notes.txt":
        output.write_text("mine")
    before = output.read_bytes() if output.exists() else None
    with pytest.raises(UserError, match=refusal):
        invoke(run_folder, "--output", output)
    assert (output.read_bytes() if output.exists() else None) == before


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"dropout": 0.3}, r"different runs \(dropout is 0.1 and 0.3\)"),
        ({"seed": 2}, r"different runs \(seed is 1 and 2\)"),
        (
            {"_name": "vaswani_transformer_big"},
            r"\(architecture is vaswani_transformer and vaswani_transformer_big\)",
        ),
    ],
)
def test_different_runs(tmp_path: Path, changed: Dict[str, Any], message: str) -> None:
    """One sentence, and nothing written."""
    inputs = [save(tmp_path / "a.pt", 10), save(tmp_path / "b.pt", 20, **changed)]
    with pytest.raises(UserError, match=message):
        invoke(*inputs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt"]


def test_a_resumed_run_is_one_run(tmp_path: Path) -> None:
    """Moved folders and another way to compute attention do not make another run."""
    inputs = [
        save(tmp_path / "a.pt", 10, attention_impl="auto"),
        save(tmp_path / "b.pt", 20, attention_impl="readable", save_dir="elsewhere", compile=True),
    ]
    assert invoke(*inputs) == 0


def test_an_option_that_came_later_does_not_make_another_run(tmp_path: Path) -> None:
    """Checkpoints from before and after an update of this package, in which it is off."""
    inputs = [save(tmp_path / "a.pt", 10), save(tmp_path / "b.pt", 20, came_later=False)]
    assert invoke(*inputs) == 0


def test_other_dictionaries_of_the_same_size(tmp_path: Path) -> None:
    one, other = ({"source": digit * 64, "target": digit * 64} for digit in "ab")
    first = save(tmp_path / "a.pt", 10, dictionaries=one)
    with pytest.raises(UserError, match="different runs .source dictionary is aaaaaaaaaaaa and b"):
        invoke(first, save(tmp_path / "b.pt", 20, dictionaries=other))


def test_run_of_fairseqs_own_architecture() -> None:
    """There the model's section is a Namespace of every option of the command line."""

    def options(**changed: Any) -> Dict[str, Any]:
        model = Namespace(_name="transformer", arch="transformer", dropout=0.1, max_update=10)
        vars(model).update(changed)
        cfg = {"optimization": {"max_update": model.max_update}, "common": {"seed": 1}}
        return run_options({"cfg": {**cfg, "model": model}})

    def check(**changed: Any) -> None:
        first = Checkpoint(Path("a"), 1, options())
        check_one_run([first, Checkpoint(Path("b"), 2, options(**changed))])

    check(max_update=20)
    with pytest.raises(UserError, match="dropout is 0.1 and 0.2"):
        check(dropout=0.2)


def test_bad_inputs(tmp_path: Path, run_folder: Path) -> None:
    from transformer_plugin.checkpoints import CheckpointError

    good = run_folder / "checkpoints" / "checkpoint1.pt"
    empty = tmp_path / "empty"
    empty.mkdir()
    cases: List[Any] = [
        ([empty], UserError, "empty has no checkpoint yet"),
        ([empty, "--last", 2], UserError, "--last 2, but .*empty has 0"),
        ([run_folder], UserError, "cannot be computed .there is no data in data-bin.: give --last"),
        ([tmp_path / "nowhere"], UserError, "there is no checkpoint '.*nowhere'"),
        ([good, run_folder], UserError, "there is no checkpoint '.*demo': give one run, or files"),
        ([run_folder, "--last", 7], UserError, "--last 7, but .*has 6 "),
        ([good, good, "--last", 2], UserError, "--last chooses within one run"),
        ([good, save(tmp_path / "x.pt", None)], UserError, "x.pt does not say after how many"),
    ]
    cut = tmp_path / "cut.pt"
    cut.write_bytes(good.read_bytes()[:-200])
    cases.append(([good, cut], CheckpointError, "cut.pt is cut short or damaged"))
    for arguments, kind, message in cases:
        with pytest.raises(kind, match=message):
            invoke(*arguments)


def test_only_one_checkpoint_in_a_run(tmp_path: Path, capsys) -> None:
    save(tmp_path / "checkpoint1.pt", 10)
    save(tmp_path / "checkpoint_last.pt", 10)
    with pytest.raises(UserError, match=r"has 1 checkpoint \(updates: 10\)"):
        invoke(tmp_path, "--last", 2)
    assert invoke(tmp_path) == 0
    message = capsys.readouterr()
    assert "the only checkpoint" in message.out and "nothing to average" in message.out
    command = f"next: vaswani generate {tmp_path / 'checkpoint1.pt'} --subset valid"
    assert message.err.splitlines() == [command]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_diverged_checkpoint_is_no_part_of_an_average(tmp_path: Path, number: float) -> None:
    """The file and the parameter are named, and nothing is written."""
    inputs = [save(tmp_path / "a.pt", 10), save(tmp_path / "b.pt", 20, number)]
    with pytest.raises(UserError, match=r"b\.pt has NaN or infinity in weight"):
        invoke(*inputs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt"]


# ---- what may be written, and what happens when it cannot be ----------------------------------


@pytest.mark.parametrize("way", ["dot", "symlink", "hard link", "folder link"])
def test_an_input_is_no_output_however_it_is_spelt(tmp_path: Path, monkeypatch, way: str) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = [save(Path("a.pt"), 10, 1.0), save(Path("b.pt"), 20, 2.0)]
    output = Path("mean.pt")
    if way == "symlink":
        output.symlink_to("b.pt")
    elif way == "hard link":
        output.hardlink_to("b.pt")
    elif way == "folder link":
        Path("here").symlink_to(".")
        output = Path("here/b.pt")
    else:
        output = Path("../" + tmp_path.name + "/b.pt")
    before = Path("b.pt").read_bytes()
    with pytest.raises(UserError, match=r"is an input of the same command \(it is b\.pt\)"):
        invoke(*inputs, "--output", output)
    assert Path("b.pt").read_bytes() == before


def test_an_older_average_behind_a_symlink_is_replaced_there(run_folder: Path) -> None:
    folder = run_folder / "checkpoints"
    link, target = folder / "mean.pt", folder / "elsewhere.pt"
    link.symlink_to(target)
    for last, mean in ((2, 5.5), (3, 5.0)):  # the first time, there is nothing behind it
        assert invoke(run_folder, "--last", last, "--output", link) == 0
        assert link.is_symlink() and load(target)["model"]["weight"][0] == mean


def test_an_average_under_a_name_of_training_is_no_input(run_folder: Path) -> None:
    made = run_folder / "checkpoints" / "checkpoint_average_last2.pt"
    invoke(run_folder, "--last", "2")
    made.rename(made.with_name("checkpoint9.pt"))
    with pytest.raises(UserError, match=r"checkpoint9\.pt is already an average"):
        invoke(run_folder, "--last", 2)


def refusing(error: BaseException) -> Any:
    """torch.save that writes a little, then fails as the system would have it."""
    original = torch.save

    class Stream:
        def __init__(self, stream: Any) -> None:
            self.stream, self.left = stream, 3

        def write(self, data: bytes) -> int:
            self.left -= 1
            if not self.left:
                raise error
            return int(self.stream.write(data))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stream, name)

    return lambda state, stream: original(state, Stream(stream))


@pytest.mark.parametrize(
    "error, code, refusal",
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "there is no space left for "),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_the_earlier_average_stays(
    run_folder: Path, monkeypatch, capsys, error: BaseException, code: int, refusal: str
) -> None:
    """A full disk, and Ctrl-C in the middle, which torch's writer makes a RuntimeError of."""
    invoke(run_folder, "--last", "2")
    made = run_folder / "checkpoints" / "checkpoint_average_last2.pt"
    before, names = made.read_bytes(), sorted(made.parent.iterdir())
    monkeypatch.setattr(torch, "save", refusing(error))
    unknown = capsys.readouterr().err
    assert cli.main(["average", str(run_folder), "--last", "2"]) == code
    err = capsys.readouterr().err
    assert refusal in err and "Traceback" not in err
    err = err.replace(unknown, "")
    assert code == 130 or (str(made) in err and err.count("\n") == 1)
    assert made.read_bytes() == before and sorted(made.parent.iterdir()) == names


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_done(
    run_folder: Path, monkeypatch, capsys
) -> None:
    """The test may run as root, whom no permission stops: the system's answer is replaced."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cli.main(["average", str(run_folder), "--output", str(run_folder / "new" / "m.pt")]) == 1
    err = capsys.readouterr().err
    assert f"{run_folder} cannot be written to" in err and ".part" not in err
    assert not (run_folder / "new").exists()


# ---- by validation loss -----------------------------------------------------------------------


class Distance:
    """Stands for a run's validation: the loss is how far the parameter is from ``aim``."""

    aim = 0.0
    calls = 0

    def __init__(self, checkpoint: Path, folder: Path) -> None:
        pass

    def __len__(self) -> int:
        return 1

    def __call__(self, model: Dict[str, torch.Tensor], told: Any = None) -> float:
        Distance.calls += 1
        return abs(model["weight"][0].item() - Distance.aim)


@pytest.fixture
def validated(run_folder: Path, monkeypatch) -> Path:
    """``run_folder`` as a run whose validation is ``Distance``; its best is update 500, 5.0."""
    (run_folder / "config.yaml").write_text("task: {data: gone}", encoding="utf-8")
    monkeypatch.setattr(average, "Validation", Distance)
    monkeypatch.setattr("vaswani.experiment.validation.Validation", Distance)
    return run_folder


@pytest.mark.parametrize(("aim", "count"), [(5.4, 2), (4.6, 4), (3.5, 6)])
def test_as_many_as_have_the_lowest_loss(
    validated: Path, capsys, monkeypatch, aim: float, count: int
) -> None:
    """The same file as with --last N, but for the losses; which decide what is decoded."""
    monkeypatch.setattr(Distance, "aim", aim)
    folder = validated / "checkpoints"
    assert invoke(validated) == 0
    message = capsys.readouterr()
    made = folder / f"checkpoint_average_last{count}.pt"
    assert message.out.startswith(f"{made}: the average of {count} checkpoints (updates ")
    table = message.err.splitlines()
    assert len(table) == 1 + 6 + 1 + 1, "a title, the last 1 to 6, the best alone, what is next"
    (lowest,) = [line for line in table if "lowest" in line]
    assert f"the average of {count}, from update {700 - 100 * count} on" in lowest
    assert table[-1] == f"next: vaswani generate {validated} --subset valid"
    found = describe(made)
    assert found.loss == pytest.approx(abs((13 - count) / 2 - aim))
    assert found.beside == {600: pytest.approx(6 - aim), 500: pytest.approx(abs(5 - aim))}
    other = folder / "other.pt"
    assert invoke(validated, "--last", count, "--output", other) == 0
    assert torch.equal(load(other)["model"]["weight"], load(made)["model"]["weight"])
    Distance.calls = 0
    assert find_checkpoint(str(validated)) == (made, validated)
    assert Distance.calls == 0, "the losses in the average are enough"
    assert "the lowest validation loss" in capsys.readouterr().err


def test_where_a_single_checkpoint_is_best_none_is_made(
    validated: Path, capsys, monkeypatch
) -> None:
    """And an older average that is worse is not decoded; nor is it from an earlier version."""
    monkeypatch.setattr(Distance, "aim", 5.05)
    folder = validated / "checkpoints"
    assert invoke(validated, "--last", 2) == 0
    err = capsys.readouterr().err
    (warning,) = [line for line in err.splitlines() if "warning" in line]
    assert f"{folder / 'checkpoint_best.pt'} alone has a lower validation loss" in warning
    monkeypatch.setattr(Distance, "aim", 4.99)
    made = folder / "checkpoint_average_last2.pt"
    before = made.read_bytes()
    assert invoke(validated) == 0
    message = capsys.readouterr()
    best = folder / "checkpoint_best.pt"
    assert message.out.startswith(f"{best} has the lowest validation loss by itself")
    assert message.err.endswith(f"next: vaswani generate {validated} --subset valid\n")
    assert made.read_bytes() == before and len(list(folder.glob("*average*.pt"))) == 1
    assert find_checkpoint(str(validated)) == (best, validated)
    state = load(made)
    for key in ("validation_nll", "validation_nlls"):
        del state[key]
    torch.save(state, made)
    Distance.calls = 0
    assert find_checkpoint(str(validated)) == (best, validated)
    assert Distance.calls == 2, "computed, since it is not known"
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith(f"taking {best}: the lowest validation loss, 0.0100; next checkpoint_av")


@pytest.mark.parametrize("named", [True, False])
def test_what_the_run_would_not_choose_is_next_by_its_own_name(
    validated: Path, capsys, monkeypatch, named: bool
) -> None:
    """The last checkpoint where training found another one best, and an average elsewhere."""
    monkeypatch.setattr(Distance, "aim", 5.4 if named else 6.0)
    mine = validated / "checkpoints" / ("mine.pt" if named else "checkpoint_last.pt")
    assert invoke(validated, *(["--output", mine] if named else [])) == 0
    message = capsys.readouterr()
    assert message.out.startswith(f"{mine}: the average" if named else f"{mine} has the lowest")
    assert message.err.splitlines()[-1] == f"next: vaswani generate {mine} --subset valid"


def test_a_better_checkpoint_of_later_is_taken(validated: Path, monkeypatch) -> None:
    """Training went on: what the average says of the best checkpoint is of another one."""
    monkeypatch.setattr(Distance, "aim", 5.4)
    assert invoke(validated) == 0
    save(validated / "checkpoints" / "checkpoint_best.pt", 700, 5.41)
    best = validated / "checkpoints" / "checkpoint_best.pt"
    assert find_checkpoint(str(validated)) == (best, validated)
    assert find_checkpoint(str(best)) == (best, validated)


def test_a_named_checkpoint_is_taken_as_it_is(validated: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(Distance, "aim", 5.4)
    first = validated / "checkpoints" / "checkpoint1.pt"
    assert invoke(validated) == 0
    capsys.readouterr()
    assert find_checkpoint(str(first)) == (first, validated)
    assert capsys.readouterr().err == ""


def test_without_data_an_average_is_made_all_the_same(run_folder: Path, capsys) -> None:
    """With --last, and of files: the recipes of the paper do not fail at this step."""
    folder = run_folder / "checkpoints"
    for words in (
        [run_folder, "--last", 2],
        [folder / "checkpoint1.pt", folder / "checkpoint3.pt"],
    ):
        assert invoke(*words) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("validation loss is unknown (there is no data in data-bin)")
    assert describe(folder / "checkpoint_average_last2.pt").loss is None


def test_two_at_once_do_not_write_one_file(run_folder: Path, monkeypatch, capsys) -> None:
    """The second is refused before it does anything; the first ends as if alone."""
    code = f"import sys; from vaswani import cli; sys.exit(cli.main(['average', '{run_folder}'"
    second = [python(), "-c", f"{code}, '--last', '2']))"]
    ended: List[Any] = []
    original = average.averaged_checkpoint

    def averaged(parts: Any) -> Any:
        ended.append(subprocess.run(second, capture_output=True, text=True))
        return original(parts)

    monkeypatch.setattr(average, "averaged_checkpoint", averaged)
    assert invoke(run_folder, "--last", 2) == 0
    assert ended[0].returncode == 1 and ended[0].stderr.count("\n") == 1
    assert "an average is being made in" in ended[0].stderr
    assert load(run_folder / "checkpoints" / "checkpoint_average_last2.pt")
    assert not (run_folder / "checkpoints" / ".average.lock").exists()


# ---- what is decoded --------------------------------------------------------------------------


def test_where_the_loss_is_unknown_the_newest_average_is_taken(run_folder: Path, capsys) -> None:
    """It is that of the last updates, not of the latest file: copying and restoring change times.
    Of equals, the one of most checkpoints."""
    folder = run_folder / "checkpoints"
    (run_folder / "config.yaml").write_text("task: {}", encoding="utf-8")
    early = [folder / f"{name}.pt" for name in ("checkpoint1", "checkpoint_2_200")]
    names = ["checkpoint_average_a.pt", "checkpoint_average_b.pt", "checkpoint_average_c.pt"]
    invoke(run_folder, "--last", 3, "--output", folder / names[0])
    invoke(run_folder, "--last", 2, "--output", folder / names[1])
    invoke(*early, "--output", folder / names[2])
    for age, name in enumerate(names):
        os.utime(folder / name, (1000 + age, 1000 + age))
    capsys.readouterr()
    assert find_checkpoint(str(run_folder)) == (folder / names[0], run_folder)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"taking {folder / names[0]}: the newest average; the validation losses are" in line
    save(folder / "checkpoint_last.pt", 700)
    os.utime(folder / "checkpoint_last.pt", (1, 1))
    find_checkpoint(str(run_folder))
    assert "training continued after" in capsys.readouterr().err
    (folder / "checkpoint_last.pt").write_bytes(b"damaged")
    assert find_checkpoint(str(run_folder))[0] == folder / names[0]


def test_reproduce_averages_again_where_training_went_on(run_folder: Path) -> None:
    """By updates, whatever the files' times; with --from average, what is there is not removed."""
    folder = run_folder / "checkpoints"
    average = folder / "checkpoint_average_last5.pt"
    order: Any = SimpleNamespace(checkpoint=average, run=run_folder, subset="test")
    assert not reproduce.is_averaged(order)
    invoke(run_folder, "--last", 5)
    os.utime(average, (1, 1))
    assert reproduce.is_averaged(order)
    before = average.read_bytes()
    reproduce.set_aside(order, ["average", "generate"])
    assert average.read_bytes() == before
    save(folder / "checkpoint_last.pt", 700)
    os.utime(folder / "checkpoint_last.pt", (1, 1))
    assert not reproduce.is_averaged(order)
    average.write_text("mine")
    assert not reproduce.is_averaged(order)
