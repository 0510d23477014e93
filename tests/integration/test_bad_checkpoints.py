"""Checkpoints: fairseq's own are read on every stack; anything else is refused in one sentence."""

import argparse
import collections
import io
import os
import pickle
import re
import shutil
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import meters, metrics
from fairseq.tasks.translation import TranslationTask
from omegaconf import AnyNode, OmegaConf

from tests import stock
from transformer_plugin.checkpoints import (
    CheckpointError,
    add_safe_globals,
    load_checkpoint,
    reading,
    restricted_pickle,
)

SIZES = [
    f"--{side}-{size}"
    for side in ("encoder", "decoder")
    for size in ("layers=1", "embed-dim=16", "ffn-embed-dim=16", "attention-heads=2")
]


def train(data: Path, save_dir: Path, arch: str, *more: str) -> None:
    """fairseq-train in this process, scored with --eval-bleu: what its checkpoints hold."""
    from fairseq_cli import train as command

    arguments = [str(data), "--arch", arch, "--save-dir", str(save_dir), "--cpu", *SIZES]
    arguments += ["--optimizer", "adam", "--lr", "0.001", "--max-tokens", "400"]
    arguments += ["--criterion", "label_smoothed_cross_entropy", "--num-workers", "0"]
    arguments += ["--eval-bleu", "--eval-bleu-args", '{"max_len_b": 4}', *more]
    parser = options.get_training_parser()
    metrics.reset()
    if hasattr(checkpoint_utils.save_checkpoint, "best"):
        del checkpoint_utils.save_checkpoint.best
    command.main(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments)))


@pytest.fixture(scope="module", params=["vaswani_transformer_tiny", "transformer"])
def run(request, tiny_data_bin, tmp_path_factory) -> Path:
    """checkpoint_last.pt after 3 updates, of our model and of fairseq's."""
    folder = tmp_path_factory.mktemp(request.param)
    train(tiny_data_bin, folder, request.param, "--max-update", "3")
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """A small file with the parts that fairseq looks for."""
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


def test_a_run_holds_no_numpy_and_the_restricted_unpickler_reads_it_alike(run):
    with zipfile.ZipFile(run) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("data.pkl")]
        assert b"numpy" not in archive.read(name)
    other = {"pickle_module": restricted_pickle}
    if reading.TORCH_RESTRICTS_ITSELF:
        other["weights_only"] = False  # the way of older torch, tried on a newer one
    plain = torch.load(run, map_location="cpu", **other)
    state = load_checkpoint(run)
    assert plain["cfg"] == state["cfg"]
    assert all(torch.equal(plain["model"][key], value) for key, value in state["model"].items())


