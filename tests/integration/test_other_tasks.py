"""With the plugin loaded, tasks and models that are not ours give what they give without it."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from tests import stock
from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.compat import replacing
from transformer_plugin.config import ConfigError

TRAINING = ["--cpu", "--num-workers", "0", "--optimizer", "adam", "--lr", "0.001"]
TRAINING += ["--max-tokens", "300", "--max-update", "6", "--no-epoch-checkpoints"]
TRAINING += ["--update-epoch-batch-itr", "True"]
"""Besides these, fairseq's defaults."""
SIZES = ["--decoder-layers=1", "--decoder-embed-dim=16", "--decoder-attention-heads=2"]
ENCODER = ["--encoder-layers=1", "--encoder-embed-dim=16", "--encoder-attention-heads=2"]


#: trains once for each list of flags, each time in a fork
TRAIN = """
import json, multiprocessing, sys
from fairseq_cli import train

def run(flags):
    sys.argv[1:] = flags
    train.cli_main()
    assert "transformer_plugin" not in sys.modules

for flags in json.loads(sys.argv[1]):
    process = multiprocessing.get_context("fork").Process(target=run, args=(flags,))
    process.start()
    process.join()
    print("ENDED", process.exitcode, flush=True)
"""
LANGUAGE_MODEL = ["--task", "language_modeling", "--tokens-per-sample", "9", *TRAINING]
LANGUAGE_MODEL += ["--sample-break-mode", "complete", "--arch", "transformer_lm", *SIZES]
TRANSLATION = ["--arch", "transformer", *SIZES, *ENCODER, *TRAINING, "--seed", "3"]
TRANSLATION += ["--criterion", "label_smoothed_cross_entropy", "--save-interval-updates", "2"]


@pytest.fixture(scope="module")
def monolingual(tiny_data_bin, tmp_path_factory) -> Path:
    """Copy the English side of ``tiny_data_bin`` as a language model reads it."""
    folder = Path(shutil.copytree(tiny_data_bin, tmp_path_factory.mktemp("english") / "data"))
    for path in folder.glob("*.en-de.en.*"):
        shutil.copy(path, path.with_name(path.name.replace(".en-de.en", "")))
    shutil.copy(folder / "dict.en.txt", folder / "dict.txt")
    return folder


@pytest.fixture(scope="module")
def without(tiny_data_bin, monolingual, tmp_path_factory) -> Path:
    """Train with fairseq-train in processes that never load the plugin; return the folder."""
    folder = tmp_path_factory.mktemp("without")
    trainings = {
        "language_model": [str(monolingual), *LANGUAGE_MODEL],
        "translation": [str(tiny_data_bin), *TRANSLATION],
    }
    commands = [[*flags, "--save-dir", str(folder / name)] for name, flags in trainings.items()]
    program = [sys.executable, "-c", TRAIN, json.dumps(commands)]
    done = subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    *logs, rest = done.stdout.split("ENDED 0\n")
    assert done.returncode == 0 and len(logs) == len(commands) and not rest, done.stdout
    for name, log in zip(trainings, logs, strict=True):
        (folder / name / "log").write_text(log, encoding="utf-8")
    return folder


def validations(lines: Iterable[str]) -> list[str]:
    """Return the loss of each validation, and after how many updates it was."""
    found = []
    for line in lines:
        numbers = re.search(r"valid on .* (\| loss [\d.]+) .*(\| num_updates \d+)", line)
        if numbers:
            found.append(" ".join(numbers.groups()))
    return found


def assert_same_parameters(one: Path, other: Path) -> None:
    """Assert that parameters are equal to the last bit."""
    expected, found = stock.parameters(one), stock.parameters(other)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        if name.endswith(("weight", "bias")):  # a buffer of official fairseq is never filled
            assert torch.equal(value, found[name]), name


def test_a_language_model_is_the_same_without_the_plugin(monolingual, without, tmp_path):
    """All parameters to the last bit."""
    stock.train(monolingual, tmp_path, *LANGUAGE_MODEL, model=[], recipe=[])
    folders = without / "language_model", tmp_path
    assert_same_parameters(*(folder / "checkpoint_last.pt" for folder in folders))


def test_fairseqs_translation_is_the_same_without_the_plugin(tiny_data_bin, without, tmp_path):
    """All parameters, and each validation: of as many sentences, whatever fairseq leaves out."""
    lines = stock.train(tiny_data_bin, tmp_path, *TRANSLATION, model=[], recipe=[])
    log = (without / "translation" / "log").read_text(encoding="utf-8")
    assert validations(lines) == validations(log.splitlines()) != []
    folders = without / "translation", tmp_path
    assert_same_parameters(*(folder / "checkpoint_last.pt" for folder in folders))


# --- what we refuse, or do otherwise than fairseq, is for translation -----------------------------


@register_task("somebodys_translation", dataclass=TranslationConfig)
class SomebodysTask(TranslationTask):
    """Another plugin's task: it may have reasons for anything."""


THEIRS = ["--task", "somebodys_translation"]
OURS = ["--task", "vaswani_translation"]


def test_another_plugins_task_trains_where_ours_refuses(tiny_data_bin, tmp_path) -> None:
    options = ["--restore-file", "gone.pt", "--max-update", "2", "--no-epoch-checkpoints"]
    with pytest.raises(CheckpointError, match="gone.pt"):
        stock.train(tiny_data_bin, tmp_path, *options, *OURS)
    for task in (THEIRS, []):
        lines = stock.train(tiny_data_bin, tmp_path, *options, *task)
        assert any(line.startswith("done training") for line in lines)


def test_another_plugins_task_starts_and_ends_where_fairseq_does(tiny_data_bin, tmp_path) -> None:
    """Without checkpoint_last.pt it starts over; with all its updates it makes one more."""
    replacing.protect()
    options = [*THEIRS, "--max-update", "2", "--save-interval-updates", "1"]
    stock.train(tiny_data_bin, tmp_path, *options)
    (tmp_path / "checkpoint_last.pt").unlink()
    lines = stock.train(tiny_data_bin, tmp_path, *options)
    assert any(line.startswith("No existing checkpoint found") for line in lines)
    stock.train(tiny_data_bin, tmp_path, *options)
    assert (tmp_path / "checkpoint_1_3.pt").exists()


def test_another_plugins_task_takes_all_of_fairseqs_options(trained, tiny_data_bin) -> None:
    options = ["--diverse-beam-groups", "2", "--max-len-b", "5"]
    with pytest.raises(ConfigError, match="--diverse-beam-groups"):
        stock.generate(tiny_data_bin, trained, *options, *OURS)
    lines = stock.generate(tiny_data_bin, trained, *options, *THEIRS)
    assert len(stock.results(lines, "H")) == 20
