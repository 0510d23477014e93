"""``vaswani prepare`` replaces what it made, and nothing else: whatever else is there is kept."""

import json
import os
import shutil

import pytest

from tests import archives
from vaswani import cli

LANGS = ["--source-lang", "en", "--target-lang", "de"]
OWN = [*LANGS, "--train", "train", "--valid", "valid", "--bpe", "30", "--workers", "1"]
ALL = ["text", "tok", "codes", "bpe", "data-bin"]


def prepare(*arguments, code=0):
    assert cli.main(["prepare", *map(str, arguments)]) == code


def everything(folder):
    """Every file below a folder with its bytes, every link with where it leads."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def moved(own, folder):
    """Move the text of ``own`` to a folder; the arguments that name it there."""
    folder.mkdir(parents=True)
    for name in ("train", "valid"):
        for lang in ("en", "de"):
            (own / f"{name}.{lang}").rename(folder / f"{name}.{lang}")
    return [*LANGS, "--train", folder / "train", "--valid", folder / "valid", "--bpe", "30"]


@pytest.mark.parametrize("folder", ["text", "bpe", ".stages", "text/deep/er"])
def test_text_inside_an_output_is_refused_before_anything_is_touched(own, light, capsys, folder):
    arguments = moved(own, own / "mine" / folder)
    before = everything(own)
    prepare(*arguments, "--out", own / "mine", code=1)
    message = capsys.readouterr().err
    assert f"is in {own}/mine/{folder.split('/')[0]}, which this command makes" in message
    assert message.count("\n") == 1 and everything(own) == before
    prepare(*arguments, "--out", own / "other")


@pytest.mark.parametrize(
    "how", ["link to the file", "link to the folder", "dots", "through a link"]
)
def test_text_inside_an_output_by_another_name_is_refused(own, capsys, how):
    arguments = moved(own, own / "mine" / "text")
    start = own / "elsewhere"
    if how == "link to the file":
        start.mkdir()
        for path in (own / "mine" / "text").iterdir():
            (start / path.name).symlink_to(path)
    elif how == "link to the folder":
        start.symlink_to(own / "mine" / "text")
    elif how == "dots":
        start = own / "mine" / "tok" / ".." / "text"
        (own / "mine" / "tok").mkdir()
    else:  # what is read lies elsewhere, but the way there would be renamed
        (own / "mine" / "text").rename(start)
        (own / "mine" / "text").mkdir()
        (own / "mine" / "text" / "link").symlink_to(start)
        start = own / "mine" / "text" / "link"
    before = everything(own)
    arguments = [*LANGS, "--train", start / "train", "--valid", start / "valid", "--bpe", "30"]
    prepare(*arguments, "--out", own / "mine", code=1)
    assert "which this command makes" in capsys.readouterr().err and everything(own) == before


def test_a_recipe_whose_text_lies_in_its_output_is_refused(own, capsys):
    text = own / "data" / "multi30k_en_de" / "text"
    text.mkdir(parents=True)
    for name in ("train", "val", "test_2016_flickr"):
        for lang in ("en", "de"):
            shutil.copy(own / f"train.{lang}", text / f"{name}.lc.norm.tok.{lang}")
    before = everything(own)
    prepare("multi30k_en_de", "--text", "data/multi30k_en_de/text", code=1)
    assert "is in data/multi30k_en_de/text" in capsys.readouterr().err
    assert everything(own) == before


@pytest.mark.parametrize(
    ("option", "place"),
    [("--archives", "raw"), ("--archives", "tok/archives"), ("--manifest", "bpe/manifest.yaml")],
)
def test_archives_and_manifest_inside_an_output_are_refused(own, capsys, option, place):
    www = own / "www"
    archives.offer(www, 6)
    path = own / "mine" / place
    path.parent.mkdir(parents=True)
    if option == "--manifest":
        archives.manifest(www, "http://127.0.0.1:9", path)
    before = everything(own)
    prepare("wmt14_en_de", "--out", "mine", option, f"mine/{place}", code=1)
    what = "folder of archives" if option == "--archives" else "manifest"
    assert f"the {what} mine/{place} is in mine/{place.split('/')[0]}" in capsys.readouterr().err
    assert everything(own) == before


def test_an_output_that_is_a_link_is_renamed(own, light):
    (own / "other").mkdir()
    (own / "other" / "mine").write_text("mine")
    (own / "data" / "own").mkdir(parents=True)
    (own / "data" / "own" / "tok").symlink_to(own / "other")
    prepare(*OWN, "--out", "data/own")
    assert os.readlink(own / "data/own/tok.kept-1") == str(own / "other")
    assert everything(own / "other") == {"mine": b"mine"}


def test_a_lock_that_is_a_link_does_not_empty_a_file(own, capsys):
    (own / "data/own/.stages").mkdir(parents=True)
    (own / "data/own/.stages/lock").symlink_to(own / "train.en")
    before = everything(own)
    prepare(*OWN, "--out", "data/own", code=1)
    assert "lock is a symbolic link" in capsys.readouterr().err and everything(own) == before


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "folder") for name in ALL),
        *((name, "file") for name in ("tok", "codes", "recipe.yaml")),
    ],
)
def test_what_was_there_before_is_renamed_and_named(own, light, capsys, name, kind):
    """The user's own text, notes, codes or recipe, under the name of an output."""
    theirs = own / "data" / "own" / name
    theirs.parent.mkdir(parents=True)
    if kind == "folder":
        (theirs / "deep").mkdir(parents=True)
        (theirs / "deep" / "mine").write_text("mine")
    else:
        theirs.write_text("source_lang: en\n# mine\n")
    before = everything(theirs) if kind == "folder" else theirs.read_bytes()
    (theirs.parent / f"{name}.kept-1").write_text("taken")
    prepare(*OWN, "--out", "data/own")
    kept = theirs.parent / f"{name}.kept-2"
    assert (everything(kept) if kind == "folder" else kept.read_bytes()) == before
    assert f"it is kept as data/own/{name}.kept-2" in capsys.readouterr().err
    assert (theirs.parent / f"{name}.kept-1").read_text() == "taken"
    prepare(*OWN, "--out", "data/own")
    assert "already prepared" in capsys.readouterr().err


