"""Checkpoints: fairseq's own are read on every stack; anything else is refused in one sentence.

torch 2.6 and later restricts what a file may name; the official stack's has our own unpickler.
"""

import collections
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.logging import meters, metrics
from omegaconf import AnyNode, OmegaConf

from tests import stock
from tests.shared import SIZES
from transformer_plugin.checkpoints import (
    CheckpointError,
    add_safe_globals,
    load_checkpoint,
)
from transformer_plugin.task import VaswaniTranslationTask


@pytest.fixture(scope="module", params=["vaswani_transformer_tiny", "transformer"])
def run(request, tiny_data_bin, tmp_path_factory) -> Path:
    """Train our model and fairseq's for 3 updates with --eval-bleu; return checkpoint_last.pt."""
    folder = tmp_path_factory.mktemp(request.param)
    sizes = [f"--{name.replace('_', '-')}={size}" for name, size in SIZES.items()]
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"max_len_b": 4}']
    model = ["--arch", request.param, *sizes]
    theirs = ["--optimizer", "adam", "--lr", "0.001", "--criterion", "label_smoothed_cross_entropy"]
    stock.train(tiny_data_bin, folder, "--max-update", "3", *bleu, model=model, recipe=theirs)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """Save a small file with the parts that fairseq looks for."""
    path = tmp_path_factory.mktemp("good") / "checkpoint.pt"
    state = {
        "model": {"encoder.weight": torch.arange(4000.0)},
        "cfg": {"model": {"_name": "vaswani_transformer"}},
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 1}],
    }
    torch.save(state, path)
    return path


def rewrite_pickle(source: Path, destination: Path, old: bytes, new: bytes) -> None:
    """Copy a checkpoint with ``old`` replaced in its pickle, and the checksums made right."""
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(destination, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name.endswith("data.pkl"):
                assert old in content
                content = content.replace(old, new)
            after.writestr(name, content)


# --- what has to be read -----------------------------------------------------------------------


def test_a_run_is_read_by_us_and_by_fairseq(run):
    state = load_checkpoint(run)
    assert state["optimizer_history"][-1]["num_updates"] == 3
    (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(run)])
    # not the encoder: official fairseq fills further copies of its weights in there as it loads
    parameters = dict(model.decoder.named_parameters(prefix="decoder"))
    assert len(parameters) > 10
    assert all(torch.equal(state["model"][name], value) for name, value in parameters.items())


def test_a_run_holds_no_numpy(run):
    with zipfile.ZipFile(run) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("data.pkl")]
        assert b"numpy" not in archive.read(name)


@pytest.mark.parametrize("spelling", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_numpy_values_are_read_whichever_numpy_wrote_them(good, tmp_path, spelling):
    state = torch.load(good)
    state["extra_state"] = {"sum": np.array([3, 2, 1]), "len": np.float64(7.5), "n": np.int64(4)}
    torch.save(state, tmp_path / "here.pt")
    here = np.zeros(1).__reduce__()[0].__module__.encode()  # as the numpy of this stack writes it
    rewrite_pickle(tmp_path / "here.pt", tmp_path / "there.pt", here, spelling)
    read = load_checkpoint(tmp_path / "there.pt")["extra_state"]
    assert read["sum"].tolist() == [3, 2, 1] and (read["len"], read["n"]) == (7.5, 4)


def test_meters_may_hold_arrays_that_are_no_tensors(tiny_data_bin, tmp_path, monkeypatch):
    """Of somebody's task: strings and objects, which are saved, read and resumed."""
    arrays = {"names": np.array(["a", "ß"]), "objects": np.array([1, None, "x"], dtype=object)}
    reduce_metrics = VaswaniTranslationTask.reduce_metrics

    def with_arrays(self, *args):
        reduce_metrics(self, *args)
        for name, array in arrays.items():
            metrics.log_scalar(name, array, weight=0)

    monkeypatch.setattr(VaswaniTranslationTask, "reduce_metrics", with_arrays)
    task = ["--task", "vaswani_translation", "--disable-validation"]
    for updates in ("2", "4"):
        stock.train(tiny_data_bin, tmp_path, *task, "--max-update", updates)
        state = load_checkpoint(tmp_path / "checkpoint_last.pt")
        assert state["optimizer_history"][-1]["num_updates"] == int(updates)
        saved = state["extra_state"]["metrics"]["train"]
        values = {name: meter["val"] for _, name, _, meter in saved if name in arrays}
        assert {name: value.tolist() for name, value in values.items()} == {
            name: array.tolist() for name, array in arrays.items()
        }


READERS = (load_checkpoint, lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path)))


@pytest.mark.parametrize("run", ["vaswani_transformer_tiny"], indirect=True)
def test_other_peoples_classes_that_run_nothing_are_read(run, tmp_path):
    state = load_checkpoint(run)
    cfg = OmegaConf.create({**state["cfg"], "list": [1, None]})
    meter = meters.AverageMeter(round=2)
    meter.update(3.0)
    others = [collections.defaultdict(list), dict, int, Any, Path("/a/b"), PurePosixPath("c")]
    state["extra_state"]["parts"] = [*others, cfg.list, AnyNode(2)]
    state["extra_state"]["train_meters"] = collections.OrderedDict(loss=meter)
    torch.save({**state, "cfg": cfg}, tmp_path / "here.pt")
    with_old_name = (b"fairseq.logging.meters", b"fairseq.meters")  # as of fairseq 0.9
    rewrite_pickle(tmp_path / "here.pt", tmp_path / "old.pt", *with_old_name)
    for path in (tmp_path / "here.pt", tmp_path / "old.pt"):
        for read in READERS:
            found = read(path)
            assert found["cfg"] == OmegaConf.to_container(cfg)
            assert found["extra_state"]["parts"] == [*others, [1, None], 2]
            assert found["extra_state"]["train_meters"]["loss"].avg == 3.0