def test_a_run_goes_on_in_the_middle_of_an_epoch(run, tiny_data_bin, tmp_path):
    shutil.copy(run, tmp_path / "checkpoint_last.pt")
    arch = run.parent.name.rstrip("0123456789")
    train(tiny_data_bin, tmp_path, arch, "--max-update", "4")
    assert (
        load_checkpoint(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"]
        == 4
    )


def test_a_checkpoint_is_read_once_to_go_on(run, tiny_data_bin, monkeypatch):
    """Each reading of tensors compares the checksums of the whole file."""
    compare, compared = zipfile.ZipFile.testzip, []
    monkeypatch.setattr(zipfile.ZipFile, "testzip", lambda z: compared.append(z) or compare(z))
    arch = run.parent.name.rstrip("0123456789")
    train(tiny_data_bin, run.parent, arch, "--max-update", "3")  # nothing is left, or saved
    assert len(compared) == 1


class SeenMeter(meters.Meter):
    """Of somebody's task: arrays that are no tensors."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen = [
            *(np.array(["a"]), np.array([{"b": 1}, None]), np.longdouble([1.5])),
            *(np.array([2.5], dtype=">f8"), np.longdouble(3.5), np.datetime64("2026-11-22")),
        ]

    def update(self) -> None:
        self.seen.append(np.array([str(len(self.seen))]))

    def state_dict(self) -> dict:
        return {"seen": self.seen}

    def load_state_dict(self, state_dict: dict) -> None:
        self.seen = state_dict["seen"]

    @property
    def smoothed_value(self) -> float:
        return float(len(self.seen))


def test_a_training_with_a_meter_of_odd_arrays_is_saved_and_goes_on(
    tiny_data_bin, tmp_path, monkeypatch
):
    log = TranslationTask.reduce_metrics

    def reduce_metrics(task, *logged):
        log(task, *logged)
        metrics.log_custom(SeenMeter, "seen")

    monkeypatch.setattr(TranslationTask, "reduce_metrics", reduce_metrics)
    monkeypatch.setattr(meters, "SeenMeter", SeenMeter, raising=False)  # where fairseq finds it
    for updates in "12":
        train(tiny_data_bin, tmp_path, "vaswani_transformer_tiny", "--max-update", updates)
    state = load_checkpoint(tmp_path / "checkpoint_last.pt")["extra_state"]["metrics"]
    (meter,) = [m for _, name, _, m in state["train"] if name == "seen"]
    day = np.datetime64("2026-11-22").tolist()
    first = [["a"], [{"b": 1}, None], [1.5], [2.5], 3.5, day]
    assert [one.tolist() for one in meter["seen"]] == [*first, ["6"], ["7"]]


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("spelling", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_numpy_values_are_read_whichever_numpy_wrote_them(good, tmp_path, spelling, restricted):
    state = torch.load(good)
    state["extra_state"] = {"sum": np.array([3, 2, 1]), "len": np.float64(7.5), "n": np.int64(4)}
    state["extra_state"]["words"] = [np.array(["a", "bc"]), np.array([{"d": 1}, None])]
    torch.save(state, tmp_path / "here.pt")
    here = np.zeros(1).__reduce__()[0].__module__.encode()  # as the numpy of this stack writes it
    rewrite_pickle(tmp_path / "here.pt", tmp_path / "there.pt", here, spelling)
    if restricted:
        other = {"weights_only": False} if reading.TORCH_RESTRICTS_ITSELF else {}
        read = torch.load(tmp_path / "there.pt", pickle_module=restricted_pickle, **other)
    else:
        read = load_checkpoint(tmp_path / "there.pt")
    assert read["extra_state"]["sum"].tolist() == [3, 2, 1]
    assert (read["extra_state"]["len"], read["extra_state"]["n"]) == (7.5, 4)
    words, objects = read["extra_state"]["words"]
    assert (words.tolist(), objects.tolist()) == (["a", "bc"], [{"d": 1}, None])


READERS = (load_checkpoint, lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path)))


@pytest.mark.parametrize("run", ["vaswani_transformer_tiny"], indirect=True)
@pytest.mark.parametrize("restricted", [False, True])
def test_other_peoples_classes_that_run_nothing_are_read(run, tmp_path, restricted, monkeypatch):
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
    if restricted:  # the way of older torch as well
        monkeypatch.setattr(reading, "_unpickle", unpickle_as_older_torch)
    for path in (tmp_path / "here.pt", tmp_path / "old.pt"):
        for read in READERS:
            found = read(path)
            assert found["cfg"] == OmegaConf.to_container(cfg)
            assert found["extra_state"]["parts"] == [*others, [1, None], 2]
            assert found["extra_state"]["train_meters"]["loss"].avg == 3.0


class Theirs:
    """A class of somebody's model."""


@pytest.mark.parametrize("run", ["vaswani_transformer_tiny"], indirect=True)
def test_a_class_that_was_allowed_is_read(run, tmp_path, monkeypatch):
    path = altered(run, tmp_path / "theirs.pt", lambda s: s["extra_state"].update(own=Theirs()))
    for read in READERS:
        with pytest.raises(CheckpointError, match=r"test_bad_checkpoints\.Theirs; .*add_safe_glob"):
            read(path)
    add_safe_globals([Theirs])
    for unpickle in (reading._unpickle, unpickle_as_older_torch):
        monkeypatch.setattr(reading, "_unpickle", unpickle)
        assert all(isinstance(read(path)["extra_state"]["own"], Theirs) for read in READERS)


def test_options_of_before_there_was_a_cfg(good, tmp_path):
    """A Namespace, as ``args``; ``cfg`` may be there and empty."""
    options = argparse.Namespace(arch="transformer", encoder_layers=2)
    for number, cfg in enumerate(({}, {"cfg": None})):
        state = {key: part for key, part in torch.load(good).items() if key != "cfg"}
        torch.save({**state, **cfg, "args": options}, tmp_path / f"{number}.pt")
        assert load_checkpoint(tmp_path / f"{number}.pt")["args"] == options


def test_a_file_of_the_format_before_zip_is_read(good, tmp_path):
    state = torch.load(good)
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    read = load_checkpoint(tmp_path / "old.pt")
    assert torch.equal(read["model"]["encoder.weight"], state["model"]["encoder.weight"])


# --- what has to be refused --------------------------------------------------------------------


def flipped(path: Path, marker: bytes, offset: int) -> bytes:
    """The file's bytes with one bit changed, ``offset`` bytes after the first ``marker``."""
    content = bytearray(path.read_bytes())
    content[content.index(marker) + offset] ^= 1
    return bytes(content)


def write_bad(kind: str, good: Path, path: Path) -> None:
    """Make one kind of bad file at ``path``."""
    content = good.read_bytes()
    state = torch.load(good)
    if kind == "text":
        path.write_text("hello, this is a log file\n" * 100, encoding="utf-8")
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "nothing")
    elif kind == "program":
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))
    elif kind in ("parameters", "list", "no-history"):
        cut = {key: state[key] for key in ("model", "cfg")}
        torch.save({"parameters": state["model"], "list": [1], "no-history": cut}[kind], path)
    elif kind.startswith("odd-"):
        odd = {"odd-model": [2], "odd-cfg": [1], "odd-history": {"num_updates": 1}}[kind]
        key = {"odd-history": "optimizer_history"}.get(kind, kind[len("odd-") :])
        torch.save({**state, key: odd}, path)
    elif kind == "old-format-cut":
        torch.save(state, path, _use_new_zipfile_serialization=False)
        path.write_bytes(path.read_bytes()[:-2000])
    elif kind != "missing":
        number = torch.tensor([1000.0, 1001.0]).numpy().tobytes()
        path.write_bytes(
            {
                "empty": b"",
                "cut": content[: len(content) // 2],
                "start": content[:2],
                "bit-in-a-weight": flipped(good, number, 2),
                "bit-in-the-pickle": flipped(good, b"encoder.weight", 3),
            }[kind]
        )


KINDS = {
    "missing": "does not exist",
    "empty": "is not a checkpoint",
    "cut": "cut short or damaged",
    "start": "is not a checkpoint",
    "bit-in-a-weight": "damaged",
    "bit-in-the-pickle": "damaged",
    "text": "is not a checkpoint",
    "zip": "zip archive but not a checkpoint",
    "program": "zip archive but not a checkpoint",
    "parameters": "no 'model' inside",
    "list": "no 'model' inside",
    "no-history": "no 'optimizer_history' inside",
    "odd-model": "no 'model' inside",
    "odd-cfg": "no 'cfg' inside",
    "odd-history": "no 'optimizer_history' inside",
    "old-format-cut": "damaged",
}


def assert_one_sentence(error: CheckpointError, path: Path) -> None:
    text = str(error)
    assert text.startswith(str(path)) and text.endswith(".")
    assert "\n" not in text and len(text) < 300 + len(str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_file_is_refused_in_one_sentence(kind, good, tmp_path):
    path = tmp_path / "checkpoint_best.pt"
    write_bad(kind, good, path)
    with pytest.raises(CheckpointError, match=KINDS[kind]) as refused:
        load_checkpoint(path)
    assert_one_sentence(refused.value, path)
    if path.is_file():  # what is not there, or a folder, fairseq refuses itself
        with pytest.raises(CheckpointError, match=KINDS[kind]):
            checkpoint_utils.load_checkpoint_to_cpu(str(path))


class Payload:
    """Unpickled without restriction, this calls a function of the author's choice."""

    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced

    def __call__(self) -> None:
        """So that pickle takes what this becomes for a function."""


def payloads(mark: Path) -> dict:
    """Ways to run code, by name; each leaves the file ``mark``."""
    run = Payload(exec, (f"open({str(mark)!r}, 'w').close()",))
    inner = io.BytesIO()  # a checkpoint in the checkpoint, for torch's own unrestricted loader
    torch.save(run, inner, _use_new_zipfile_serialization=False)
    return {
        "system": Payload(os.system, (f"touch {mark}",)),
        "exec": run,
        "open": Payload(open, (str(mark), "w")),
        "eval": Payload(eval, (f"open({str(mark)!r}, 'w').close()",)),
        "getattr": Payload(Payload(getattr, (mark, "touch")), ()),
        "nested": Payload(torch.storage._load_from_bytes, (inner.getvalue(),)),
    }


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("form", ["zip", "old", "bare"])
@pytest.mark.parametrize("way", list(payloads(Path("x"))))
def test_a_pickle_with_code_is_refused_and_nothing_runs(
    way, form, restricted, good, tmp_path, monkeypatch
):
    mark, path = tmp_path / "executed", tmp_path / "checkpoint.pt"
    state = torch.load(good)
    state["extra_state"] = payloads(mark)[way]
    if form == "bare":
        path.write_bytes(pickle.dumps(state["extra_state"], protocol=2))
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form == "zip")
    if restricted and reading.TORCH_RESTRICTS_ITSELF:  # the way of older torch as well
        monkeypatch.setattr(reading, "_unpickle", unpickle_as_older_torch)
    for read in READERS:
        with pytest.raises(CheckpointError) as refused:
            read(path)
        assert_one_sentence(refused.value, path)
        if form == "zip":
            assert re.search(r"nothing in it was run, because it asks for \w", str(refused.value))
    assert not mark.exists()


def unpickle_as_older_torch(stream, mapped=False):
    return torch.load(stream, pickle_module=restricted_pickle, weights_only=False)


@pytest.mark.parametrize("way", list(payloads(Path("x"))))
def test_the_payloads_above_do_run_where_nothing_restricts_them(way, tmp_path):
    pickle.loads(pickle.dumps(payloads(tmp_path / "executed")[way]))
    assert (tmp_path / "executed").exists()


# --- what is built from a checkpoint, and whether it can be decoded ----------------------------


def altered(run: Path, path: Path, change) -> Path:
    """A copy of a run's checkpoint with something changed in it."""
    state = load_checkpoint(run)
    change(state)
    torch.save(state, path)
    return path


@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
def test_what_is_no_number_is_not_decoded(number, run, tmp_path):
    name = "decoder.layers.0.fc1.weight"

    def change(state):
        known = name if name in state["model"] else "decoder.layers.0.feed_forward.fc1.weight"
        state["model"][known][1, 2] = number

    path = altered(run, tmp_path / "diverged.pt", change)
    if run.parent.name.startswith("transformer"):
        assert checkpoint_utils.load_model_ensemble_and_task([str(path)])  # fairseq's affair
        return
    with pytest.raises(CheckpointError, match=r"NaN or infinity in decoder\.layers\.0") as refused:
        checkpoint_utils.load_model_ensemble_and_task([str(path)])
    assert_one_sentence(refused.value, path)


def test_a_mask_may_be_infinite(run, tmp_path):
    """Buffers of fairseq's models are no parameters."""
    path = altered(
        run, tmp_path / "mask.pt", lambda s: s["model"].update(mask=torch.tensor([-torch.inf]))
    )
    assert "mask" in checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]


@pytest.mark.parametrize(
    "option",
    ["--finetune-from-model", pytest.param("--restore-file", marks=pytest.mark.slow)],
)
def test_no_training_begins_from_what_is_no_number(option, trained, tiny_data_bin, tmp_path):
    def change(state):
        state["model"]["encoder.layers.0.feed_forward.fc1.bias"][3] = torch.nan

    path = altered(trained, tmp_path / "bad.pt", change)
    with pytest.raises(CheckpointError, match="NaN or infinity in encoder"):
        stock.train(tiny_data_bin, tmp_path / "run", "--max-update", "70", option, str(path))
    assert not list(tmp_path.glob("run/*.pt"))
