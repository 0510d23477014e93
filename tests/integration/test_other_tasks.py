"""With the plugin loaded, tasks and models that are not ours give what they give without it."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest
from fairseq import options
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_cli import preprocess as command

from tests import other_tasks, stock
from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.compat import replacing
from transformer_plugin.config import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Digits and, as the other language, letters: as text alone, and with their languages."""
    text, folder = tmp_path_factory.mktemp("text"), tmp_path_factory.mktemp("data")
    numbers = random.Random(1)
    for name, count in ("train", 60), ("valid", 12), ("test", 12):
        rows = [numbers.choices(range(10), k=numbers.randint(3, 6)) for _ in range(count)]
        english = ["".join(f"{digit} " for digit in row) + "\n" for row in rows]
        german = ["".join(f"{'abcdefghij'[digit]} " for digit in row[::-1]) + "\n" for row in rows]
        (text / name).write_text("".join(english + german), encoding="utf-8")
        labels = "English\n" * count + "German\n" * count
        (text / f"{name}.label").write_text(labels, encoding="utf-8")
    one_sided(text, folder / "text", "")
    words = ["--srcdict", str(folder / "text" / "dict.txt")]
    one_sided(text, folder / "classes" / "input0", "", *words)
    one_sided(text, folder / "classes" / "label", ".label")
    return folder


def one_sided(text: Path, destination: Path, suffix: str, *extra: str) -> None:
    """Binarise train, valid and test, each one file, with fairseq-preprocess."""
    arguments = ["--only-source", "--destdir", str(destination), *extra]
    for part in ("train", "valid", "test"):
        arguments += [f"--{part}pref", str(text / f"{part}{suffix}")]
    command.main(options.get_preprocessing_parser().parse_args(arguments))


@pytest.fixture(scope="module")
def both(data, tmp_path_factory) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """What each command gave without the plugin, in a process of its own, and with it."""
    folder = tmp_path_factory.mktemp("checkpoints")
    command = [sys.executable, "-m", "tests.other_tasks", str(data), str(folder / "without")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    without = json.loads(done.stdout.splitlines()[-1])
    return without, other_tasks.run_all(data, folder / "with", "--user-dir", stock.PLUGIN)


def test_the_same_numbers_as_without_the_plugin(both) -> None:
    """Every loss, all parameters to the last bit, every hypothesis with its scores."""
    without, with_it = both
    for name in other_tasks.NAMES:
        assert without[name] and with_it[name] == without[name], name


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
    options = ["--lenpen", "inf", "--max-len-b", "5"]
    with pytest.raises(ConfigError, match="--lenpen must be a finite number"):
        stock.generate(tiny_data_bin, trained, *options, *OURS)
    lines = stock.generate(tiny_data_bin, trained, *options, *THEIRS)
    assert len(stock.results(lines, "H")) == 20
