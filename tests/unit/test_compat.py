"""The workarounds: each shown to be needed where that can be shown, and to do what it says."""

import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import LanguagePairDataset
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.translation import TranslationConfig

from tests.models import dictionary, small_model, task
from transformer_plugin.checkpoints import CheckpointError, explain_mismatch
from transformer_plugin.compat import replacing
from transformer_plugin.compat.dictionaries import KEY
from transformer_plugin.compat.replacing import REPLACED
from transformer_plugin.compat.translation_task import CheckedTranslationTask
from vaswani.training.trainer import replacements

ROOT = Path(__file__).resolve().parents[2]


# --- what is replaced --------------------------------------------------------------------------

WHAT_CHANGED = """
import sys, types, warnings
warnings.simplefilter("ignore")
from fairseq import nan_detector, sequence_generator, tasks, trainer
from fairseq_cli import eval_lm, generate, hydra_train, interactive, preprocess, train, validate

def attributes():
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").split(".")[0] in ("fairseq", "fairseq_cli", "hydra"):
            for name, value in list(vars(module).items()):
                yield f"{module.__name__}.{name}", value
                if isinstance(value, type) and value.__module__ == module.__name__:
                    for method, function in list(vars(value).items()):
                        yield f"{module.__name__}.{name}.{method}", function

before = dict(attributes())
sys.argv = ["fairseq-train", "data", "--bf16", "--length-penalty", "gnmt"]  # which nobody reads
import transformer_plugin
after = dict(attributes())
transformer_plugin.compat.replacing.protect()
protected = dict(attributes())
for old, new in ((before, after), (after, protected)):
    print(*sorted(n for n in old if "__module__" not in n and new[n] is not old[n]))
"""


def test_attributes_that_the_plugin_changes_are_listed():
    """Every attribute of fairseq and hydra before and after, against the register."""
    done = subprocess.run(
        [sys.executable, "-c", WHAT_CHANGED], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    at_import, on_request = (
        {name for name in line.split() if "_abc_" not in name} for line in done.stdout.splitlines()
    )
    elsewhere = {"0.12.2 with torch 2", "torch 2.6 and later"}  # needed by one stack alone
    repairs = [r for r in REPLACED if r.kind == replacing.REPAIRS]
    always = {r.attribute for r in repairs if r.versions not in elsewhere}
    assert always <= at_import <= {r.attribute for r in repairs}
    assert on_request == {r.attribute for r in REPLACED if r.kind == replacing.PROTECTS}
    assert len(repairs) <= 7 and len(on_request) <= 4


def test_the_documents_table_is_what_the_register_says(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    replaced = importlib.import_module("replaced")
    text = replaced.PAGE.read_text(encoding="utf-8")
    assert replaced.page(text) == text


# --- models ------------------------------------------------------------------------------------


def test_the_numbers_of_other_models_are_their_own(tmp_path):
    """Of fairseq's, and of a plugin's whose sizes need not mean what fairseq's mean."""
    for name in ("another_plugins_model", "transformer", "vaswani_transformer"):
        state = {
            "model": {"a.weight": torch.tensor([torch.nan])},
            "cfg": {"model": {"_name": name}},
        }
        torch.save({**state, "optimizer_history": [{}]}, tmp_path / name)
    for name in ("another_plugins_model", "transformer"):
        with open(tmp_path / name, "rb") as stream:
            assert checkpoint_utils.torch.load(stream)["model"]["a.weight"].isnan()
    refused = pytest.raises(CheckpointError, match="NaN or infinity in a.weight")
    with open(tmp_path / "vaswani_transformer", "rb") as stream, refused:
        checkpoint_utils.torch.load(stream)


# --- dictionaries ------------------------------------------------------------------------------


def test_only_translation_compares_dictionaries():
    """``sentence_prediction`` goes on from ``masked_lm``, each with a dictionary of its own."""
    assert MaskedLMTask(MagicMock(), dictionary(30)).state_dict() == {}


def test_our_task_compares_dictionaries():
    ours = CheckedTranslationTask(TranslationConfig(), dictionary(30), dictionary(30))
    assert set(ours.state_dict()[KEY]) == {"source", "target"}
    for state in (ours.state_dict(), {}):  # fairseq's own checkpoints have none
        ours.load_state_dict(state)
        assert ours.other_dictionaries == ""
    ours.load_state_dict({KEY: {"source": "another", "target": "another"}})
    for method in (ours.build_generator, ours.valid_step):
        with pytest.raises(CheckpointError, match="another source dictionary"):
            method(None, None)


def test_the_page_names_what_vaswani_train_replaces():
    """And nothing else, in the table below the one that is made."""
    page = (ROOT / "transformer_plugin" / "README.md").read_text(encoding="utf-8")
    table = page.partition("While it trains, `vaswani train` also replaces these")[2]
    rows = re.findall(r"^\| `([\w.]+)`", table.partition("**The process**")[0], re.MULTILINE)
    replaced = replacements(MagicMock(), MagicMock(), {})
    assert sorted(rows) == sorted(f"{owner.__name__}.{name}" for owner, name, _ in replaced)


# --- batches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 50])
@pytest.mark.parametrize("limits", [{"max_tokens": 1000}, {"max_sentences": 24}])
def test_every_sentence_is_in_a_batch(count, limits):
    """Of our tasks; with fairseq's default for ``--required-batch-size-multiple``."""
    words = dictionary()
    sizes = np.random.randint(3, 30, count)
    sentences = [torch.full((size,), 5) for size in sizes]
    dataset = LanguagePairDataset(sentences, sizes, words, sentences, sizes, words)
    task = CheckedTranslationTask(TranslationConfig(), words, words)
    iterator = task.get_batch_iterator(dataset, required_batch_size_multiple=8, **limits)
    batches = iterator.frozen_batches
    assert sorted(np.concatenate(batches).tolist()) == list(range(count))
    assert all(len(batch) % 8 == 0 or len(batch) < 8 for batch in batches[:-1])
    assert len(pickle.loads(pickle.dumps(dataset)).batch_by_size(np.arange(0))) == 0


MAKING_BATCHES = """
import time, torch, transformer_plugin
from fairseq.data.iterators import BufferedIterator
class Batches:
    def __len__(self):
        return 10**9
    def __iter__(self):
        while True:
            yield [torch.zeros(64, 64).copy_(torch.ones(64)) for _ in range(64)]
batches = BufferedIterator(10**6, Batches())
next(batches)
time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_process_that_makes_batches_ahead_ends_without_aborting():
    """fairseq alone: SIGABRT, 18 times of 18; as a training can, where it ends amid an epoch."""
    done = subprocess.run([sys.executable, "-c", MAKING_BATCHES], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr


# --- why parameters do not fit -----------------------------------------------------------------


def test_parameters_that_do_not_fit_are_explained():
    ours = small_model().state_dict()
    theirs = {"encoder.layers.0.self_attn.q_proj.weight": torch.zeros(16, 16)}
    for other, named in (
        (small_model(encoder_ffn_embed_dim=64).state_dict(), "another size"),
        (small_model(for_task=task(dictionary(30))).state_dict(), "another dictionary"),
        (theirs, "another architecture"),
    ):
        assert named in explain_mismatch(other, ours)
    assert explain_mismatch(small_model(1).state_dict(), ours) == ""