class Theirs:
    """A class of somebody's model."""


@pytest.mark.parametrize("run", ["vaswani_transformer_tiny"], indirect=True)
def test_a_class_that_was_allowed_is_read(run, tmp_path):
    path = altered(run, tmp_path / "theirs.pt", lambda s: s["extra_state"].update(own=Theirs()))
    for read in READERS:
        with pytest.raises(CheckpointError, match=r"test_bad_checkpoints\.Theirs: .*add_safe_glob"):
            read(path)
    add_safe_globals([Theirs])
    assert all(isinstance(read(path)["extra_state"]["own"], Theirs) for read in READERS)


# --- what has to be refused --------------------------------------------------------------------


def flipped(content: bytes, marker: bytes, offset: int) -> bytes:
    """Change one bit, ``offset`` bytes after the first ``marker``."""
    place = content.index(marker) + offset
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def saved(state: object, **options: bool) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream, **options)
    return stream.getvalue()


def without_history(content: bytes) -> bytes:
    state = torch.load(io.BytesIO(content))
    del state["optimizer_history"]
    return saved(state)


def with_history(history: object) -> Callable[[bytes], bytes]:
    """Return a function that changes a checkpoint's record of its training."""

    def change(content: bytes) -> bytes:
        return saved({**torch.load(io.BytesIO(content)), "optimizer_history": history})

    return change


NUMBERS = torch.tensor([1000.0, 1001.0]).numpy().tobytes()
BAD: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "cut": lambda good: good[: len(good) // 2],
    "bit-in-a-weight": lambda good: flipped(good, NUMBERS, 2),
    "text": lambda good: b"hello, this is a log file\n" * 100,
    "no history": without_history,
    "an empty history": with_history([]),
    "a history of text": with_history("updates"),
    "a history of numbers": with_history([1]),
    "updates as text": with_history([{"num_updates": "3"}]),
    "no updates": with_history([{"num_updates": None}]),
    "old format, cut": lambda good: saved(
        torch.load(io.BytesIO(good)), _use_new_zipfile_serialization=False
    )[:-2000],
}


def assert_one_sentence(error: CheckpointError, path: Path) -> None:
    text = str(error)
    assert text.startswith(str(path)) and text.endswith(".")
    assert "\n" not in text and len(text) < 300 + len(str(path))


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_in_one_sentence(kind, good, tmp_path):
    path = tmp_path / "checkpoint_best.pt"
    path.write_bytes(BAD[kind](good.read_bytes()))
    for read in READERS:
        with pytest.raises(CheckpointError) as refused:
            read(path)
        assert_one_sentence(refused.value, path)


class Payload:
    """Unpickled without restriction, this calls a function of the author's choice."""

    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced

    def __call__(self) -> None:
        """Make pickle take the object for a function."""


def payloads(mark: Path) -> dict:
    """Return ways to run code, by name; each writes the file ``mark``."""
    run = Payload(exec, (f"open({str(mark)!r}, 'w').close()",))
    inner = io.BytesIO()  # a checkpoint in the checkpoint, for torch's own unrestricted loader
    torch.save(run, inner, _use_new_zipfile_serialization=False)
    return {
        "system": Payload(os.system, (f"touch {mark}",)),
        "exec": run,
        "getattr": Payload(Payload(getattr, (mark, "touch")), ()),
        "nested": Payload(torch.storage._load_from_bytes, (inner.getvalue(),)),
    }


@pytest.mark.parametrize("form", ["zip", "old", "bare"])
@pytest.mark.parametrize("way", list(payloads(Path("x"))))
def test_a_pickle_with_code_is_refused_and_nothing_runs(way, form, good, tmp_path):
    mark, path = tmp_path / "executed", tmp_path / "checkpoint.pt"
    state = torch.load(good)
    state["extra_state"] = payloads(mark)[way]
    if form == "bare":
        path.write_bytes(pickle.dumps(state["extra_state"], protocol=2))
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form == "zip")
    for read in READERS:
        with pytest.raises(CheckpointError) as refused:
            read(path)
        assert_one_sentence(refused.value, path)
    assert not mark.exists()


@pytest.mark.parametrize("way", list(payloads(Path("x"))))
def test_the_payloads_above_do_run_where_nothing_restricts_them(way, tmp_path):
    pickle.loads(pickle.dumps(payloads(tmp_path / "executed")[way]))
    assert (tmp_path / "executed").exists()


# --- what is built from a checkpoint, and whether it can be decoded ----------------------------


def altered(run: Path, path: Path, change) -> Path:
    """Copy a run's checkpoint, and change the copy."""
    state = load_checkpoint(run)
    change(state)
    torch.save(state, path)
    return path


@pytest.mark.parametrize("run", ["vaswani_transformer_tiny"], indirect=True)
def test_a_diverged_model_is_not_decoded(run, tmp_path):
    """Fairseq's own models are fairseq's affair: see unit/test_compat.py."""
    name = "decoder.layers.0.feed_forward.fc1.weight"
    bad = altered(run, tmp_path / "bad.pt", lambda s: s["model"][name][1, 2].fill_(float("nan")))
    with pytest.raises(CheckpointError, match=f"NaN or infinity in {name}") as refused:
        checkpoint_utils.load_model_ensemble_and_task([str(bad)])
    assert_one_sentence(refused.value, bad)
