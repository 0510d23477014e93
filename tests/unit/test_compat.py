"""The workarounds: each shown to be needed where that can be shown, and to do what it says."""

import argparse
import collections
import errno
import importlib.util
import io
import os
import shutil
import warnings
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, models
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.tasks import FairseqTask
from fairseq.tasks.denoising import DenoisingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from tests.models import dictionary, small_model, task
from transformer_plugin import compat
from transformer_plugin.checkpoints import CheckpointError, load_checkpoint
from transformer_plugin.checkpoints.parameters import explain_mismatch
from transformer_plugin.compat import generation_options, loading, refusals, saving
from transformer_plugin.compat.dictionaries import KEY, other_dictionaries
from transformer_plugin.config import ConfigError


def test_apply_twice_wraps_nothing_twice():
    before = (PathManager.copy, metrics.state_dict, models.build_model, checkpoint_utils.torch)
    compat.apply()
    after = (PathManager.copy, metrics.state_dict, models.build_model, checkpoint_utils.torch)
    assert all(one is other for one, other in zip(before, after, strict=True))


# --- --bf16 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        ["/usr/bin/fairseq-train", "data", "--bf16"],
        ["/usr/bin/fairseq-generate", "data", "--memory-efficient-bf16"],
        ["/x/fairseq_cli/train.py", "data", "--bf16"],
    ],
)
def test_bf16_of_fairseq_is_refused_naming_ours(argv, monkeypatch):
    monkeypatch.setattr("sys.argv", argv)
    with pytest.raises(SystemExit, match="--precision bf16") as stopped:
        compat.apply()  # the state of things when --user-dir is imported
    assert isinstance(stopped.value.code, str)  # Python prints it and exits with status 1
    assert "\n" not in stopped.value.code


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["/usr/bin/pytest", "--bf16"],
        ["/usr/bin/other-train", "--bf16"],
        ["/usr/bin/fairseq-train", "data", "--precision", "bf16"],
        ["fairseq-hydra-train", "common.bf16=true"],
    ],
)
def test_other_arguments_are_left_alone(argv):
    refusals.refuse_bf16(argv)


def test_bf16_is_left_to_tpus_where_there_are_any(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "torch_xla")
    refusals.refuse_bf16(["/usr/bin/fairseq-train", "data", "--bf16"])


def test_our_tasks_option_without_our_task_names_the_task():
    command = ["/usr/bin/fairseq-generate", "data", "--length-penalty", "gnmt"]
    with pytest.raises(SystemExit, match="give --task vaswani_translation too"):
        refusals.refuse_length_penalty(command)
    with pytest.raises(SystemExit, match="give --task vaswani_translation too"):
        refusals.refuse_length_penalty([*command, "--task", "translation"])
    refusals.refuse_length_penalty([*command, "--task", "vaswani_translation"])
    refusals.refuse_length_penalty([*command, "--task", "a_subclass_of_ours"])
    refusals.refuse_length_penalty([*command, "--task=vaswani_translation"])
    refusals.refuse_length_penalty(["/usr/bin/vaswani", "generate", "--length-penalty", "gnmt"])


# --- checkpoints replaced in one step ----------------------------------------------------------


