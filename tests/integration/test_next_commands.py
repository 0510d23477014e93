"""The commands that commands print to go on: each is run as printed, from text to a translation."""

import io
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import List

import pytest
import yaml

from tests import archives, stock
from vaswani.planning import conditions
from vaswani.planning.published_settings import settings_for

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
        how = ["--bpe", "30", "--workers", "1", "--out", "data/mine"]
        assert stock.vaswani("prepare", *LANGS, *parts, *how) == 0
    shutil.copytree(folder / "data" / "mine", folder / "data" / "more")
    for path in (folder / "data" / "more").rglob("test.*"):
        path.unlink()
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


@pytest.mark.parametrize(
    "start",
    [
        pytest.param([], id="new"),
        pytest.param(["--from", "mine"], id="fine-tuned", marks=pytest.mark.slow),
    ],
)
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
