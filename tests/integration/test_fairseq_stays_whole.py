"""With the plugin loaded, what fairseq's own models and commands could do they still can."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List
from unittest.mock import MagicMock, patch

import pytest
import torch
from fairseq import checkpoint_utils, search
from fairseq.data import data_utils
from fairseq.models.transformer import TransformerModel
from fairseq.nan_detector import NanDetector
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from omegaconf import OmegaConf

from tests import stock
from tests.models import batch, dictionary, small_model

ENTROPY = ["--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam"]
ENTROPY += ["--lr-scheduler", "fixed", "--lr", "0.001"]
TRANSFORMER = ["--arch", "transformer_tiny", "--share-all-embeddings"]
LSTM = ["--arch", "lstm", "--encoder-embed-dim", "16", "--decoder-embed-dim", "16"]
LSTM += ["--encoder-hidden-size", "16", "--decoder-hidden-size", "16"]
LSTM += ["--decoder-out-embed-dim", "16"]
FCONV = ["--arch", "fconv", "--encoder-embed-dim", "16", "--decoder-embed-dim", "16"]
FCONV += ["--encoder-layers", "[(16, 3)] * 2", "--decoder-layers", "[(16, 3)] * 2"]
FCONV += ["--decoder-out-embed-dim", "16"]


# --- torch.jit.script ---------------------------------------------------------------------------


def their_transformer() -> Any:
    """fairseq's transformer, small."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    TransformerModel.add_args(parser)
    args = parser.parse_args([])
    for side in ("encoder", "decoder"):
        vars(args).update({f"{side}_layers": 2, f"{side}_embed_dim": 16})
        vars(args).update({f"{side}_ffn_embed_dim": 32, f"{side}_attention_heads": 2})
    words = dictionary()
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    torch.manual_seed(1)
    return TransformerModel.build_model(args, task).eval()


WAYS: Dict[str, Callable[[Any], Any]] = {
    "beam": lambda words: search.BeamSearch(words),
    "diverse": lambda words: search.DiverseBeamSearch(words, 2, 0.5),
    "sampling": lambda words: search.Sampling(words, sampling_topk=1),
}


@pytest.mark.parametrize(
    "way", [pytest.param(w, marks=[pytest.mark.slow] if w != "beam" else []) for w in WAYS]
)
def test_their_generator_becomes_torchscript(way: str, tmp_path: Path) -> None:
    """Model, ensemble and search in one program, which decodes what they decode."""
    words, (source, _, _) = dictionary(), batch()
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(1).sum(1)}}
    options = {"search_strategy": WAYS[way](words), "max_len_b": 8}
    generator = SequenceGenerator(
        EnsembleModel([their_transformer()]), words, beam_size=2, **options
    )
    scripted = torch.jit.script(generator)
    scripted.save(str(tmp_path / "generator.pt"))
    expected, found = generator(sample), torch.jit.load(str(tmp_path / "generator.pt"))(sample)
    for theirs, ours in zip(sum(expected, []), sum(found, []), strict=True):
        assert ours["tokens"].tolist() == theirs["tokens"].tolist()
        torch.testing.assert_close(ours["score"], theirs["score"])


def test_their_transformer_becomes_torchscript() -> None:
    model, (source, previous, _) = their_transformer(), batch()
    lengths = source.ne(1).sum(1)
    found, _ = torch.jit.script(model)(source, lengths, previous)
    torch.testing.assert_close(found, model(source, lengths, previous)[0])


# --- their models in their commands -------------------------------------------------------------


@pytest.fixture(scope="module")
def their_transformers(tiny_data_bin, tmp_path_factory) -> Path:
    """A folder with the last checkpoint of fairseq's transformer after two epochs."""
    folder = tmp_path_factory.mktemp("theirs")
    train(tiny_data_bin, folder, TRANSFORMER, "--max-epoch", "2")
    return folder


def train(data: Path, folder: Path, model: List[str], *extra: str) -> List[str]:
    batches = ["--update-epoch-batch-itr", "True"]  # of each epoch, resumed or not
    return stock.train(data, folder, *ENTROPY, *batches, *extra, model=model)


@pytest.mark.parametrize("model", [LSTM, FCONV], ids=lambda model: model[1])
def test_their_models_train_and_decode(model: List[str], tiny_data_bin, tmp_path) -> None:
    train(tiny_data_bin, tmp_path, model, "--max-update", "2", "--no-epoch-checkpoints")
    lines = stock.generate(tiny_data_bin, tmp_path / "checkpoint_last.pt", "--max-len-b", "8")
    assert sorted(stock.results(lines, "H")) == list(range(20))


