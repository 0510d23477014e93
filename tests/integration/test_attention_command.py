"""``vaswani attention``: what it makes, what it leaves alone, what it says of bad input."""

import errno
import functools
import html
import json
import shutil

import pytest

from tests import packed, stock
from vaswani import Translator
from vaswani.attention_page import page as attention_page
from vaswani.attention_page.maps import attend
from vaswani.commands.attention import default_folder, translator_of

SOURCE = "the big dog sees a ca@@ t ."
WORDS = [*packed.WORDS, "ca@@", "t"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed") / "runs" / "mine" / "model"
    packed.pack(
        folder,
        words=WORDS,
        encoder_layers=1,
        max_source_positions=20,
        max_target_positions=20,
    )
    return folder


run = functools.partial(stock.vaswani, "attention")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_page_and_pictures_with_the_models_own_translation(model, tmp_path, capsys):
    assert run(model, SOURCE) == 0
    folder = tmp_path / "mine_attention"
    layers = {"encoder": [1], "decoder": [1, 2], "cross": [1, 2]}
    pictures = [f"{kind}_layer_{n}.png" for kind, numbers in layers.items() for n in numbers]
    assert names(folder) == sorted(["attention.html", "attention.json", *pictures])
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    (message,) = Translator.from_pretrained(model).translate([SOURCE])
    record = json.loads((folder / "attention.json").read_text())
    assert (record["target"], record["translated_by_the_model"]) == (message.text, True)
    assert html.escape(message.text) in (folder / "attention.html").read_text()
    error = capsys.readouterr().err
    assert "mine_attention/attention.html" in error and "5 pictures" in error
    assert "does not know" not in error  # of the given words; <unk> in its own is no news


def test_it_looks_where_the_search_did(model):
    """The alignment that translate prints is of the same weights: the last layer's mean."""
    translator = Translator.from_pretrained(model)
    found = attend(translator, SOURCE, None, 10**6)
    (message,) = translator.translate([SOURCE], print_alignment=True)
    mean = found.weights["cross"][-1].mean(0)[:, :-1]  # without the end of the source
    source, target = (found.sides[name].words[:-1] for name in ("source", "target"))
    word_of = {p: n for n, unit in enumerate(source) for p in range(unit.first, unit.last + 1)}
    pairs = {
        (word_of[int(mean[subword].argmax())], number)
        for number, unit in enumerate(target)
        for subword in range(unit.first, unit.last + 1)
    }
    assert pairs == set(message.hypotheses[0].alignment) and pairs


def test_a_given_target_is_read_as_it_is(model, tmp_path, capsys):
    assert run(model, SOURCE, "the small ca@@ t xyz .", "--out", "mine", "--no-pictures") == 0
    assert names(tmp_path / "mine") == ["attention.html", "attention.json"]
    record = json.loads((tmp_path / "mine" / "attention.json").read_text())
    assert record["target"] == "the small ca@@ t xyz ." and record["unknown"] == ["xyz"]
    assert not record["translated_by_the_model"]
    assert "reads all or part of 'xyz' as <unk>" in capsys.readouterr().err
    found = attend(Translator.from_pretrained(model), SOURCE, "the small ca@@ t xyz .", 10**6)
    assert [unit.text for unit in found.sides["target"].words] == [
        *["the", "small", "cat", "xyz", ".", "(end)"]
    ]


def test_another_sentence_replaces_what_was_made_and_nothing_else(model, tmp_path, capsys):
    assert run(model, SOURCE, "--no-pictures") == run(model, "a dog .", "--no-pictures") == 0
    folder = tmp_path / "mine_attention"
    assert "a dog ." in (folder / "attention.html").read_text()
    (folder / "notes.txt").write_text("mine")
    assert run(model, SOURCE, "--no-pictures") == 1
    (folder / "notes.txt").unlink()
    (folder / "attention.html").write_text("changed")
    assert run(model, SOURCE, "--no-pictures") == 1
    error = capsys.readouterr().err
    assert "has notes.txt, which" in error and "has attention.html, which" in error
    assert (folder / "attention.html").read_text() == "changed"
    assert names(tmp_path) == ["mine_attention"]


def test_a_folder_that_was_there_stays(model, tmp_path, capsys):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert run(model, SOURCE, "--out", "there", "--no-pictures") == 0  # empty
    assert run(model, SOURCE, "--out", "link", "--no-pictures") == 1
    assert run(model, SOURCE, "--out", model, "--no-pictures") == 1
    assert "link is not a folder" in capsys.readouterr().err
    assert (model / "config.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["", "a"], "the source has no words: give a sentence"),
        ([" \t ", "a"], "the source has no words: give a sentence"),
        (["\u200b"], "the source has no words: give a sentence"),
        (["a", " "], "the target has no words: give a sentence"),
        (["dog " * 20], "source has 21 subwords with its end, but this model takes at most 20"),
        (["dog", "dog " * 30], "31 subwords with its end, but this model takes at most 20"),
    ],
)  # fmt: skip
def test_bad_sentences_are_one_sentence(model, tmp_path, capsys, arguments, message):
    assert run(model, *arguments) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and message in lines[0]
    assert names(tmp_path) == []


