"""The workarounds: each shown to be needed where that can be shown, and to do what it says."""

import argparse
import errno
import io
import os
import shutil
import warnings

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, models
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics
from fairseq.models.transformer import TransformerModel, base_architecture
from omegaconf import OmegaConf

from tests.models import small_model, task
from transformer_plugin import compat
from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.checkpoints.parameters import explain_mismatch
from transformer_plugin.compat import refusals


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
    from tests.models import dictionary

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
