"""Text that would silently become something else in ``vaswani prepare``: refused, or said."""

import gzip
import lzma
import os
import struct
import zlib

import pytest

from tests import archives
from vaswani import cli
from vaswani.common import processes
from vaswani.common.errors import UserError
from vaswani.data import binarise, bpe, steps, text

LANGS = ["--source-lang", "en", "--target-lang", "de"]
OWN = [*LANGS, "--train", "train", "--valid", "valid", "--bpe", "30", "--workers", "1"]


def prepare(*arguments, code=0):
    assert cli.main(["prepare", *map(str, arguments)]) == code


def refused(capsys, *message, arguments=(), at_once=True):
    """The command refuses in one sentence; ``at_once``: before it has made anything."""
    prepare(*OWN, "--out", "out", *arguments, code=1)
    error = capsys.readouterr().err
    assert all(words in error for words in message), error
    assert "Traceback" not in error and (not at_once or error.count("\n") == 1), error


def put(path, data):
    path.write_bytes(data)


PLAIN = "".join(line + "\n" for line in archives.sentences("en", 40, 40)).encode()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("train.en.gz", gzip.compress(PLAIN)[:-9], "train.en.gz is damaged or cut short"),
        ("train.en.gz", gzip.compress(PLAIN)[:300], "train.en.gz is damaged or cut short"),
        ("train.en.gz", PLAIN, "train.en.gz is damaged or cut short (Not a gzipped file"),
        ("train.en.xz", lzma.compress(PLAIN)[:-30], "train.en.xz is damaged or cut short"),
        ("train.en.xz", PLAIN, "train.en.xz is damaged or cut short"),
        ("train.en.gz", zlib.compress(PLAIN), "train.en.gz is damaged or cut short"),
    ],
)
def test_files_that_are_not_what_they_seem(own, light, capsys, name, data, message):
    (own / "train.en").unlink()
    put(own / name, data)
    refused(capsys, message)


def test_dos_files_and_a_carriage_return_now_and_then_are_read(own, light, capsys):
    lines = PLAIN.split(b"\n")
    lines[3:9] = [b"a\rb"] * 6
    put(own / "train.en", b"\n".join(lines))
    put(own / "valid.en", (own / "valid.en").read_bytes().replace(b"\n", b"\r\n"))
    prepare(*OWN, "--out", "out")
    assert "train: 40 pairs\n" in capsys.readouterr().err
    assert (own / "out/text/train.en").read_text("utf-8").splitlines()[3] == "a b"


@pytest.mark.parametrize("read", [text.count_lines, bpe.count_words])
@pytest.mark.parametrize(("name", "pack"), [("t.gz", gzip.compress), ("t.xz", lzma.compress)])
def test_every_way_of_reading_names_the_damaged_file(tmp_path, read, name, pack):
    """Damage within what was packed, not only at its end."""
    packed = bytearray(pack(os.urandom(50_000)))
    packed[25_000] ^= 0xFF
    put(tmp_path / name, packed)
    if read is bpe.count_words:
        read = lambda path: bpe.vocabulary([path], 1, lambda _: None)  # noqa: E731
    with pytest.raises(UserError, match=rf"{name} is damaged or cut short"):
        read(tmp_path / name)


@pytest.mark.parametrize("word", ["the@@", "@@"])
@pytest.mark.parametrize("name", ["train.en", "valid.de"])
def test_words_that_are_split_already_are_refused(own, light, capsys, word, name):
    lines = (own / name).read_text("utf-8").splitlines()
    lines[6] = f"on {word} 311th day"
    put(own / name, ("\n".join(lines) + "\n").encode())
    message = f"out/text/{name}, line 7: '{word}' ends in '@@', BPE's mark"
    refused(capsys, message, "join the subwords first", arguments=["--tokenised"], at_once=False)
    prepare(*OWN, "--out", "out")
    assert word not in (own / "out" / "tok" / name).read_text("utf-8").split(), "Moses parts it"


