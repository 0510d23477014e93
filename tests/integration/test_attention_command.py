"""``vaswani attention``: what it makes, what it leaves alone, what it says of bad input."""

import functools
import html
import json
import shutil

import pytest

from tests import packed, stock
from vaswani import Translator
from vaswani.attention_page.maps import attend, open_model

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


def test_a_page_and_pictures_show_the_models_own_translation(model, tmp_path):
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


def test_a_given_target_is_read_as_it_is(model, tmp_path):
    target = "the small ca@@ t xyz ."
    assert run(model, SOURCE, target, "--out", "mine", "--no-pictures") == 0
    assert names(tmp_path / "mine") == ["attention.html", "attention.json"]
    record = json.loads((tmp_path / "mine" / "attention.json").read_text())
    assert record["target"] == target and record["unknown"] == ["xyz"]
    assert not record["translated_by_the_model"]


@pytest.mark.parametrize("name", ["notes.txt", "attention.html"])
def test_only_an_unchanged_page_is_replaced(name, model, tmp_path, capsys):
    assert run(model, SOURCE, "--no-pictures") == run(model, "a dog .", "--no-pictures") == 0
    folder = tmp_path / "mine_attention"
    assert "a dog ." in (folder / "attention.html").read_text()
    (folder / name).write_text("mine")
    assert run(model, SOURCE, "--no-pictures") == 1
    assert name in capsys.readouterr().err
    assert (folder / name).read_text() == "mine"


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
    with open_model("digits") as model:  # BPE codes are read from there when they are needed
        folder = model.folder.path
        assert folder.is_dir()
    assert not folder.exists()
    assert names(place.parent) == ["checkpoints", "config.yaml"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["", "a"], "source"), (["a", " "], "target"), (["dog " * 20], "20")],
)
def test_sentences_that_cannot_be_are_refused(model, tmp_path, capsys, arguments, named):
    assert run(model, *arguments) == 1
    assert named in capsys.readouterr().err
    assert names(tmp_path) == []
