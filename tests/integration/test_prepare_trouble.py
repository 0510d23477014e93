"""``vaswani prepare`` where the disk is full, and when it is interrupted."""

import os
import shutil
import signal

import pytest

from tests.own_text import HERE, STAGES, contents, here, sentence_of, small_files
from vaswani import cli
from vaswani.data import pipeline


@pytest.mark.parametrize("name", ["text", "tok", "codes", "bpe"])
def test_a_full_disk_in_any_stage_loses_nothing(own, light, capsys, name):
    """What was made before stays; what is there of an earlier run too."""
    assert cli.main(HERE) == 0
    changed = {"text": ["--limit=30"], "tok": ["--ratio=3"], "codes": ["--bpe=25"], "bpe": []}
    again = here(*changed[name])
    if name == "bpe":
        shutil.rmtree("data/own/bpe")
    before = contents(own / "data/own")
    capsys.readouterr()
    with small_files(100):
        assert cli.main(again) == 1
    assert f"data/own/{name}" in sentence_of(capsys) and contents(own / "data/own") == before
    assert cli.main(again) == 0 and not list((own / "data/own").glob("*.kept-*"))


@pytest.mark.parametrize("name", ["tok", "data-bin"])
def test_ctrl_c_in_any_stage_loses_nothing(own, light, monkeypatch, capsys, name):
    """With all of it written but not in its place."""
    assert cli.main(HERE) == 0
    before = contents(own / "data/own")
    function = {"tok": "make_tokens", "data-bin": "make_data_bin"}[name]
    make = getattr(pipeline, function)

    def interrupted(*arguments):
        report = make(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        return report

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, function, interrupted)
        assert cli.main(here("--from", name)) == 130
    after = contents(own / "data/own")
    assert set(after) == set(before)
    assert all(after[path] == before[path] for path in before if ".stages" not in path)
    capsys.readouterr()
    assert cli.main(HERE) == 0, "without --from too: what was to be redone is"
    assert capsys.readouterr().err.count(": made (") == len(STAGES) - STAGES.index(name)
