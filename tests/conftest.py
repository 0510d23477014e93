"""Fixtures that many tests share: the plugin's folder, and a little binarised data."""

import os
import random
import signal
import sys
from pathlib import Path
from typing import Iterator

import pytest

# Set before torch is imported, here and in the commands that tests start: the tests' models are so
# small that threads only wait for each other, for minutes if the machine is busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
THREADS = int(os.environ["OMP_NUM_THREADS"].split(",")[0])
# A shell makes its background processes ignore Ctrl-C; the tests of an interrupt need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

SYMBOLS = "0123456789"


@pytest.fixture(scope="session")
def plugin_dir() -> Path:
    """The folder for ``--user-dir``."""
    import transformer_plugin  # not above: the tests of the commands need no torch

    return Path(transformer_plugin.__file__).parent


@pytest.fixture(autouse=True)
def _same_random_numbers() -> Iterator[None]:
    """Every test starts from the same random state, in whatever order they run."""
    random.seed(1)
    if "torch" in sys.modules:  # importing it takes seconds that quick tests should not spend
        import numpy
        import torch

        numpy.random.seed(1)
        torch.manual_seed(1)
    yield


@pytest.fixture(autouse=True)
def _same_number_of_threads() -> Iterator[None]:
    """A test may change it only for itself: other thread counts give sums other last digits."""
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
    """Binarise train, valid and test of ``text`` with fairseq-preprocess, in this process."""
    from fairseq import options
    from fairseq_cli import preprocess as command

    arguments = ["--source-lang", "en", "--target-lang", "de", "--destdir", str(destination)]
    for part in ("train", "valid", "test"):
        arguments += [f"--{part}pref", str(text / part)]
    command.main(options.get_preprocessing_parser().parse_args([*arguments, *extra]))
    return destination


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory) -> Path:
    """Digits and the same digits reversed: 200 pairs to train, 20 to validate, 20 to test."""
    folder = tmp_path_factory.mktemp("text")
    for seed, (name, count) in enumerate([("train", 200), ("valid", 20), ("test", 20)]):
        write_digit_pairs(folder, name, count, seed)
    return folder


@pytest.fixture(scope="session")
def tiny_data_bin(tiny_text, tmp_path_factory) -> Path:
    """``tiny_text`` binarised, English to German, with one dictionary for both languages."""
    destination = tmp_path_factory.mktemp("data-bin")
    return preprocess(tiny_text, destination, "--joined-dictionary")
