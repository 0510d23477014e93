"""The commands that commands print to go on: each is run as printed, from text to a translation."""

import io
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from vaswani.planning import first_experiment
from vaswani.planning.published_settings import settings_for


@pytest.fixture
def short(monkeypatch) -> None:
    """Shorten the training of ``vaswani new`` to seconds: less warm-up, fewer epochs."""
    settings = replace(settings_for(200), warmup=(2, 2, 2), epochs=2)
    monkeypatch.setattr(first_experiment, "settings_for", lambda _: settings)


def test_from_new_to_a_translation(workplace, short, cli, monkeypatch):
    """There is no test set: 'valid' is translated instead."""
    for path in Path("data/digits").rglob("test.*"):
        path.unlink()
    ended = cli("new", "mine", "--data", "data/digits")
    listed = [line.strip() for line in ended.err.partition("next:\n")[2].splitlines()]
    text = Path("configs/mine.yaml").read_text(encoding="utf-8")
    assert all(f"#   {command}\n" in text for command in listed)
    done = listed[:1]
    while True:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 2 3 4\n")))
        ended = cli(*shlex.split(done[-1])[1:])
        assert ended.code == 0, done[-1]
        printed = ended.err.partition("next: ")[2]
        if not printed:
            break
        done.append(printed.splitlines()[0])
    assert ended.out.count("\n") == 1, "the translation"
    run = "runs/mine"
    assert done == [
        "vaswani train mine",
        f"vaswani average {run}",
        f"vaswani generate {run} --subset valid",
        f"vaswani score {run} --subset valid",
        f"vaswani pack {run}",
        f"vaswani translate {run}/model",
    ]
    assert [line.replace("mine", run) for line in listed[1:5]] == done[1:5]
    trained = yaml.safe_load(Path(run, "config.yaml").read_text(encoding="utf-8"))
    kept = list(Path(run, "checkpoints").glob("checkpoint[0-9]*.pt"))
    assert 2 <= len(kept) <= trained["checkpoint"]["keep_last_epochs"], "of a short training, too"