def spoil_nothing(folder):
    """Nothing was changed."""


def edit(folder):
    """Same size, other words."""
    path = folder / "tok" / "train.en"
    path.write_bytes(path.read_bytes().swapcase())


def add(folder):
    """A file of the user's beside ours."""
    (folder / "tok" / "notes.txt").write_text("mine")


def link(folder):
    """A file of the user's, from elsewhere."""
    (folder / "tok" / "link").symlink_to(folder)


@pytest.mark.parametrize(
    ("change", "option"),
    [
        (spoil_nothing, ["--from", "tok"]),
        (spoil_nothing, ["--max-words", "20"]),
        (edit, ["--from", "tok"]),
        (edit, ["--max-words", "20"]),
        (add, ["--from", "tok"]),
        (link, ["--max-words", "20"]),
    ],
)
def test_what_was_changed_since_is_kept_and_ours_replaced(own, light, capsys, change, option):
    prepare(*OWN, "--out", "data/own")
    folder = own / "data" / "own"
    change(folder)
    before = everything(folder / "tok")
    prepare(*OWN, "--out", "data/own", *option)
    kept = folder / "tok.kept-1"
    assert kept.exists() == (change is not spoil_nothing)
    assert not kept.exists() or everything(kept) == before
    assert ("kept as" in capsys.readouterr().err) == kept.exists()
    names = {path.name for path in folder.iterdir()} - {"tok.kept-1"}
    assert names == {*ALL, "recipe.yaml", ".stages"}


def test_own_files_in_data_bin_survive(own, light, capsys):
    """Another test set that was binarised into it, say: nothing is redone for it, or lost."""
    prepare(*OWN, "--out", "data/own")
    mine = own / "data/own/data-bin/test1.en-de.en.bin"
    mine.write_bytes(b"mine")
    capsys.readouterr()
    prepare(*OWN, "--out", "data/own")
    assert "already prepared" in capsys.readouterr().err and mine.read_bytes() == b"mine"
    prepare(*OWN, "--out", "data/own", "--bpe", "20")
    assert (own / "data/own/data-bin.kept-1" / mine.name).read_bytes() == b"mine"


def test_data_of_another_version_are_made_again_once(own, light, capsys):
    prepare(*OWN, "--out", "data/own")
    for path in (own / "data/own/.stages").glob("*.json"):
        record = {**json.loads(path.read_text()), "version": 1, "key": "another"}
        path.write_text(json.dumps(record))
    capsys.readouterr()
    prepare(*OWN, "--out", "data/own")
    said = capsys.readouterr().err
    assert "data/own: prepared by another version: made again, once\n" in said
    assert "kept" not in said and not list((own / "data/own").glob("*.kept-*"))
    prepare(*OWN, "--out", "data/own")
    assert capsys.readouterr().err.startswith("data/own: already prepared")


def test_a_recipe_of_ones_own_is_kept_with_its_comments(own, light, capsys):
    prepare(*OWN, "--out", "data/own")
    path = own / "data/own/recipe.yaml"
    theirs = path.read_text().replace("bpe: 30", "bpe: 20  # my choice")
    path.write_text(theirs)
    prepare(path, "--out", "data/own")
    assert (own / "data/own/recipe.yaml.kept-1").read_text() == theirs
    assert "bpe: 20\n" in path.read_text()


@pytest.mark.parametrize("where", [".", "train.en", "train.en/deep", "stages"])
def test_odd_places_for_the_result(own, light, capsys, where):
    """The current folder; a file; below a file; a folder whose .stages is a file."""
    if where == "stages":
        (own / where).mkdir()
        (own / where / ".stages").write_text("mine")
    before = everything(own)
    prepare(*OWN, "--out", where, code=0 if where == "." else 1)
    message = capsys.readouterr().err
    after = everything(own)
    assert {name: after[name] for name in before} == before
    if where != ".":
        assert message.count("\n") == 1 and "Traceback" not in message


def test_hard_links_to_an_output_keep_their_content(own, light):
    prepare(*OWN, "--out", "data/own")
    os.link(own / "data/own/tok/train.en", own / "mine")
    before = (own / "mine").read_bytes()
    prepare(*OWN, "--out", "data/own", "--limit", "5")
    assert (own / "mine").read_bytes() == before


def test_what_a_desktop_leaves_makes_no_folder_the_users(own, light):
    prepare(*OWN, "--out", "data/own")
    (own / "data/own/tok/.DS_Store").write_text("icons")
    prepare(*OWN, "--out", "data/own", "--max-words", "20")
    assert not list((own / "data/own").glob("*.kept-*"))


@pytest.mark.parametrize(
    "marker", ['{"left": ["a"], "key": 5}', '{"next": 7}', "[]", "no JSON", ""]
)
def test_a_marker_that_is_damaged_is_none(own, light, capsys, marker):
    prepare(*OWN, "--out", "data/own")
    (own / "data/own/.stages/tok.json").write_text(marker)
    prepare(*OWN, "--out", "data/own")
    assert "data/own/tok.kept-1" in capsys.readouterr().err
