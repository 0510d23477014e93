"""Fixtures that many tests share: a little data, a run on it, its model, the command."""

import gc
import importlib.util
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import shared

# Set before torch is imported, here and in the commands that tests start: the tests' models are so
# small that threads only wait for each other, for minutes if the machine is busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
THREADS = int(os.environ["OMP_NUM_THREADS"].split(",")[0])
# A shell makes its background processes ignore Ctrl-C; the tests of an interrupt need it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Python looks for cycles after every 700 new objects: a tenth of the time of some files.
gc.set_threshold(100_000)

SYMBOLS = "0123456789"


def pytest_collection_finish() -> None:
    """Leave what was imported out of each later search for cycles: a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_curves() -> Iterator[None]:
    """Replace the drawing of curves, which takes as long as training the tests' models.

    The module needs fairseq. Without it nothing is trained: tests/plain runs with PyTorch alone.
    """
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("fairseq") is not None:
            patch.setattr("vaswani.training.training_progress.draw_curve", lambda run: None)
        yield


@pytest.fixture(scope="session")
def plugin_dir() -> Path:
    """Return the folder for ``--user-dir``."""
    import transformer_plugin  # not above: the tests of the commands need no torch

    return Path(transformer_plugin.__file__).parent


@pytest.fixture(autouse=True)
def _same_random_numbers() -> Iterator[None]:
    """Start every test from the same random state, in whatever order they run."""
    random.seed(1)
    if "torch" in sys.modules:  # importing it takes seconds that quick tests should not spend
        import numpy
        import torch

        numpy.random.seed(1)
        torch.manual_seed(1)
    yield


@pytest.fixture(autouse=True)
def _same_number_of_threads() -> Iterator[None]:
    """Restore the number of threads after a test: other counts change the last digits of sums."""
    yield
    if "torch" in sys.modules:
        import torch

        if torch.get_num_threads() != THREADS:
            torch.set_num_threads(THREADS)


def write_digit_pairs(folder: Path, name: str, count: int, seed: int) -> None:
    """Write ``name.en`` (3 to 8 digits per line) and ``name.de`` (the same, reversed)."""
    numbers = random.Random(seed)
    rows = [numbers.choices(SYMBOLS, k=numbers.randint(3, 8)) for _ in range(count)]
    for language, step in (("en", 1), ("de", -1)):
        text = "".join(" ".join(row[::step]) + "\n" for row in rows)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def preprocess(text: Path, destination: Path, *extra: str) -> Path:
    """Binarise the three sets of ``text`` with fairseq-preprocess, in this process."""
    from fairseq import options
    from fairseq_cli import preprocess as command

    arguments = ["--source-lang", "en", "--target-lang", "de", "--destdir", str(destination)]
    for part in ("train", "valid", "test"):
        arguments += [f"--{part}pref", str(text / part)]
    command.main(options.get_preprocessing_parser().parse_args([*arguments, *extra]))
    return destination


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory) -> Path:
    """Write digits and the same digits reversed: 200 pairs to train, 20 to validate, 20 to test."""

    def make(folder: Path) -> None:
        for seed, (name, count) in enumerate([("train", 200), ("valid", 20), ("test", 20)]):
            write_digit_pairs(folder, name, count, seed)

    return shared.made_once(tmp_path_factory, "text", make)


@pytest.fixture(scope="session")
def tiny_data_bin(tiny_text, tmp_path_factory) -> Path:
    """Binarise ``tiny_text``, English to German, with one dictionary for both languages."""

    def make(folder: Path) -> None:
        preprocess(tiny_text, folder, "--joined-dictionary")

    return shared.made_once(tmp_path_factory, "data-bin", make)


# ---- vaswani --------------------------------------------------------------------------------


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys) -> Callable[..., Ended]:
    """Return a function that runs a command line in this process: ``cli("train", "small")``."""
    from tests import stock

    def run(*argv: object) -> Ended:
        capsys.readouterr()  # what was written before is not the command's
        try:
            code = stock.vaswani(*argv)
        except SystemExit as end:  # --help, or a wrong use
            code = int(end.code or 0)
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def trained_workplace(tiny_text, tiny_data_bin, tmp_path_factory) -> Path:
    """Return a ``workplace`` with the run ``small``, trained and packed. Not to be changed."""
    from tests import stock

    def make(folder: Path) -> None:
        shared.write_workplace(folder, tiny_text, tiny_data_bin)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert stock.vaswani("train", "small") == 0
            assert stock.vaswani("pack", "small", "--out", "model") == 0

    return shared.made_once(tmp_path_factory, "trained", make)


@pytest.fixture(scope="session")
def run(trained_workplace) -> Path:
    """Return a run with checkpoints after 2, 4 and 6 updates. Not to be changed; see ``own_run``.

    Its data are found from the folder ``trained_workplace``.
    """
    return trained_workplace / "runs" / "small"


@pytest.fixture(scope="session")
def model(trained_workplace) -> Path:
    """Return the packed model of ``run``. Not to be changed."""
    return trained_workplace / "model"


@pytest.fixture
def workplace(tiny_text, tiny_data_bin, tmp_path, monkeypatch) -> Path:
    """Enter a folder with ``configs/small.yaml`` and its data, and no run yet."""
    shared.write_workplace(tmp_path, tiny_text, tiny_data_bin)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_run(trained_workplace, tmp_path, monkeypatch) -> Path:
    """Copy ``run`` with its experiment and data into the current folder, to be changed."""
    for name in ("configs", "data", "runs"):
        shutil.copytree(trained_workplace / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "small"