@pytest.mark.parametrize("word", ["</s>", "<s>", "<pad>", "<unk>"])
def test_fairseqs_own_symbols_are_spelt_out_and_counted(own, light, capsys, word):
    """As a word of its own, and as the end of one; so often that BPE would leave it whole."""
    for name, count in (("train", 40), ("valid", 10)):
        for lang in ("en", "de"):
            put(own / f"{name}.{lang}", f"a {word} b x{word} {word}\n".encode() * count)
    prepare(*OWN, "--out", "out", "--tokenised")
    message = capsys.readouterr().err
    for name, count in (("train", 40), ("valid", 10)):
        subwords = (own / "out" / "bpe" / f"{name}.en").read_text("utf-8")
        assert word not in subwords.split()
        assert all(bpe.undo(line) == f"a {word} b x{word} {word}" for line in subwords.splitlines())
        assert f"{count} pairs; spelt out: {4 * count} words such as </s>" in message


def test_moses_takes_fairseqs_symbols_and_the_mark_apart(own, light, capsys):
    """So that text that is not tokens yet needs no such care."""
    for lang in ("en", "de"):
        put(own / f"train.{lang}", b"a </s> b <pad> <s>c</s> <unk> the@@ 311th @@ day\n" * 40)
    prepare(*OWN, "--out", "out")
    assert "spelt" not in capsys.readouterr().err
    words = (own / "out/tok/train.en").read_text("utf-8").split()
    assert not {word for word in words if "<" in word or "@@" in word}


def binarised(folder, name, numbers, kind):
    """A file as fairseq leaves it."""
    packed = struct.pack(f"<{len(numbers)}{'H' if kind == 8 else 'i'}", *numbers)
    put(folder / f"{name}.bin", packed)
    put(folder / f"{name}.idx", struct.pack("<9sQBQ", b"MMIDIDX\0\0", 1, kind, 1))


@pytest.mark.parametrize("kind", [4, 8])
def test_unknown_pieces_are_counted(tmp_path, kind):
    for lang, numbers in (("en", [4, 5, 2, 3, 3, 3, 2]), ("de", [3, 3, 2])):
        binarised(tmp_path, f"valid.en-de.{lang}", numbers, kind)
    counts = binarise.count_unknown(tmp_path, ("en", "de"), ["valid"])
    assert counts == {"valid.en": (3, 5), "valid.de": (2, 2)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--source-lang", "zh-CN"], "source_lang is 'zh-CN', but fairseq's file names allow"),
        (["--source-lang", "zh-CN"], "name your files .zh_CN and give that"),
        (["--target-lang", "../de"], "target_lang is '../de'"),
        (["--target-lang", "d e"], "target_lang is 'd e'"),
        (["--target-lang", "de.gz"], "target_lang is 'de.gz'"),
        (["--target-lang", ""], "target_lang is ''"),
        (["--show-dropped", "-1"], "--show-dropped is -1"),
        (["--manifest", "mine.yaml"], "--manifest and --test-sets are for archives"),
        (["--test-sets", "sacrebleu"], "--manifest and --test-sets are for archives"),
    ],
)
def test_odd_languages_and_numbers(own, capsys, change, message):
    refused(capsys, message, arguments=change)
    assert not (own / "out").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--text", "."], "--text names a folder of text files"),
        (["--train", "train"], "there is no part 'train'"),
    ],
)
def test_text_that_would_be_ignored_is_refused(own, capsys, option, message):
    """By a recipe that takes it out of archives."""
    prepare("wmt14_en_de", *option, "--out", "out", code=1)
    assert message in capsys.readouterr().err and not (own / "out").exists()


def test_a_language_that_moses_does_not_know_is_said(own, light, capsys):
    for name in ("train", "valid"):
        (own / f"{name}.de").rename(own / f"{name}.zh_CN")
    prepare(*OWN, "--out", "out", "--target-lang", "zh_CN")
    message = capsys.readouterr().err
    assert message.count("Moses has no rules for 'zh_CN'") == 1 and "for 'en'" not in message
    assert (own / "out" / "bpe" / "train.zh_CN").is_file()


@pytest.mark.parametrize("workers", ["300", "9" * 30])
def test_more_workers_than_cores_have_a_use_for(own, monkeypatch, capsys, workers):
    """As many are started as there is a use for, which is said, fairseq's too."""
    monkeypatch.setattr(processes, "cores", lambda: 3)
    requested = []

    def folder(job, options, out):
        requested.append(job.workers)
        out.mkdir()
        (out / "made").write_text("\n")

    monkeypatch.setattr(steps, "make_data_bin", folder)
    prepare(*OWN, "--out", "out", "--workers", workers)
    assert requested == [6] and "than 3 cores can use: continuing with 6" in capsys.readouterr().err
    assert processes.limit_workers(6) == 6 and capsys.readouterr().err == ""