def test_a_run_and_a_checkpoint_are_packed_on_the_way(trained, tmp_path, capsys):
    """Their dictionaries are found as 'vaswani pack' finds them; nothing is left in the run."""
    place = tmp_path / "runs" / "digits" / "checkpoints"
    place.mkdir(parents=True)
    (place.parent / "config.yaml").write_text("generation:\n  beam: 2\n")
    shutil.copy(trained, place / "checkpoint_best.pt")
    for name in ("digits", place / "checkpoint_best.pt"):
        assert run(name, "1 2 3 4", "4 3 2 1", "--no-pictures") == 0
        record = json.loads((tmp_path / "digits_attention" / "attention.json").read_text())
        assert record["model"] == str(name) and record["source"] == "1 2 3 4"
        (tmp_path / "digits_attention").rename(tmp_path / f"seen_{len(names(tmp_path))}")
    with translator_of("digits") as model:  # BPE codes are read from there when they are needed
        folder = model.folder.path
        assert folder.is_dir()
    assert not folder.exists()
    assert names(place.parent) == ["checkpoints", "config.yaml"]


def test_a_translation_that_was_cut_is_shown_whole(tmp_path):
    """By the paper's length penalty it has no end; the last word is not taken for one."""
    packed.pack(tmp_path / "model", words=WORDS, seed=1, encoder_layers=1)
    translator = Translator.from_pretrained(tmp_path / "model")
    translator.options = translator.options.changed(length_penalty="gnmt", max_len_a=0, max_len_b=3)
    (cut,) = translator.translate([SOURCE])
    assert len(cut.hypotheses[0].tokens) == 3  # the limit, with no room for the end
    attention = attend(translator, SOURCE, None, 10**6)
    assert attention.target == cut.text
    assert attention.weights["decoder"].shape[-2] == len(cut.hypotheses[0].tokens) + 1


def test_what_is_no_model_is_one_sentence(model, tmp_path, capsys):
    (tmp_path / "a.pt").write_bytes(b"junk")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("{}")
    for name, message in {
        "nothing": "there is no model folder nothing",
        "empty": "empty/config.json is missing, damaged, or was not written by",
        "a.pt": "a.pt",
        "run": "run has no checkpoint yet",
    }.items():
        assert run(name, SOURCE) == 1
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1 and message in lines[0]


def test_too_many_weights_for_a_page(model, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(attention_page, "MOST_WEIGHTS", 100)
    assert run(model, SOURCE) == 1
    assert "a page can show 100 at most" in capsys.readouterr().err
    assert names(tmp_path) == []


def test_a_full_disk_leaves_nothing(model, monkeypatch, tmp_path, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(attention_page, "page", full)
    assert run(model, SOURCE) == 1
    assert "there is no space left for mine_attention" in capsys.readouterr().err
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("model_name", "folder"),
    [
        ("runs/mine/model", "mine_attention"),
        ("runs/mine/model/", "mine_attention"),
        ("runs/mine", "mine_attention"),
        ("runs/mine/checkpoints/checkpoint_best.pt", "mine_attention"),
        ("elsewhere/best.pt", "best_attention"),
        ("copied", "copied_attention"),
    ],
)
def test_the_folder_is_called_after_the_model(model_name, folder):
    assert str(default_folder(model_name)) == folder
