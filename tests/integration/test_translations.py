"""What ``vaswani generate`` leaves: of one decoding, known again, replaced whole or not at all."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from tests import stock
from tests.conftest import preprocess
from transformer_plugin.checkpoints import load_checkpoint
from vaswani import cli
from vaswani.commands import generate
from vaswani.decoding.trained import trained_with

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
        command = ["generate", str(self.checkpoint), "--data", str(self.data), *QUICK, *more]
        with stock.fresh_process():
            return cli.main([*command, *(["--out", str(self.out)] if out else [])])

    def left(self) -> dict:
        """Name and content of the files, but for hidden ones."""
        found = [path for path in sorted(self.out.iterdir()) if not path.name.startswith(".")]
        return {path.name: path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def first(trained, tiny_data_bin, tmp_path_factory) -> Place:
    """Where it was decoded once."""
    done = Place(tmp_path_factory.mktemp("first"), trained, tiny_data_bin)
    assert done.generate() == 0
    return done


@pytest.fixture
def place(trained, tiny_data_bin, tmp_path) -> Place:
    """Where nothing was decoded yet."""
    return Place(tmp_path, trained, tiny_data_bin)


@pytest.fixture
def done(place, first) -> Place:
    """A copy of where it was: the names of the folders are not what the results depend on."""
    shutil.copytree(first.out, place.out)
    return place


def spoil(place: Place, monkeypatch) -> None:
    """From now on, decoding is an error."""
    monkeypatch.setattr(generate, "decode", lambda *_: pytest.fail("it was decoded again"))


def test_the_same_translation_is_left_alone(done, monkeypatch, capsys):
    before = done.left()
    assert sorted(before) == LEFT
    spoil(done, monkeypatch)
    assert done.generate() == 0
    assert "already translated" in capsys.readouterr().err and done.left() == before


def test_another_text_of_the_same_lengths_is_translated(done, tiny_text, tmp_path, capsys):
    """The index holds the lengths alone, and those are the same for digits turned round."""
    before = done.left()
    text = tmp_path / "text"
    shutil.copytree(tiny_text, text)
    for language in ("en", "de"):
        lines = (text / f"test.{language}").read_text().splitlines()
        turned = "".join(" ".join(line.split()[::-1]) + "\n" for line in lines)
        (text / f"test.{language}").write_text(turned)
    words = str(done.data / "dict.en.txt")
    new = preprocess(text, tmp_path / "new", "--srcdict", words, "--joined-dictionary")
    assert (new / "test.en-de.en.idx").read_bytes() == (
        done.data / "test.en-de.en.idx"
    ).read_bytes()
    done.data = new
    capsys.readouterr()
    assert done.generate() == 0
    assert "already" not in capsys.readouterr().err
    assert done.left()["test.hyp"] != before["test.hyp"]


def reorder(place):
    """Another dictionary of the same size; a checkpoint of before its words were recorded."""
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


@pytest.mark.parametrize("change", [reorder, train_on, None], ids=["words", "weights", "option"])
def test_what_translations_depend_on_is_in_their_key(change, done, monkeypatch):
    class Decoded(Exception):
        pass

    def decode(*_):
        raise Decoded

    if change:
        change(done)
    monkeypatch.setattr(generate, "decode", decode)
    with pytest.raises(Decoded):
        done.generate(*([] if change else ["--max-len-b", "5"]))


@pytest.mark.parametrize("harm", ["edited", "cut", "gone"])
def test_results_that_were_changed_are_not_passed_off_nor_destroyed(harm, done, capsys):
    good = done.left()
    path = done.out / "test.hyp"
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(good["test.hyp"][:7] + (b"mine\n" if harm == "edited" else b""))
    changed = path.read_bytes() if harm != "gone" else None
    capsys.readouterr()
    assert done.generate() == 0
    err = capsys.readouterr().err
    assert "already translated" not in err
    assert done.left()["test.hyp"] == good["test.hyp"]
    kept = done.out / "test.hyp.kept-1"
    assert kept.exists() == (harm != "gone") == (f"kept as {kept}" in err)
    assert changed is None or kept.read_bytes() == changed


@pytest.mark.parametrize("name", LEFT)
def test_what_generate_did_not_make_it_does_not_replace(name, place, monkeypatch, capsys):
    place.out.mkdir()
    (place.out / name).write_text("mine\n")
    spoil(place, monkeypatch)
    assert place.generate(out=True) == 1
    err = capsys.readouterr().err
    assert f"{place.out / name} exists and was not made by 'vaswani generate'" in err
    assert place.left() == {name: b"mine\n"}


@pytest.mark.parametrize("where", ["data-bin", "data-bin/new", "link", "prepared"])
def test_the_data_folder_is_no_output(where, place, monkeypatch, tmp_path, capsys):
    (tmp_path / "link").symlink_to("data-bin")
    place.out = tmp_path / where
    if where == "prepared":
        shutil.copytree(place.data, tmp_path / "prepared" / "data-bin")
        (tmp_path / "prepared" / "recipe.yaml").write_text("bpe: 1\n")
        place.data, place.out = tmp_path / "prepared" / "data-bin", tmp_path / "prepared" / "text"
    before = sorted(path.name for path in place.data.iterdir())
    spoil(place, monkeypatch)
    assert place.generate(out=True) == 1
    assert "is where the data is" in capsys.readouterr().err
    assert sorted(path.name for path in place.data.iterdir()) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_what_stops_a_decoding_leaves_the_earlier_results(error, done, monkeypatch, capsys):
    before = done.left()

    def stopped(*_):
        raise error

    monkeypatch.setattr(generate, "in_order", stopped)
    code = done.generate("--lenpen", "1.5")
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert "Traceback" not in capsys.readouterr().err and done.left() == before


def test_what_a_kill_while_decoding_left_is_no_result(done):
    before = done.left()
    part = done.out / ".test.part"
    part.mkdir()
    (part / "test.hyp").write_text("half\n")
    (done.out / "test.hyp.tok").unlink()  # to be decoded again
    assert done.generate() == 0
    after = done.left()
    assert after["test.hyp"] == before["test.hyp"] and sorted(after) == LEFT
    assert not part.exists()


def test_a_folder_that_cannot_be_written_is_named_before_decoding(place, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    spoil(place, monkeypatch)
    assert place.generate() == 1
    assert f"{place.out.parent} cannot be written to" in capsys.readouterr().err
    assert not place.out.exists()


def test_several_translations_of_a_sentence(place):
    """The best is the result; the log has all of them."""
    assert place.generate("--nbest", "2") == 0
    log = place.left()["test.log"].decode()
    scores = stock.results(log.splitlines(), "H")
    assert all(len(columns) == 4 for columns in scores.values()) and len(scores) == 20
    best = [scores[number][1] for number in sorted(scores)]
    assert place.left()["test.hyp.tok"].decode().splitlines() == best


@pytest.mark.parametrize(
    "options",
    [["--nbest", "2"], ["--lenpen", "0.6", "--unkpen", "2"]],
    ids=["ours", "penalties"],
)
def test_the_log_is_what_fairseq_generate_prints(options, place):
    """To the last digit of each score; but for the references (T-) and their BLEU."""
    assert place.generate("--max-tokens", "500", "--workers", "2", *options) == 0
    flags = ["--task", "vaswani_translation", "--max-tokens", "500", "--post-process", "@@ "]
    flags += [*QUICK, *options, "--skip-invalid-size-inputs-valid-test"]
    expected = stock.generate(place.data, str(place.checkpoint), *flags)
    found = place.left()["test.log"].decode().splitlines()
    assert found == [line for line in expected if line[:2] not in ("T-", "Ge")]
    assert {line[:2] for line in found} == {"S-", "H-", "D-", "P-"}


def test_a_beam_above_the_vocabulary_is_reduced(place, caplog):
    """As in fairseq; ``reproduce table4 --small`` with few labels stopped after its training."""
    assert place.generate("--beam", "400") == 0
    assert "--beam 400 is reduced to 15" in caplog.text
    wide = place.left()["test.hyp"]
    assert place.generate("--beam", "15") == 0
    assert place.left()["test.hyp"] == wide


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lenpen", "nan"], "--lenpen must be a finite number, not nan"),
        (["--lenpen", "inf"], "--lenpen must be a finite"),
        (["--max-len-b", "0"], "allows fewer words than --min-len 1"),
        (["--min-len", "9"], "allows fewer words than --min-len 9"),
        (["--beam", "0"], "--beam must be above 0, not 0"),
        (["--nbest", "0"], "--nbest must be above 0"),
        (["--nbest", "3"], "--nbest 3 asks for more translations than --beam 2 finds"),
        (["--max-tokens", "8"], "has 9 tokens, more than --max-tokens 8 allows"),
    ],
)
def test_an_impossible_option_is_one_sentence(options, message, place, capsys):
    """Before anything is decoded or written."""
    assert place.generate(*options) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not place.out.exists() or place.left() == {}


def test_options_of_the_run_that_are_not_used_are_named(place, capsys):
    task = "task: {_name: translation, source_lang: en, target_lang: de}"
    given = "generation: {temperature: 0.5, sampling: false, beam: 3}"
    (place.out.parent / "config.yaml").write_text(f"{task}\n{given}\n")
    assert place.generate() == 0
    assert "sets temperature, which only fairseq-generate uses" in capsys.readouterr().err


def test_a_reference_too_few(place, capsys):
    for end in ("idx", "bin"):
        shutil.copy(place.data / f"train.en-de.de.{end}", place.data / f"test.en-de.de.{end}")
    assert place.generate() == 1
    err = capsys.readouterr().err
    assert "has 20 en and 200 de sentences" in err and err.count("\n") == 1


def test_the_runs_own_options_are_checked(place, capsys):
    config = place.out.parent / "config.yaml"
    config.write_text("task: {_name: translation}\ngeneration: {lenpen: .nan}\n")
    assert place.generate() == 1
    err = capsys.readouterr().err
    assert "--lenpen must be a finite number" in err and err.count("\n") == 1


def bad_checkpoint(place, kind):
    state = load_checkpoint(place.checkpoint)
    if kind == "nan":
        state["model"]["encoder.layers.1.feed_forward.fc2.weight"][0, 0] = torch.nan
    elif kind == "folder":
        place.checkpoint.unlink()
        place.checkpoint.mkdir()
        return
    elif kind == "fifo":
        place.checkpoint.unlink()
        os.mkfifo(place.checkpoint)
        return
    torch.save(state, place.checkpoint)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nan", "has NaN or infinity in encoder.layers.1.feed_forward.fc2.weight"),
        ("folder", "there is no checkpoint"),
        ("fifo", "there is no checkpoint"),
    ],
)
def test_a_checkpoint_that_cannot_be_decoded_is_one_sentence(kind, message, place, capsys):
    bad_checkpoint(place, kind)
    assert place.generate() == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and "checkpoint_last.pt" in err


def test_a_checkpoint_that_disappears(place, monkeypatch, capsys):
    decode = generate.decode

    def gone(*arguments):
        place.checkpoint.unlink()
        return decode(*arguments)

    monkeypatch.setattr(generate, "decode", gone)
    assert place.generate() == 1
    err = capsys.readouterr().err
    assert "checkpoint_last.pt" in err and err.count("\n") == 1 and place.left() == {}


def test_a_subset_of_which_no_sentence_fits(place, monkeypatch, capsys):
    def short(*given) -> dict:
        trained = trained_with(*given)
        return {**trained, "task": {**trained["task"], "max_source_positions": 1}}

    monkeypatch.setattr(generate, "trained_with", short)
    assert place.generate() == 0
    assert "20 sentences longer than the model's limit" in capsys.readouterr().err
    assert place.left()["test.hyp"] == b"\n" * 20 and place.left()["test.log"] == b""


def test_an_empty_subset(place, tiny_text, tmp_path, capsys):
    for part in ("train", "valid", "test"):
        for language in ("en", "de"):
            shutil.copy(tiny_text / f"{part}.{language}", tmp_path)
    for language in ("en", "de"):
        (tmp_path / f"test.{language}").write_text("")
    words = str(place.data / "dict.en.txt")
    place.data = preprocess(tmp_path, tmp_path / "new", "--srcdict", words, "--joined-dictionary")
    assert place.generate() == 1
    err = capsys.readouterr().err
    assert "holds no sentence: there is nothing to translate" in err and err.count("\n") == 1
