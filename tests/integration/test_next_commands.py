"""The commands that commands print to go on: each is run as printed, from text to a translation."""

import io
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, List, Tuple

import pytest
import yaml

from tests import archives, stock
from tests.preloaded import python
from vaswani.attention_page import picture
from vaswani.attention_page.picture import draw
from vaswani.planning import conditions
from vaswani.planning.published_settings import settings_for

ROOT = Path(__file__).resolve().parents[2]
LANGS = ["--source-lang", "en", "--target-lang", "de"]


@pytest.fixture(scope="module")
def short():
    """The recipe of ``vaswani new`` with less warm-up and fewer epochs: seconds of training."""
    settings = replace(settings_for(200), warmup=(2, 2, 2), epochs=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "settings_for", lambda _: settings)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory, short) -> Path:
    """A folder with data/mine, and data/more, in which there is no test set."""
    folder = tmp_path_factory.mktemp("chain")
    for part, count in (("train", 200), ("valid", 8), ("test", 8)):
        for lang in ("en", "de"):
            text = "".join(f"{line}\n" for line in archives.sentences(lang, count, count))
            (folder / f"{part}.{lang}").write_text(text, encoding="utf-8")
    parts = [f"--{part}={part}" for part in ("train", "valid", "test")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "executable", python())
        how = ["--bpe", "30", "--workers", "1", "--out", "data/mine"]
        assert stock.vaswani("prepare", *LANGS, *parts, *how) == 0
        how = ["--like", "data/mine", "--workers", "1", "--out", "data/more"]
        assert stock.vaswani("prepare", *parts[:2], *how) == 0
    return folder


def run_all(commands: List[str], capsys, monkeypatch) -> List[str]:
    """Run commands, and those that they print next, each once; returns all that were run."""
    done: List[str] = []
    while commands:
        command = commands.pop(0)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 2 3 4\n")))
        program, *words = shlex.split(command)
        assert program == "vaswani"
        assert stock.vaswani(*words) == 0, command
        done.append(command)
        said = capsys.readouterr()
        printed = [line.partition("next: ")[2] for line in said.err.splitlines()]
        commands = [line for line in printed if line and line not in done] + commands
        if words[0] == "translate":
            assert said.out.count("\n") == 1
    return done


@pytest.mark.parametrize("start", [[], ["--from", "mine"]], ids=["new", "fine-tuned"])
def test_from_new_to_a_translation(place, capsys, monkeypatch, start):
    """The second begins with the first, and has no test set: 'valid' is translated instead."""
    monkeypatch.chdir(place)
    name, data, subset = ("tuned", "more", " --subset valid") if start else ("mine", "mine", "")
    capsys.readouterr()
    assert stock.vaswani("new", name, "--data", f"data/{data}", *start) == 0
    told, _, commands = capsys.readouterr().err.partition("next:\n")
    text = (place / f"{name}.yaml").read_text(encoding="utf-8")
    listed = [line.strip() for line in commands.splitlines()]
    assert all(f"#   {command}\n" in text for command in listed)
    run = f"runs/{name}"
    assert run_all(listed, capsys, monkeypatch) == [
        f"vaswani train {name}",
        f"vaswani average {run}",  # which train printed
        f"vaswani generate {run}{subset}",
        f"vaswani score {run}{subset}",
        f"vaswani pack {run}",
        f"vaswani translate {run}/model",
        f"vaswani average {name}",
        f"vaswani generate {name}{subset}",
        f"vaswani score {name}{subset}",
        f"vaswani pack {name}",
        f"vaswani translate {run}/model",
    ]
    trained = yaml.safe_load((place / run / "config.yaml").read_text(encoding="utf-8"))
    kept = list((place / run / "checkpoints").glob("checkpoint[0-9]*.pt"))
    assert len(kept) >= 2, "of a short training, too"
    assert len(kept) <= trained["checkpoint"]["keep_last_epochs"]


def test_a_run_with_a_single_checkpoint(place, capsys, monkeypatch):
    """There is nothing to average, which is said, and what comes next works."""
    monkeypatch.chdir(place)
    assert stock.vaswani("new", "once", "--data", "data/mine") == 0
    assert stock.vaswani("train", "once", "optimization.max_update=1") == 0
    capsys.readouterr()
    done = run_all(["vaswani average once"], capsys, monkeypatch)
    assert done == [
        "vaswani average once",
        "vaswani generate runs/once",
        "vaswani score runs/once",
        "vaswani pack runs/once",
        "vaswani translate runs/once/model",
    ]


def test_text_is_followed_by_an_experiment(place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    parts = [f"--{part}={part}" for part in ("train", "valid", "test")]
    how = ["--bpe", "30", "--workers", "1", "--out", "data/mine"]
    capsys.readouterr()
    assert stock.vaswani("prepare", *LANGS, *parts, *how) == 0
    following = "train mine" if Path("mine.yaml").exists() else "new mine --data data/mine"
    assert capsys.readouterr().err.endswith(f"next: vaswani {following}\n")


def test_a_number_of_checkpoints_that_was_asked_for_is_decoded(place, capsys, monkeypatch):
    """Which the run might not choose."""
    monkeypatch.chdir(place)
    assert stock.vaswani("new", "twice", "--data", "data/mine") == 0
    changes = ["optimization.max_update=4", "checkpoint.save_interval_updates=2"]
    assert stock.vaswani("train", "twice", *changes) == 0
    capsys.readouterr()
    assert stock.vaswani("average", "twice", "--last", "2") == 0
    path = "runs/twice/checkpoints/checkpoint_average_last2.pt"
    assert capsys.readouterr().err.endswith(f"next: vaswani generate {path}\n")


def draw_a_corner(path: Path, weights: Any, subwords: Tuple[List[str], List[str]], title: str):
    """The picture of a layer, with one head and the first words: all of it takes seconds."""
    rows, columns = subwords
    draw(path, weights[:1, :5, :5], (rows[:5], columns[:5]), title)


def test_the_readmes_way_from_text_to_a_model(short, tmp_path, capsys, monkeypatch):
    """README, "With your own text": each line as written there, on little text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", python())
    monkeypatch.setattr(picture, "draw", draw_a_corner)
    (tmp_path / "text").mkdir()
    for part, count in (("train", 200), ("valid", 8), ("test", 8)):
        for lang, like in (("en", "en"), ("fr", "de")):
            text = "".join(f"{line}\n" for line in archives.sentences(like, count, count))
            (tmp_path / "text" / f"{part}.{lang}").write_text(text, encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"## With your own text\n.*?```sh\n(.*?)```", readme, re.DOTALL)
    assert block
    verbs = []
    for line in block[1].replace("\\\n", " ").splitlines():
        said, _, command = line.rpartition("|")
        program, verb, *words = shlex.split(command, comments=True)
        given = shlex.split(said)[1:]  # of echo
        stdin = io.TextIOWrapper(io.BytesIO("".join(f"{word}\n" for word in given).encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert program == "vaswani"
        assert stock.vaswani(verb, *words) == 0, line
        verbs.append(verb)
    assert verbs[:4] == ["prepare", "new", "train", "average"] and verbs[-1] == "export"