@pytest.mark.slow
def test_their_transformer_resumes_reproducibly(tiny_data_bin, their_transformers, tmp_path):
    """One epoch and then another are two epochs, dropout and order of sentences included."""
    train(tiny_data_bin, tmp_path, TRANSFORMER, "--max-epoch", "1")
    train(tiny_data_bin, tmp_path, TRANSFORMER, "--max-epoch", "2")
    unbroken, resumed = (
        stock.parameters(folder / "checkpoint_last.pt") for folder in (their_transformers, tmp_path)
    )
    for name, value in unbroken.items():
        if not re.search(r"\._float_tensor$|\.\d+\.\w+_(weight|bias)$", name):  # not trained
            assert torch.equal(value, resumed[name]), name


@pytest.mark.slow
def test_their_transformer_decodes_as_without_the_plugin(tiny_data_bin, their_transformers):
    """Without it, weights in memory: newer torch does not let fairseq read its own checkpoints."""
    checkpoint = their_transformers / "checkpoint_last.pt"
    options = ["--max-len-b", "8", "--min-len", "2", "--lenpen", "0.7", "--unkpen", "1"]
    options += ["--required-batch-size-multiple", "1"]  # else newer fairseq drops four sentences
    lines = stock.generate(tiny_data_bin, checkpoint, *options)
    program = f"""
import sys, torch
from fairseq import options
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq_cli import generate
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
load = torch.load
torch.load = lambda *a, **k: load(*a, **{{**k, "weights_only": False}})
arguments = {[str(tiny_data_bin), "--cpu", "--path", str(checkpoint), "--beam", "4", *options]!r}
args = options.parse_args_and_arch(options.get_generation_parser(), input_args=arguments)
build = TransformerEncoderLayerBase.__init__
def slowly(layer, *a, **k):  # the fused layer of fairseq 0.12.2 fails with torch 2
    build(layer, *a, **k)
    layer.can_use_fastpath = False
TransformerEncoderLayerBase.__init__ = slowly
generate.main(convert_namespace_to_omegaconf(args))
assert "transformer_plugin" not in sys.modules
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = stock.results(done.stdout.splitlines(), "H")
    assert len(expected) == 20 and stock.results(lines, "H") == expected


# --- what the plugin wraps ----------------------------------------------------------------------


def test_batches_are_made_of_any_iterable() -> None:
    """fairseq takes a generator of sentence numbers; it can be read only once."""
    batches = data_utils.batch_by_size(iter(range(10)), lambda n: 1, max_sentences=4)
    assert [list(batch) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


# --- divergence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["ours", "theirs"])
def test_the_detector_of_nan_names_where_it_began(model: str) -> None:
    """In the forward and in the backward pass of a padded batch; nowhere, in a healthy model."""
    built = small_model() if model == "ours" else their_transformer()
    built.train()
    source, previous, _ = batch()

    def reports() -> List[str]:
        with stock.logged() as lines, NanDetector(built):
            built(source, source.ne(1).sum(1), previous)[0].sum().backward()
        return [line for line in lines if "detected in output" in line]

    assert reports() == []
    layer = built.decoder.layers[1]
    with torch.no_grad():
        (layer.feed_forward.fc1 if model == "ours" else layer.fc1).weight.fill_(float("inf"))
    for way in ("forward", "backward"):
        first = next(line for line in reports() if way in line)
        assert "output of decoder.layers.1" in first


@pytest.mark.parametrize("model", [stock.SMALL, TRANSFORMER], ids=["ours", "theirs"])
def test_a_training_that_diverges_ends_in_fairseqs_error(model, tiny_data_bin, tmp_path) -> None:
    options = ["--optimizer", "adam", "--lr-scheduler", "fixed", "--lr", "1e38"]
    with pytest.raises(FloatingPointError, match="gradients are Nan/Inf"):
        stock.train(tiny_data_bin, tmp_path, *options, "--max-update", "9", model=model)


# --- stand-ins ---------------------------------------------------------------------------------


def test_a_trainer_may_be_a_stand_in() -> None:
    """As in fairseq's own tests, whose configuration has no folder to save in."""
    names = ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader")
    cfg = OmegaConf.create(
        {
            **dict.fromkeys(names, False),
            **{"save_dir": None, "finetune_from_model": None, "optimizer_overrides": "{}"},
            "restore_file": "checkpoint_last.pt",
        }
    )
    trainer = MagicMock(checkpoint_suffix="")
    trainer.load_checkpoint.return_value = {"train_iterator": {"epoch": 3}}
    with patch("os.path.join", lambda *parts: "/".join(map(str, parts))):
        state, iterator = checkpoint_utils.load_checkpoint(cfg, trainer)
    assert state["train_iterator"]["epoch"] == 3
    assert iterator is trainer.get_train_iterator.return_value
