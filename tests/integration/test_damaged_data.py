"""Damaged or unfit data: refused in one sentence and in seconds, by our commands and by fairseq's.

What is left out for its length is counted, and said on the terminal.
"""

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from fairseq.data import indexed_dataset

from tests.conftest import preprocess

DATA = Path("data/digits/data-bin")
HEADER = 26  # of an index: magic word, version, type, N


@pytest.mark.parametrize(
    ("place", "kind", "value"), [(HEADER + 8, "i", -7), (HEADER - 8, "Q", 10**18)]
)
def test_a_damaged_index_is_refused_by_every_command(workplace, cli, place, kind, value):
    """A negative size made fairseq copy without an end, until the memory was full."""
    path = DATA / "train.en-de.de.idx"
    content = bytearray(path.read_bytes())
    struct.pack_into(f"<{kind}", content, place, value)
    path.write_bytes(content)
    for command in (["train", "small"], ["plan", "small", "--gpus", "1"]):
        done = cli(*command)
        assert done.code == 1 and path.name in done.err
    assert not Path("runs").exists()


def test_a_dictionary_that_is_too_short_is_refused(workplace, cli):
    """The digits' has 10 entries and two to fill it up."""
    for language in ("en", "de"):  # both: two that differ are refused for that
        path = DATA / f"dict.{language}.txt"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:6]))
    done = cli("train", "small")
    assert done.code == 1 and "dict." in done.err


@pytest.mark.parametrize("line", ["without-a-count", "0 7"])
def test_a_damaged_dictionary_is_refused_by_its_name(own_run, cli, line):
    """fairseq's ValueError, or RuntimeError for a word that occurs twice, names no file."""
    for language in ("en", "de"):  # both: two that differ are refused for that
        path = DATA / f"dict.{language}.txt"
        path.write_text(f"{path.read_text()}{line}\n")
    options = ["--data", str(DATA)]
    for command in (["train", "small", "run=new"], ["new", "mine", *options], ["plan", "small"]):
        done = cli(*command)
        assert done.code == 1 and "dict.en.txt" in done.err and line.split()[0] in done.err
    for command in (["generate", "small"], ["pack", "small", "--out", "model"]):
        done = cli(*command, *options)
        assert done.code == 1 and "dict.en.txt" in done.err.splitlines()[-1]
    assert not Path("runs/new").exists() and not Path("mine.yaml").exists()


def test_text_of_unknown_words_is_refused(tiny_text, workplace, cli):
    """fairseq trains on it: every word is <unk>, and the loss falls."""
    Path("dict.txt").write_text("one 1\ntwo 1\n")
    preprocess(tiny_text, Path("unk"), "--srcdict", "dict.txt", "--joined-dictionary")
    done = cli("train", "small", "task.data=unk")
    assert done.code == 1 and "<unk>" in done.err


# ---- sentences that are too long ----------------------------------------------------------------


def test_sentences_that_are_too_long_are_left_out_and_counted(tiny_text, workplace, cli):
    """Of 1,500 digits, where a model takes 1,024: they would stop fairseq at its validation."""
    text = shutil.copytree(tiny_text, "text")
    for part, count in (("train", 2), ("valid", 1)):
        for language in ("en", "de"):
            with open(f"{text}/{part}.{language}", "a") as stream:
                stream.write((" ".join("7" * 1500) + "\n") * count)
    preprocess(Path(text), Path("long"), "--joined-dictionary")
    options = ["task.data=long", "dataset.max_tokens=2000", "optimization.max_update=1"]
    options += ["dataset.skip_invalid_size_inputs_valid_test=false"]
    done = cli("train", "small", *options)
    lines = done.err.splitlines()
    assert done.code == 0, done.err
    assert "2 of 202 training sentences" in lines[0] and "task.max_source_positions" in lines[0]
    assert "1 of 21 validation sentences" in lines[1]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["dataset.max_tokens=3"], "all 200 training sentences"),
        (["dataset.max_tokens=5", "dataset.max_tokens_valid=5"], "dataset.max_tokens_valid=5"),
    ],
)
def test_a_limit_that_leaves_no_sentence_is_named(options, named, workplace, cli):
    done = cli("train", "small", *options, "dataset.skip_invalid_size_inputs_valid_test=false")
    assert done.code == 1 and named in done.err


def test_parts_of_more_than_2_gb_are_joined(tmp_path):
    """The index alone: three sentences of a thousand million tokens, of two bytes each."""
    many = 10**9
    part, whole = tmp_path / "part", tmp_path / "whole"
    head = struct.pack("<9sQBQ", b"MMIDIDX\x00\x00", 1, 8, 3)
    sizes, places = np.full(3, many, "<i4"), np.zeros(3, "<i8")
    part.with_suffix(".idx").write_bytes(head + sizes.tobytes() + places.tobytes())
    part.with_suffix(".bin").touch()
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{whole}.bin", dtype=np.uint16)
    builder.merge_file_(str(part))
    builder.finalize(f"{whole}.idx")
    written = whole.with_suffix(".idx").read_bytes()
    assert np.frombuffer(written[-24:], "<i8").tolist() == [0, 2 * many, 4 * many]
