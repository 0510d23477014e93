"""What ``vaswani generate`` leaves: of one decoding, known again, replaced whole or not at all."""

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
import torch

from tests import stock
from tests.own_text import changed
from transformer_plugin.checkpoints import load_checkpoint
from vaswani import cli
from vaswani.decoding import generation
from vaswani.folders.prepared_text import PreparedText

QUICK = ["--beam", "2", "--max-len-a", "0", "--max-len-b", "4"]
LEFT = ["test.hyp", "test.hyp.tok", "test.json", "test.log"]


class Place:
    """A folder with a checkpoint and its data, and what is decoded there."""

    def __init__(self, folder: Path, checkpoint: Path, data: Path) -> None:
        self.checkpoint = folder / "checkpoints" / "checkpoint_last.pt"
        self.data = folder / "data-bin"
        self.out = folder / "eval"
        self.checkpoint.parent.mkdir()
        shutil.copy(checkpoint, self.checkpoint)
        shutil.copytree(data, self.data)

    def generate(self, *more: str, out: bool = False) -> int:
        options = changed(["--data", str(self.data), *QUICK], more)
        command = ["generate", str(self.checkpoint), *options]
        with stock.fresh_process():
            return cli.main([*command, *(["--out", str(self.out)] if out else [])])

    def left(self) -> dict:
        """Return name and content of the files, except hidden ones."""
        found = [path for path in sorted(self.out.iterdir()) if not path.name.startswith(".")]
        return {path.name: path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def first(trained, tiny_data_bin, tmp_path_factory) -> Place:
    """Decode once, and return the place."""
    done = Place(tmp_path_factory.mktemp("first"), trained, tiny_data_bin)
    assert done.generate() == 0
    return done


@pytest.fixture
def place(trained, tiny_data_bin, tmp_path) -> Place:
    """Return a place in which nothing is decoded yet."""
    return Place(tmp_path, trained, tiny_data_bin)


@pytest.fixture
def done(place, first) -> Place:
    """Copy a decoded place: the results do not depend on the names of the folders."""
    shutil.copytree(first.out, place.out)
    return place


def spoil(place: Place, monkeypatch) -> None:
    """Make decoding an error from now on."""
    monkeypatch.setattr(generation, "decode", lambda *_: pytest.fail("it was decoded again"))


def test_the_same_translation_is_left_alone(done, monkeypatch, capsys):
    before = done.left()
    assert sorted(before) == LEFT
    spoil(done, monkeypatch)
    assert done.generate() == 0
    assert "already translated" in capsys.readouterr().err and done.left() == before


def reorder(place):
    """Decode with a checkpoint that records no words, then change the dictionary's order."""
    state = load_checkpoint(place.checkpoint)
    state["task_state"] = {}
    torch.save(state, place.checkpoint)
    assert place.generate() == 0
    for language in ("en", "de"):
        path = place.data / f"dict.{language}.txt"
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))


def train_on(place):
    state = load_checkpoint(place.checkpoint)
    state["model"]["decoder.layers.0.feed_forward.fc1.bias"] += 1
    torch.save(state, place.checkpoint)


def turn_round(place):
    """Reverse the text, and keep the lengths, which are all that the index holds."""
    path = place.data / "test.en-de.en.bin"
    path.write_bytes(path.read_bytes()[::-1])


@pytest.mark.parametrize(
    "change",
    [reorder, train_on, turn_round, "rules", None],
    ids=["words", "weights", "text", "rules", "option"],
)
def test_other_words_weights_text_rules_or_options_are_decoded_anew(change, done, monkeypatch):
    def decode(*_):
        raise KeyError("decoded")

    if change == "rules":
        monkeypatch.setattr(PreparedText, "text_rules", lambda _: 1)
    elif change:
        change(done)
    monkeypatch.setattr(generation, "decode", decode)
    with pytest.raises(KeyError, match="decoded"):
        done.generate(*([] if change else ["--max-len-b", "5"]))


@pytest.mark.parametrize("harm", ["edited", "gone"])
def test_results_that_were_changed_are_neither_passed_off_nor_destroyed(harm, done):
    good = done.left()
    path, kept = done.out / "test.hyp", done.out / "test.hyp.kept-1"
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(b"mine\n")
    assert done.generate() == 0
    assert done.left()["test.hyp"] == good["test.hyp"]
    assert kept.exists() == (harm == "edited") and (
        harm == "gone" or kept.read_bytes() == b"mine\n"
    )


