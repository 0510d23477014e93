"""With the plugin loaded, tasks and models that are not ours give what they give without it."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from tests import other_tasks, stock
from tests.conftest import preprocess

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Digits and, as the other language, letters: as pairs, as text of one file, as joined pairs."""
    from fairseq import options
    from fairseq_cli import preprocess as command

    text, folder = tmp_path_factory.mktemp("text"), tmp_path_factory.mktemp("data")
    numbers = random.Random(1)
    for name, count in ("train", 60), ("valid", 12), ("test", 12):
        rows = [numbers.choices(range(10), k=numbers.randint(3, 6)) for _ in range(count)]
        english = ["".join(f"{digit} " for digit in row) + "\n" for row in rows]
        german = ["".join(f"{'abcdefghij'[digit]} " for digit in row[::-1]) + "\n" for row in rows]
        for suffix, lines in (".en", english), (".de", german), ("", english + german):
            (text / f"{name}{suffix}").write_text("".join(lines), encoding="utf-8")
    preprocess(text, folder / "pairs")
    arguments = ["--only-source", "--destdir", str(folder / "text")]
    for part in ("train", "valid", "test"):
        arguments += [f"--{part}pref", str(text / part)]
    command.main(options.get_preprocessing_parser().parse_args(arguments))
    words = str(folder / "text" / "dict.txt")
    preprocess(text, folder / "joined", "--joined-dictionary", "--srcdict", words)
    return folder


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


@pytest.mark.parametrize("name", other_tasks.NAMES)
def test_the_same_numbers_as_without_the_plugin(name: str, both) -> None:
    """Every loss, all parameters to the last bit, every hypothesis with its scores."""
    without, with_it = both
    assert without.keys() == with_it.keys() == set(other_tasks.NAMES)
    assert without[name] and with_it[name] == without[name]
