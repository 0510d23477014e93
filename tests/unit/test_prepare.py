"""Text on its way to data-bin: what is mended, what is refused, and what is redone."""

import gzip
import io
import random
import sys
from functools import partial

import pytest

from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.data import bpe, stage, text, tokenise
from vaswani.data.parallel import chunks, transform
from vaswani.data.sentences import Sentences


def pair(folder, name, source, target):
    """Two parallel files of bytes lines; returns their prefix."""
    for lang, lines in (("en", source), ("de", target)):
        (folder / f"{name}.{lang}").write_bytes(b"".join(line + b"\n" for line in lines))
    return folder / name


def copied(tmp_path, prefix, drop_blank):
    """What the stage "text" makes of a pair: both sides' lines, and the number dropped."""
    sources = [text.find_text(prefix, lang) for lang in ("en", "de")]
    targets = [tmp_path / "out.en", tmp_path / "out.de"]
    for path in targets:
        path.unlink(missing_ok=True)
    make = partial(Sentences, tuple(map(str, sources)), ("en", "de"), drop_blank)
    report = transform(make, chunks(sources), targets, 1, lambda _: None)
    kept = [path.read_bytes().split(b"\n")[:-1] for path in targets]
    return kept, sum(report.dropped.values())


@pytest.mark.parametrize(
    "odd",
    ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\t", "\u00a0"],
)
def test_a_character_that_ends_a_line_for_some_programs_becomes_a_space(tmp_path, odd):
    prefix = pair(tmp_path, "t", [f"a{odd}b".encode(), b"c"], [b"d", b"e"])
    lines, dropped = copied(tmp_path, prefix, drop_blank=True)
    assert lines == [[b"a b", b"c"], [b"d", b"e"]] and dropped == 0
    assert len((tmp_path / "out.en").read_text(encoding="utf-8").splitlines()) == 2


def test_dos_line_ends_and_byte_order_marks_go(tmp_path):
    prefix = pair(tmp_path, "t", [b"\xef\xbb\xbfa b\r"], [b"c\r"])
    assert copied(tmp_path, prefix, drop_blank=True)[0] == [[b"a b"], [b"c"]]


def test_blank_sides_are_dropped_in_training_and_kept_otherwise(tmp_path):
    prefix = pair(tmp_path, "t", [b"a", b"", b"b", b"c"], [b"d", b"e", b" \xe2\x80\x8b", b"f"])
    assert copied(tmp_path, prefix, True) == ([[b"a", b"c"], [b"d", b"f"]], 2)
    kept, dropped = copied(tmp_path, prefix, False)
    assert kept == [[b"a", b"", b"b", b"c"], [b"d", b"e", b"", b"f"]] and dropped == 0


def test_unequal_counts_name_both_files(tmp_path):
    prefix = pair(tmp_path, "t", [b"a", b"b"], [b"c"])
    with pytest.raises(UserError, match=r"t\.en has 2 lines and .*t\.de has 1"):
        copied(tmp_path, prefix, True)


def test_broken_utf8_names_file_and_line(tmp_path):
    prefix = pair(tmp_path, "t", [b"a", b"caf\xe9"], [b"c", b"d"])
    with pytest.raises(UserError, match=r"t\.en, line 2: byte 4 is not UTF-8"):
        copied(tmp_path, prefix, True)


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no file .*t\.en"):
        text.find_text(tmp_path / "t", "en")
    (tmp_path / "t.en").write_bytes(b"")
    with pytest.raises(UserError, match=r"t\.en is empty"):
        text.find_text(tmp_path / "t", "en")


def test_packed_text_is_read_and_a_cut_one_refused(tmp_path):
    packed = gzip.compress(b"".join(b"%d words\n" % n for n in range(500)))
    path = tmp_path / "t.en.gz"
    path.write_bytes(packed)
    assert len(list(text.read_lines(text.find_text(tmp_path / "t", "en")))) == 500
    path.write_bytes(packed[:-200])
    with pytest.raises(UserError, match="cut short"):
        list(text.read_lines(path))


def test_codes_from_counted_words_are_those_of_the_running_text(tmp_path):
    """Against subword-nmt on the text itself; many words are equally frequent."""
    from subword_nmt.learn_bpe import learn_bpe

    dice = random.Random(3)
    words = ["".join(dice.choices("abcd", k=dice.randint(1, 6))) for _ in range(200)]
    sides = []
    for name in ("a", "b"):
        lines = [" ".join(dice.choices(words, k=8)) for _ in range(100)]
        text.write_lines(tmp_path / name, lines)
        sides.append("".join(line + "\n" for line in lines))
    expected = io.StringIO()
    learn_bpe(io.StringIO("".join(sides), newline="\n"), expected, 80)
    bpe.learn([tmp_path / "a", tmp_path / "b"], tmp_path / "codes", 80)
    assert (tmp_path / "codes").read_text(encoding="utf-8") == expected.getvalue()