def test_a_file_that_generate_did_not_make_is_not_replaced(place, monkeypatch, capsys):
    place.out.mkdir()
    (place.out / "test.hyp").write_text("mine\n")
    spoil(place, monkeypatch)
    assert place.generate(out=True) == 1
    assert str(place.out / "test.hyp") in capsys.readouterr().err
    assert place.left() == {"test.hyp": b"mine\n"}


@pytest.mark.parametrize("where", ["data-bin", "data-bin/new", "link"])
def test_the_data_folder_is_no_output(where, place, monkeypatch, tmp_path):
    (tmp_path / "link").symlink_to("data-bin")
    place.out = tmp_path / where
    before = sorted(path.name for path in place.data.iterdir())
    spoil(place, monkeypatch)
    assert place.generate(out=True) == 1
    assert sorted(path.name for path in place.data.iterdir()) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_decoding_that_is_stopped_leaves_the_earlier_results(error, done, monkeypatch):
    before = done.left()

    def stopped(*_):
        raise error

    monkeypatch.setattr(generation, "align_to_source", stopped)
    code = done.generate("--lenpen", "1.5")
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert done.left() == before


def test_two_at_once_do_not_write_the_same_files(place, monkeypatch):
    """The second is refused while the first one decodes, which ends as if alone."""
    codes = []
    decode = generation.decode

    def second():
        monkeypatch.undo()
        os._exit(place.generate())

    def decoding(*arguments):
        process = multiprocessing.get_context("fork").Process(target=second)
        process.start()
        process.join()
        codes.append(process.exitcode)
        return decode(*arguments)

    monkeypatch.setattr(generation, "decode", decoding)
    assert place.generate() == 0
    assert codes == [1] and sorted(place.left()) == LEFT


def test_several_translations_of_a_sentence(place):
    """The best is the result; the log has all of them."""
    assert place.generate("--nbest", "2") == 0
    log = place.left()["test.log"].decode()
    scores = stock.results(log.splitlines(), "H")
    assert all(len(columns) == 4 for columns in scores.values()) and len(scores) == 20
    best = [scores[number][1] for number in sorted(scores)]
    assert place.left()["test.hyp.tok"].decode().splitlines() == best


def without_scores(line: str) -> list:
    """Return a line of the log without scores: its name, and its text if it has any."""
    name, *columns = line.split("\t")
    return [name, *columns[{"S": 0, "H": 1, "D": 1, "P": 1}[name[0]] :]]


def scores_of(line: str) -> list:
    """Return the numbers in a line of the log: a hypothesis's score, or one for each subword."""
    name, first, *_ = line.split("\t")
    return [] if name[0] == "S" else [float(score) for score in first.split()]


@pytest.mark.parametrize(
    "options",
    [["--nbest", "2"], ["--lenpen", "0.6", "--unkpen", "2"]],
    ids=["ours", "penalties"],
)
def test_the_log_is_what_fairseq_generate_prints(options, place):
    """But for the references (T-) and their BLEU.

    Lines P- have four decimals. On AVX-512 the scores of the two commands may differ in the last
    bit; with MKL_CBWR=AVX2 they are equal.
    """
    assert place.generate("--max-tokens", "500", "--workers", "2", *options) == 0
    flags = ["--task", "vaswani_translation", "--max-tokens", "500", "--post-process", "@@ "]
    flags += [*QUICK, *options, "--skip-invalid-size-inputs-valid-test"]
    flags += ["--required-batch-size-multiple", "8"]  # fairseq's default; the helper's is 1
    expected = stock.generate(place.data, str(place.checkpoint), *flags)
    found = place.left()["test.log"].decode().splitlines()
    wanted = [line for line in expected if line[:2] not in ("T-", "Ge")]
    assert list(map(without_scores, found)) == list(map(without_scores, wanted))
    for scores, others in zip(map(scores_of, found), map(scores_of, wanted), strict=True):
        assert scores == pytest.approx(others, rel=1e-6, abs=1.1e-4)
    assert {line[:2] for line in found} == {"S-", "H-", "D-", "P-"}


def test_a_beam_above_the_vocabulary_is_reduced(place):
    """As in fairseq; a parser with few labels stopped after its training."""
    assert place.generate("--beam", "400") == 0
    wide = place.left()["test.hyp"]
    assert place.generate("--beam", "15") == 0
    assert place.left()["test.hyp"] == wide


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--max-len-b", "0"], "--min-len"),
        (["--beam", "0"], "--beam"),
        (["--nbest", "3"], "--nbest"),
        (["--max-tokens", "8"], "--max-tokens"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_decoding(options, named, place, capsys):
    assert place.generate(*options) == 1
    assert named in capsys.readouterr().err
    assert not place.out.exists() or place.left() == {}