def test_a_copy_replaces_the_old_file_instead_of_writing_into_it(tmp_path):
    new, old = tmp_path / "checkpoint5.pt", tmp_path / "checkpoint_last.pt"
    new.write_bytes(b"new")
    old.write_bytes(b"old")
    with open(old, "rb") as reader:  # who reads the old file keeps it: it was not written into
        assert PathManager.copy(str(new), str(old), overwrite=True)
        assert reader.read() == b"old"
    assert old.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["checkpoint5.pt", "checkpoint_last.pt"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    new, old = tmp_path / "checkpoint5.pt", tmp_path / "checkpoint_best.pt"
    new.write_bytes(b"new")
    old.write_bytes(b"old")

    def copyfile(source: str, destination: str) -> None:
        with open(destination, "wb") as stream:
            stream.write(b"n")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    with pytest.raises(OSError, match="No space") as stopped:
        PathManager.copy(str(new), str(old), overwrite=True)
    assert stopped.value.filename == str(old)
    assert old.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["checkpoint5.pt", "checkpoint_best.pt"]


# --- meters ------------------------------------------------------------------------------------


def test_meters_are_saved_without_numpy_and_go_on_after_loading():
    metrics.reset()
    with metrics.aggregate("valid"):
        metrics.log_scalar("_bleu_counts", np.array([3, 2, 1, 0]))
        metrics.log_scalar("_bleu_sys_len", np.float64(7.5))
    saved = metrics.state_dict()
    kinds = {}
    for _, key, _, meter in saved["valid"]:
        kinds[key] = type(meter["sum"])
    assert kinds == {"_bleu_counts": torch.Tensor, "_bleu_sys_len": float}
    metrics.load_state_dict(saved)
    with metrics.aggregate("valid"):
        metrics.log_scalar("_bleu_counts", np.array([1, 1, 1, 1]))
    assert metrics.get_meter("valid", "_bleu_counts").sum.tolist() == [4, 3, 2, 1]
    metrics.reset()


def test_containers_of_other_peoples_meters_are_left_alone():
    Pair = collections.namedtuple("Pair", ["first", "second"])
    for value in (Pair(1, 2), collections.Counter("aab"), collections.defaultdict(list, a=[1])):
        assert saving._plain({"state": [value]})["state"][0] is value


# --- several processes -------------------------------------------------------------------------


def test_a_rank_reads_what_rank_0_sends():
    """A placeholder for a tensor and a configuration, as ``broadcast_object`` packs them."""
    sent = {
        "model": distributed_utils._TensorPlaceholder(index=0),
        "cfg": OmegaConf.create({"model": {"_name": "vaswani_transformer"}}),
    }
    buffer = io.BytesIO()
    torch.save(sent, buffer)
    buffer.seek(0)
    assert distributed_utils.torch.load(buffer, map_location="cpu") == sent


# --- models ------------------------------------------------------------------------------------


def test_an_unknown_model_is_named():
    cfg = argparse.Namespace(_name="somebodys_model")
    with pytest.raises(CheckpointError, match="'somebodys_model'.*--user-dir"):
        models.build_model(cfg, task())


def test_fairseqs_own_encoder_runs_in_evaluation():
    """It is what our model is compared with; official fairseq fails here with torch 2."""
    args = argparse.Namespace(
        encoder_layers=1, encoder_embed_dim=8, encoder_ffn_embed_dim=8, encoder_attention_heads=2
    )
    base_architecture(args)
    model = TransformerModel.build_model(args, task())
    model.load_state_dict(model.state_dict())  # arms the fast path, as fairseq-generate does
    model.eval()
    tokens = torch.tensor([[1, 1, 5, 2], [4, 5, 6, 2]])
    with torch.no_grad():
        out = model.encoder(tokens, torch.tensor([2, 4]))["encoder_out"][0]
    assert out.shape == (4, 2, 8)
    assert torch.isfinite(out).all()


@register_model("another_plugins_model")
class AnotherPluginsModel(BaseFairseqModel):
    """Of another plugin: its sizes need not mean what fairseq's mean."""

    @classmethod
    def build_model(cls, args, task):
        return cls()


@register_model_architecture("another_plugins_model", "another_plugins_model")
def its_only_architecture(args):
    """Nothing to fill in."""


def test_the_sizes_of_another_plugins_model_are_its_own():
    sizes = {"encoder_layers": 5000, "encoder_embed_dim": 10**9}
    cfg = argparse.Namespace(_name="another_plugins_model", **sizes)
    assert isinstance(models.build_model(cfg, task()), AnotherPluginsModel)
    with pytest.raises(ConfigError, match="--encoder-layers is 5,000"):
        models.build_model(argparse.Namespace(_name="transformer", **sizes), task())


def save_of(name, path, weight):
    state = {"model": {"a.weight": torch.tensor([weight])}, "cfg": {"model": {"_name": name}}}
    torch.save({**state, "optimizer_history": [{}]}, path)


def test_the_numbers_of_another_plugins_model_are_its_own(tmp_path):
    for name in ("another_plugins_model", "transformer"):
        save_of(name, tmp_path / name, float("nan"))
    with open(tmp_path / "another_plugins_model", "rb") as stream:
        assert checkpoint_utils.torch.load(stream)["model"]["a.weight"].isnan()
    refused = pytest.raises(CheckpointError, match="NaN or infinity in a.weight")
    with open(tmp_path / "transformer", "rb") as stream, refused:
        checkpoint_utils.torch.load(stream)


@pytest.mark.parametrize("name,counted", [("another_plugins_model", False), ("transformer", True)])
def test_what_another_plugins_model_does_not_save_is_not_counted(name, counted, tmp_path):
    """A part that is the same for all, say, and comes from elsewhere."""
    save_of(name, tmp_path / "saved.pt", 1.0)
    loading.Limit.now = loading.Limit()
    try:
        with open(tmp_path / "saved.pt", "rb") as stream:
            checkpoint_utils.torch.load(stream)
        assert bool(loading.Limit.now.name) is counted
    finally:
        loading.Limit.now = None


# --- dictionaries ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MaskedLMTask, DenoisingTask, SentencePredictionTask])
def test_only_translation_compares_dictionaries(kind):
    """``sentence_prediction`` goes on from ``masked_lm``, each with a dictionary of its own."""
    arguments = {"label_dictionary": dictionary()} if kind is SentencePredictionTask else {}
    built = kind(MagicMock(), dictionary(30), **arguments)
    assert built.state_dict() == {}
    saved = {KEY: {"source": "another", "target": "another"}}  # by an earlier version of ours
    built.load_state_dict(saved)
    assert built.state_dict() == {} and other_dictionaries(built, saved) == ""
    ours = TranslationTask(TranslationConfig(), dictionary(30), dictionary(30))
    assert set(ours.state_dict()[KEY]) == {"source", "target"}
    assert "another source dictionary" in other_dictionaries(ours, saved)


def test_a_dictionary_in_a_tasks_state_can_be_read(tmp_path):
    """As ``audio_finetuning`` and ``hubert_pretraining`` save it."""
    kept = FairseqTask(None)
    kept.state.add_factory("target_dictionary", lambda: dictionary(30))
    assert len(kept.state.target_dictionary) == 30
    state = {"model": {}, "cfg": {"model": {}}, "optimizer_history": [{}]}
    torch.save({**state, "task_state": kept.state_dict()}, tmp_path / "saved.pt")
    found = load_checkpoint(tmp_path / "saved.pt")["task_state"]["target_dictionary"]
    assert found.symbols == dictionary(30).symbols and found.index("w3") == 7


# --- decoding options --------------------------------------------------------------------------


def test_unknown_words_can_be_kept_out():
    generation_options.check(argparse.Namespace(unkpen=float("inf")))
    with pytest.raises(ConfigError, match="--unkpen must be a finite number"):
        generation_options.check(argparse.Namespace(unkpen=float("-inf")))


# --- batches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 8, 50, 500])
@pytest.mark.parametrize("limits", [{"max_tokens": 1000}, {"max_sentences": 24}])
def test_every_sentence_is_in_a_batch(count, limits):
    lengths = np.sort(np.random.randint(3, 30, count))
    batches = data_utils.batch_by_size(
        np.arange(count),
        None,
        num_tokens_vec=lengths,
        required_batch_size_multiple=8,
        **limits,
    )
    assert np.concatenate(batches).tolist() == list(range(count))
    assert all(len(batch) % 8 == 0 or len(batch) < 8 for batch in batches[:-1])


# --- warnings ----------------------------------------------------------------------------------


def test_quiet_hides_the_known_and_nothing_else():
    stale = "`torch.cuda.amp.autocast(args...)` is deprecated. Please use another."
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        compat.quiet()
        warnings.warn(stale, FutureWarning, stacklevel=1)
        warnings.warn(stale, UserWarning, stacklevel=1)  # another kind: not the one we know
        warnings.warn("the loss is not finite", FutureWarning, stacklevel=1)
    assert [str(w.message) for w in shown] == [stale, "the loss is not finite"]


# --- why parameters do not fit -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"encoder_layers": 3}, "--encoder-layers: 3 in the checkpoint, 2 in this model"),
        ({"decoder_layers": 1}, "--decoder-layers: 1 in the checkpoint, 2 in this model"),
        (
            {"encoder_embed_dim": 32, "decoder_embed_dim": 32},
            "--encoder-embed-dim and --decoder-embed-dim: 32 in the checkpoint, 16 in this model",
        ),
        (
            {"encoder_ffn_embed_dim": 64},
            "--encoder-ffn-embed-dim: 64 in the checkpoint, 32 in this model",
        ),
        (
            {"decoder_ffn_embed_dim": 64},
            "--decoder-ffn-embed-dim: 64 in the checkpoint, 32 in this model",
        ),
        ({"head_key_dim": 2}, "--head-key-dim"),
        ({"head_value_dim": 2}, "--head-value-dim"),
        (
            {"encoder_learned_pos": True},
            "--encoder-learned-pos: True in the checkpoint, False in this model",
        ),
    ],
)
def test_the_option_that_differs_is_named(options, expected):
    sentence = explain_mismatch(small_model(**options).state_dict(), small_model().state_dict())
    assert expected in sentence
    assert sentence.endswith(".") and "\n" not in sentence


def test_another_dictionary_is_named():
    other = small_model(for_task=task(dictionary(30)))
    sentence = explain_mismatch(other.state_dict(), small_model().state_dict())
    assert "dictionary" in sentence and "30 in the checkpoint, 24 in this model" in sentence


def test_another_architecture_is_named():
    saved = {"encoder.layers.0.self_attn.q_proj.weight": torch.zeros(16, 16)}
    sentence = explain_mismatch(saved, small_model().state_dict())
    assert "another architecture" in sentence and "self_attn.q_proj" in sentence


def test_untied_embeddings_do_not_slip_into_a_model_that_shares_them():
    untied = small_model(untie_embeddings=True).state_dict()
    assert "--untie-embeddings" in explain_mismatch(untied, small_model().state_dict())


def test_equal_parameters_need_no_explanation():
    assert explain_mismatch(small_model(0).state_dict(), small_model(1).state_dict()) == ""
