"""Damaged or unfit data: refused in one sentence and in seconds, by our commands and by fairseq's.

What is left out for its length is counted, and said on the terminal.
"""

import shutil
import struct
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest
import yaml

from tests import stock
from tests.conftest import preprocess
from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.data.binarised import read_index

ROOT = Path(__file__).resolve().parents[2]
HEADER = 26  # of an index: magic word, version, type, N
SIZES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in [
        *(("layers", 1), ("embed_dim", 16)),
        *(("ffn_embed_dim", 16), ("attention_heads", 2)),
    ]
}


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


def sizes_end(path: Path) -> int:
    """Where the sizes of an index end and the places begin."""
    return HEADER + 4 * struct.unpack_from("<Q", path.read_bytes(), HEADER - 8)[0]


def cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


INDEX_DAMAGE: Dict[str, Callable[[Path], None]] = {
    "a negative size": lambda p: put(p, HEADER + 8, "i", -7),
    "a huge size": lambda p: put(p, HEADER + 8, "i", 2**31 - 1),
    "a negative place": lambda p: put(p, sizes_end(p) + 16, "q", -8),
    "places that go back": lambda p: put(p, sizes_end(p) + 16, "q", 2),
    "a place out of the file": lambda p: put(p, sizes_end(p) + 16, "q", 2**60),
    "10^18 sentences": lambda p: put(p, HEADER - 8, "Q", 10**18),
    "2^64 - 1 sentences": lambda p: put(p, HEADER - 8, "Q", 2**64 - 1),
    "no sentence more": lambda p: put(p, HEADER - 8, "Q", 0),
    "a type of other width": lambda p: put(p, HEADER - 9, "B", 4),
    "a type of floats": lambda p: put(p, HEADER - 9, "B", 7),
    "no type": lambda p: put(p, HEADER - 9, "B", 99),
    "another version": lambda p: put(p, 9, "Q", 2),
    "another magic word": lambda p: put(p, 0, "B", 0),
    "an index cut short": lambda p: cut(p, 6),
    "an index of 20 bytes": lambda p: p.write_bytes(p.read_bytes()[:20]),
    "an empty index": lambda p: p.write_bytes(b""),
    "a binary short by 4 bytes": lambda p: cut(p.with_suffix(".bin"), 4),
    "an empty binary": lambda p: p.with_suffix(".bin").write_bytes(b""),
    "another binary": lambda p: p.with_suffix(".bin").write_bytes(
        p.with_suffix(".bin").read_bytes() * 2
    ),
}


@pytest.mark.parametrize("damage", INDEX_DAMAGE)
def test_a_damaged_index_is_named(damage, data):
    path = data / "train.en-de.de.idx"
    INDEX_DAMAGE[damage](path)
    with pytest.raises(UserError, match="missing or damaged: prepare again") as refused:
        read_index(str(path.with_suffix("")))
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("damage", ["a negative size", "10^18 sentences", "a type of other width"])
def test_a_damaged_index_is_refused_by_every_command(damage, data, small, capsys):
    """The first one made fairseq copy without an end, until the memory was full."""
    INDEX_DAMAGE[damage](data / "train.en-de.de.idx")
    assert "train.en-de.de.idx and .bin are missing or damaged" in refused(capsys, str(small))
    assert not Path("runs").exists()
    assert cli.main(["plan", str(small), "--gpus", "1"]) == 1
    assert "missing or damaged" in capsys.readouterr().err


def drop_entries(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-6]), encoding="utf-8")


DICTIONARY_DAMAGE = {
    "shorter than the data": (drop_entries, "token number"),
    "empty": (lambda path: path.write_bytes(b""), "ends at 3: it is not the one"),
}


@pytest.mark.parametrize("damage", DICTIONARY_DAMAGE)
def test_a_damaged_dictionary_is_refused(damage, data, small, capsys):
    """The digits' has 10 entries and two to fill it up."""
    break_it, message = DICTIONARY_DAMAGE[damage]
    for language in ("en", "de"):  # both: two that differ are refused for that
        break_it(data / f"dict.{language}.txt")
    sentence = refused(capsys, str(small))
    assert message in sentence and "dict." in sentence


def test_text_of_unknown_words_is_refused(tiny_text, tmp_path, small, capsys):
    """fairseq trains on it: every word is <unk>, and the loss falls."""
    words = tmp_path / "dict.txt"
    words.write_text("one 1\ntwo 1\n", encoding="utf-8")
    other = preprocess(tiny_text, tmp_path / "unk", "--srcdict", str(words), "--joined-dictionary")
    sentence = refused(capsys, str(small), f"task.data={other}")
    assert "no token that" in sentence and "<unk>" in sentence


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


def test_what_is_too_long_is_left_out_and_counted(with_long_ones, small, capsys):
    """An experiment without the switch; the 1,500 tokens would stop it at its first validation."""
    options = [f"task.data={with_long_ones}", "dataset.max_tokens=2000"]
    code, lines = train(capsys, str(small), *options)
    assert code == 0, lines
    assert "2 of 202 training sentences are longer than" in lines[0]
    assert "1 of 21 validation sentences are longer than" in lines[1]
    assert all("task.max_source_positions=1024" in line for line in lines[:2])
    log = Path("runs/small/train.log").read_text(encoding="utf-8")
    assert "'skip_invalid_size_inputs_valid_test': True" in log


def test_fairseq_train_names_them_before_the_first_update(with_long_ones, tmp_path):
    """Official fairseq alone comes to it after an epoch."""
    options = ["--max-tokens", "2000", "--max-update", "2", "--task", "vaswani_translation"]
    with (
        stock.logged() as lines,
        pytest.raises(Exception, match="sample #20 is invalid") as stopped,
    ):
        stock.train(with_long_ones, tmp_path / "run", *options)
    assert "--skip-invalid-size-inputs-valid-test" in str(stopped.value)
    assert not any("begin training epoch" in line for line in lines)
    skip = "--skip-invalid-size-inputs-valid-test"
    stock.train(with_long_ones, tmp_path / "run", *options, skip, "--no-save")


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "configs").glob("*_en_*.yaml")))
def test_every_shipped_experiment_leaves_them_out(name):
    table = yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert table["dataset"]["skip_invalid_size_inputs_valid_test"] is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["dataset.max_tokens=0"], "how large a batch is"),
        (["dataset.max_tokens=3"], "200 of 200 training sentences"),
        (["dataset.max_tokens=5"], "too long for a batch of dataset.max_tokens_valid=5"),
        (["dataset.max_tokens=50", "dataset.max_tokens_valid=8"], "has a sentence of 9 tokens"),
        (["task.max_source_positions=2"], "none are left"),
        (["dataset.max_tokens=null"], "how large a batch is"),
    ],
)
def test_batches_that_cannot_be(options, message, small, capsys):
    assert message in refused(capsys, str(small), *options)


def test_parts_of_more_than_2_gb_are_joined(tmp_path):
    """The index alone: three sentences of a thousand million tokens, of two bytes each."""
    import struct

    import numpy as np
    from fairseq.data import indexed_dataset

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