def test_bpe_is_undone_exactly(tmp_path):
    text.write_lines(tmp_path / "t", ["low lower lowest newer wider new"] * 5)
    bpe.learn([tmp_path / "t"], tmp_path / "codes", 6)
    split = bpe.splitter(tmp_path / "codes")("slower newest widow")
    assert "@@ " in split and bpe.undo(split) == "slower newest widow"
    assert bpe.undo("cut sh@@") == "cut sh"


def test_one_bar_at_a_time(tmp_path, monkeypatch):
    """subword-nmt draws one of its own, for which the cursor went up and down."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    text.write_lines(tmp_path / "t", ["low lower lowest newer wider new"] * 5)
    bpe.learn([tmp_path / "t"], tmp_path / "codes", 6)
    shown = sys.stderr.getvalue()
    assert "count words" in shown and "6/6" in shown and "\x1b[A" not in shown


def test_moses_tokens_and_back():
    sentence = 'Am 3. März 1987 kostete das Buch "Faust" 3,50 €, sagte Anna.'
    tokens = tokenise.tokeniser("de")(sentence)
    assert tokens.split()[-2:] == ["Anna", "."] and "&quot;" in tokens
    assert tokenise.detokeniser("de")(tokens) == sentence
    assert tokenise.unescape("&quot;") == '"'


def test_a_stage_is_skipped_redone_and_never_half_there(tmp_path):
    output = tmp_path / "data" / "out"
    made = []

    def make(aside):
        made.append(1)
        aside.mkdir()
        (aside / "file").write_text("x" * len(made), encoding="utf-8")

    def fail(aside):
        make(aside)
        raise KeyboardInterrupt

    assert stage.run_stage(output, "a", make) and not stage.run_stage(output, "a", make)
    assert len(made) == 1
    assert stage.run_stage(output, "b", make) and (output / "file").read_text() == "xx"
    (output / "file").write_text("cut", encoding="utf-8")
    assert stage.run_stage(output, "b", make), "a file of another size is redone"
    assert (tmp_path / "data" / "out.kept-1" / "file").read_text() == "cut", "it may be somebody's"
    with pytest.raises(KeyboardInterrupt):
        stage.run_stage(output, "c", fail)
    assert (output / "file").read_text() == "xxx", "the old result is whole"
    left = {path.name for path in output.parent.iterdir()}
    assert left == {"out", "out.kept-1", ".stages"}
    assert {path.name for path in (output.parent / ".stages").iterdir()} <= {"out.json", "part"}
    assert stage.run_stage(output, "c", make) and not stage.run_stage(output, "c", make)


LANGS = ["--source-lang", "en", "--target-lang", "de"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--train", "nowhere"], "no file nowhere.en"),
        (["--text", "nowhere"], "no folder nowhere"),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, capsys, change, message):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "valid"):
        pair(tmp_path, name, [b"one two", b"three"], [b"eins zwei", b"drei"])
    arguments = [*LANGS, "--train", "train", "--valid", "valid", "--out", "data/x"]
    assert cli.main(["prepare", *arguments, *change]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "data" / "x").exists()


def test_own_text_from_files_to_data_bin(tmp_path, monkeypatch, capsys):
    """All stages once; then nothing; then, with another BPE, what depends on it alone."""
    from vaswani.data.data_bin import pairs_in, sentences

    monkeypatch.chdir(tmp_path)
    source, target = [b"The old house."] * 20 + [b""], [b"Das alte Haus."] * 21
    for name in ("train", "valid", "test"):
        pair(tmp_path, name, source, target)
    pair(tmp_path, "test", source, ["Старый дом".encode()] * 21)
    arguments = [*LANGS, "--train", "train", "--valid", "valid", "--test", "test"]
    command = ["prepare", *arguments, "--bpe", "10", "--out", "data/own"]
    assert cli.main(command) == 0
    message = capsys.readouterr().err
    assert "left out: 1 with an empty side" in message and message.count("made") == 5
    assert "unknown in test.de: 189" in message, "another alphabet, letter by letter"
    assert "189 of the 189 subwords of test.de are unknown" in message
    assert "unknown in valid" not in message
    folder = tmp_path / "data" / "own"
    assert pairs_in(folder / "data-bin") == [("en", "de")]
    assert sentences(folder / "data-bin" / "train.en-de.en") == 20
    assert sentences(folder / "data-bin" / "test.en-de.de") == 21
    assert (folder / "tok" / "train.en").read_text().startswith("The old house .\n")
    dictionaries = [(folder / "data-bin" / f"dict.{lang}.txt").read_text() for lang in ("en", "de")]
    assert dictionaries[0] == dictionaries[1], "joint (3.4)"
    assert cli.main(command) == 0
    assert "already prepared" in capsys.readouterr().err
    assert cli.main([*command, "--bpe", "5"]) == 0
    made = [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if "made" in line]
    assert [name.rpartition("/")[2] for name in made] == ["codes", "bpe", "data-bin"]
