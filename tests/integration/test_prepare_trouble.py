"""``vaswani prepare`` where the disk is full or a folder read-only."""

import os
import shutil
import signal

import pytest

from tests.own_text import HERE, STAGES, contents, read_only, sentence_of, small_files
from vaswani import cli
from vaswani.data import pipeline


@pytest.mark.parametrize("name", ["text", "tok", "codes", "bpe"])
def test_a_full_disk_in_any_stage_loses_nothing(own, light, capsys, name):
    """What was made before stays; what is there of an earlier run too."""
    assert cli.main(HERE) == 0
    changed = {"text": ["--limit=30"], "tok": ["--ratio=3"], "codes": ["--bpe=25"], "bpe": []}
    again = [*HERE, *changed[name]]
    if name == "bpe":
        shutil.rmtree("data/own/bpe")
    before = contents(own / "data/own")
    capsys.readouterr()
    with small_files(100):
        assert cli.main(again) == 1
    assert f"data/own/{name}" in sentence_of(capsys) and contents(own / "data/own") == before
    assert cli.main(again) == 0 and not list((own / "data/own").glob("*.kept-*"))


@pytest.mark.parametrize("place", ["data", "data/own", "data/own/.stages"])
def test_a_folder_that_cannot_be_written_is_named(own, light, capsys, place):
    """The one above it, which is there; itself; the one of records."""
    (own / place).mkdir(parents=True)
    with read_only(own / place):
        assert cli.main(HERE) == 1
    assert "data/own" in sentence_of(capsys)
    assert cli.main(HERE) == 0


def test_prepared_data_may_be_read_only(own, light, capsys):
    assert cli.main(HERE) == 0
    before = contents(own)
    folders = [path for path in (own / "data").rglob("*") if path.is_dir()]
    capsys.readouterr()
    with read_only(*folders):
        assert cli.main(HERE) == 0
        assert ": made (" not in capsys.readouterr().err
        assert cli.main([*HERE, "--bpe", "20"]) == 1
        assert "data/own" in sentence_of(capsys) and contents(own) == before


@pytest.mark.parametrize("name", STAGES)
def test_ctrl_c_in_any_stage_loses_nothing(own, light, monkeypatch, capsys, name):
    """With all of it written but not in its place."""
    assert cli.main(HERE) == 0
    before = contents(own / "data/own")
    function = {"tok": "make_tokens", "data-bin": "make_data_bin"}.get(name, f"make_{name}")
    make = getattr(pipeline, function)

    def interrupted(*arguments):
        report = make(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        return report

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, function, interrupted)
        assert cli.main([*HERE, "--from", name]) == 130
    after = contents(own / "data/own")
    assert set(after) == set(before)
    assert all(after[path] == before[path] for path in before if ".stages" not in path)
    capsys.readouterr()
    assert cli.main(HERE) == 0, "without --from too: what was to be redone is"
    assert capsys.readouterr().err.count(": made (") == len(STAGES) - STAGES.index(name)
