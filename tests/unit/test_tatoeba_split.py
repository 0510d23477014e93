"""How the everyday text is split and added to: no held-out sentence has a twin in training."""

import random

import pytest

from scripts import tatoeba_split as split
from tests.files import write

NAMES = {"Tom", "Mary", "Maria"}
MANY = [(f"Tom likes the {n}th w{n}x.", f"Tom mag das {n}. v{n}x.") for n in range(9000)]


def test_twins_differ_in_names_numbers_case_and_punctuation_alone():
    assert split.mask("Toms Hund ist 3.", NAMES) == split.mask("Marias hund ist 12!", NAMES)
    assert split.mask("Tom has dogs.", NAMES) != split.mask("Tom has a dog.", NAMES)


def test_pairs_that_share_either_side_are_in_one_cluster():
    pairs = [("Go!", "Geh!"), ("Leave.", "geh"), ("Leave!", "Fort!"), ("Stay.", "Bleib.")]
    assert sorted(map(sorted, split.clusters(pairs))) == [[0, 1, 2], [3]]


def test_held_out_clusters_have_no_twin_in_training():
    parts = split.split(MANY, random.Random(1))
    for side in (0, 1):
        trained = {split.mask(pair[side], NAMES) for pair in parts["train"]}
        for part in ("valid", "test_clusters"):
            assert len(parts[part]) >= split.HELD_OUT
            assert not trained & {split.mask(pair[side], NAMES) for pair in parts[part]}
    assert sorted(sum(parts.values(), [])) == sorted(MANY)


def test_what_is_made_from_training_pairs_keeps_both_sides_together():
    more = split.as_typed(MANY[:100], random.Random(1))
    assert len(more) == 15 + 10 + 5
    assert any(english.islower() for english, _ in more)
    for english, german in more:
        assert german.count("mag das") == english.lower().count("likes the")


def test_what_is_made_up_is_the_same_on_both_sides():
    made = split.copies(2000, [], NAMES, random.Random(1))
    assert made == split.copies(2000, [], NAMES, random.Random(1))
    frames = [pair for _, pairs in split.KINDS for pair in pairs]
    assert all(side.count("{}") == 1 for pair in frames for side in pair)
    alone = [pair for pair in made if " " not in pair[0]]
    assert any("@" in english for english, _ in alone)
    assert all(english == german for english, german in alone)


def test_what_is_made_up_has_no_twin_that_is_held_out():
    held_out = [("Where is Tom?", "Wo steckt Tom?"), ("It's half past twelve.", "Um 12:30 Uhr!")]
    made = split.copies(2000, held_out, NAMES, random.Random(1))
    assert any(english.startswith("Is this") for english, _ in made)
    assert not any(english.startswith("Where is") for english, _ in made)
    assert not any(german.startswith("Um ") for _, german in made)


def test_what_is_made_up_comes_last_and_only_if_asked_for(tmp_path, monkeypatch):
    """The tutorial's text and the experiments' have none of it."""
    monkeypatch.setattr(split, "HELD_OUT", 3)
    names = [f"w{chr(97 + i // 10)}{chr(97 + i % 10)}" for i in range(100)]
    write(tmp_path / "train.en", "".join(f"{name} sleeps\n" for name in names))
    write(tmp_path / "train.de", "".join(f"{name} schläft\n" for name in names))
    train = {}
    for out in ("without", "with"):
        options = ["--copies"] if out == "with" else []
        monkeypatch.setattr("sys.argv", ["", str(tmp_path), str(tmp_path / out), *options])
        assert split.main() == 0
        train[out] = (tmp_path / out / "train.en").read_text(encoding="utf-8")
    assert train["with"].startswith(train["without"])
    assert len(train["with"].splitlines()) - len(train["without"].splitlines()) == 3


def test_a_folder_without_text_and_one_that_is_there_are_refused(tmp_path, monkeypatch, capsys):
    """In words; both ended in a traceback, the second after the work."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "deu.txt").write_text("Hi.\tHallo!\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    for folder, out, named in (("empty", "new", "deu.txt"), (".", "out", "out is there already")):
        monkeypatch.setattr(
            "sys.argv", ["tatoeba_split.py", str(tmp_path / folder), str(tmp_path / out)]
        )
        with pytest.raises(SystemExit, match="2"):
            split.main()
        assert named in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "deu.txt", "out"}
