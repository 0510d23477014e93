"""``vaswani prepare`` replaces what it made, and nothing else: whatever else is there is kept."""

import shutil

import pytest

from tests.own_text import HERE, LANGS, STAGES, contents, here, sentence_of
from vaswani import cli


@pytest.mark.parametrize("place", ["bpe/deep", "link"])
def test_text_inside_an_output_is_refused_before_anything_is_touched(own, capsys, place):
    start = own / "mine" / place
    if place == "link":
        start = own / "elsewhere"
        (own / "mine" / "text").mkdir(parents=True)
        start.symlink_to(own / "mine" / "text")
    else:
        start.mkdir(parents=True)
    for path in [*own.glob("train.*"), *own.glob("valid.*")]:
        path.rename(start / path.name)
    before = contents(own)
    sets = ["--train", str(start / "train"), "--valid", str(start / "valid")]
    assert cli.main(["prepare", *LANGS, *sets, "--out", str(own / "mine")]) == 1
    assert f"{start}/train.en" in sentence_of(capsys) and contents(own) == before


@pytest.mark.parametrize("name", ["tok", "codes", "recipe.yaml"])
def test_what_was_there_before_is_kept_under_another_name(own, light, capsys, name):
    """The user's own text, codes or recipe, under the name of an output."""
    folder = own / "data" / "own"
    (folder / "tok").mkdir(parents=True)
    theirs = folder / name / "mine" if name == "tok" else folder / name
    theirs.write_text("mine")
    (folder / f"{name}.kept-1").write_text("taken")
    assert cli.main(HERE) == 0
    kept = folder / f"{name}.kept-2"
    assert (kept / "mine" if name == "tok" else kept).read_text() == "mine"
    assert f"data/own/{name}.kept-2" in capsys.readouterr().err
    assert (folder / f"{name}.kept-1").read_text() == "taken"


def edit(folder):
    """Change the words of a file, but not its size."""
    path = folder / "tok" / "train.en"
    path.write_text(path.read_text("utf-8").swapcase(), "utf-8")


def spoil_the_record(folder):
    """Overwrite the record of what was made."""
    (folder / ".stages" / "tok.json").write_text('{"key": 5}')


@pytest.mark.parametrize("option", [[], ["--from", "tok"], ["--max-words", "20"]])
@pytest.mark.parametrize("change", [edit, spoil_the_record])
def test_a_changed_output_is_kept_and_made_again(own, light, change, option):
    assert cli.main(HERE) == 0
    folder = own / "data" / "own"
    change(folder)
    before = contents(folder / "tok")
    assert cli.main(here(*option)) == 0
    assert contents(folder / "tok.kept-1") == before
    names = {path.name for path in folder.iterdir()} - {"tok.kept-1"}
    assert names == {*STAGES, "recipe.yaml", ".stages"}


def test_own_files_in_data_bin_survive(own, light, capsys):
    """Another test set that was binarised into it, say: nothing is redone for it, or lost."""
    assert cli.main(HERE) == 0
    mine = own / "data/own/data-bin/test1.en-de.en.bin"
    mine.write_bytes(b"mine")
    capsys.readouterr()
    assert cli.main(HERE) == 0
    assert ": made" not in capsys.readouterr().err and mine.read_bytes() == b"mine"
    assert cli.main(here("--bpe", "20")) == 0
    assert (own / "data/own/data-bin.kept-1" / mine.name).read_bytes() == b"mine"


def test_a_copied_folder_is_not_made_again(own, light, capsys):
    assert cli.main(HERE) == 0
    shutil.copytree("data/own", "data/copy", copy_function=shutil.copyfile)  # with new times
    capsys.readouterr()
    assert cli.main(here("--out", "data/copy")) == 0
    assert ": made (" not in capsys.readouterr().err
