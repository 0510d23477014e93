"""Damaged or unfit data: refused in one sentence and in seconds, by our commands and by fairseq's.

What is left out for its length is counted, and said on the terminal.
"""

import random
import shutil
import struct
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import numpy as np
import pytest
import yaml
from fairseq.data import indexed_dataset

from tests import stock
from tests.conftest import preprocess
from tests.shared import SIZES
from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.data.data_bin import read_index

ROOT = Path(__file__).resolve().parents[2]
HEADER = 26  # of an index: magic word, version, type, N


@pytest.fixture
def data(tiny_data_bin, tmp_path) -> Path:
    """A copy of the digits to be damaged."""
    return Path(shutil.copytree(tiny_data_bin, tmp_path / "data"))


@pytest.fixture
def small(data, tmp_path, monkeypatch) -> Path:
    """An experiment on that copy, without the switch that leaves out what is too long."""
    monkeypatch.chdir(tmp_path)
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["task"]["data"] = str(data)
    table["model"] = {"_name": "vaswani_transformer_tiny", **SIZES}
    table["dataset"] = {"max_tokens": 500, "num_workers": 0}
    table["optimization"]["max_update"] = 1
    table["checkpoint"] = {"no_epoch_checkpoints": True}
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    return path


def train(capsys, *argv: str) -> Tuple[int, List[str]]:
    """``vaswani train``: its exit code and what it said."""
    capsys.readouterr()
    with stock.fresh_process():
        code = cli.main(["train", *argv])
    return code, capsys.readouterr().err.strip().splitlines()


def refused(capsys, *argv: str) -> str:
    """The one line that a refused training says."""
    code, lines = train(capsys, *argv)
    assert code == 1 and len(lines) == 1, lines
    return lines[0]


# ---- damage -----------------------------------------------------------------------------------


def put(path: Path, place: int, kind: str, value: int) -> None:
    """Overwrite one number of a file."""
    content = bytearray(path.read_bytes())
    struct.pack_into(f"<{kind}", content, place, value)
    path.write_bytes(content)


def cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


INDEX_DAMAGE: Dict[str, Callable[[Path], None]] = {
    "a negative size": lambda p: put(p, HEADER + 8, "i", -7),
    "10^18 sentences": lambda p: put(p, HEADER - 8, "Q", 10**18),
    "a type of other width": lambda p: put(p, HEADER - 9, "B", 4),
    "a binary short by 4 bytes": lambda p: cut(p.with_suffix(".bin"), 4),
    "another binary": lambda p: p.with_suffix(".bin").write_bytes(
        p.with_suffix(".bin").read_bytes() * 2
    ),
}


@pytest.mark.parametrize("damage", INDEX_DAMAGE)
def test_a_damaged_index_is_named(damage, data):
    path = data / "train.en-de.de.idx"
    INDEX_DAMAGE[damage](path)
    with pytest.raises(UserError, match=str(path)):
        read_index(str(path.with_suffix("")))


def test_any_changed_byte_of_an_index_and_any_cut_is_noticed(data):
    path, numbers = data / "valid.en-de.de.idx", random.Random(1)
    content = path.read_bytes()
    kind = HEADER - 9  # of which another one may have the same width
    for place in set(range(len(content))) - {kind}:
        changed = bytearray(content)
        changed[place] ^= numbers.randrange(1, 256)
        for damaged in (changed, content[:place]):
            path.write_bytes(damaged)
            with pytest.raises(UserError):
                read_index(str(path.with_suffix("")))


@pytest.mark.parametrize("damage", ["a negative size", "10^18 sentences", "a type of other width"])
def test_a_damaged_index_is_refused_by_every_command(damage, data, small, capsys):
    """The first one made fairseq copy without an end, until the memory was full."""
    INDEX_DAMAGE[damage](data / "train.en-de.de.idx")
    assert "train.en-de.de.idx" in refused(capsys, str(small))
    assert not Path("runs").exists()
    assert cli.main(["plan", str(small), "--gpus", "1"]) == 1
    assert "train.en-de.de.idx" in capsys.readouterr().err


def drop_entries(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-6]), encoding="utf-8")


@pytest.mark.parametrize("kept", [6, 0])
def test_a_dictionary_that_is_too_short_is_refused(kept, data, small, capsys):
    """The digits' has 10 entries and two to fill it up."""
    for language in ("en", "de"):  # both: two that differ are refused for that
        path = data / f"dict.{language}.txt"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[:kept]), encoding="utf-8")
    assert "dict." in refused(capsys, str(small))


def test_text_of_unknown_words_is_refused(tiny_text, tmp_path, small, capsys):
    """fairseq trains on it: every word is <unk>, and the loss falls."""
    words = tmp_path / "dict.txt"
    words.write_text("one 1\ntwo 1\n", encoding="utf-8")
    other = preprocess(tiny_text, tmp_path / "unk", "--srcdict", str(words), "--joined-dictionary")
    assert "<unk>" in refused(capsys, str(small), f"task.data={other}")


# ---- sentences that are too long ----------------------------------------------------------------


@pytest.fixture
def with_long_ones(tiny_text, tmp_path) -> Path:
    """Two training pairs and one validation pair of 1,500 digits, where a model takes 1,024."""
    text = Path(shutil.copytree(tiny_text, tmp_path / "text"))
    for part, count in (("train", 2), ("valid", 1)):
        for language in ("en", "de"):
            with open(text / f"{part}.{language}", "a", encoding="utf-8") as stream:
                stream.write((" ".join("7" * 1500) + "\n") * count)
    return preprocess(text, tmp_path / "long", "--joined-dictionary")


def test_sentences_that_are_too_long_are_left_out_and_counted(with_long_ones, small, capsys):
    """An experiment without the switch; the 1,500 tokens would stop it at its first validation."""
    options = [f"task.data={with_long_ones}", "dataset.max_tokens=2000"]
    code, lines = train(capsys, str(small), *options)
    assert code == 0, lines
    assert "2 of 202 training sentences" in lines[0] and "task.max_source_positions" in lines[0]
    assert "1 of 21 validation sentences" in lines[1]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["dataset.max_tokens=3"], "200 of 200 training sentences"),
        (["dataset.max_tokens=5"], "dataset.max_tokens_valid=5"),
        (["task.max_source_positions=2"], "none are left"),
    ],
)
def test_a_limit_that_leaves_no_sentence_is_named(options, named, small, capsys):
    assert named in refused(capsys, str(small), *options)


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
