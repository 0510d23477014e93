"""Options as a dataclass: the parser made from one."""

import argparse
from dataclasses import dataclass

import pytest

from vaswani.common.options import argument, option, parse


@dataclass(frozen=True, kw_only=True)
class Shared:
    beam: int | None = option(metavar="N")


@dataclass(frozen=True, kw_only=True)
class Options(Shared):
    """One option of each kind."""

    config: str = argument("CONFIG", "an experiment")
    overrides: list[str] = argument("key=value", default=[])
    gpus: int = option(metavar="N", required=True)
    memory: float = option(16.0, metavar="GB")
    recipe: str = option("paper", choices=["paper", "t2t"])
    start: str | None = option(flag="--from")
    dry_run: bool = option(False)
    lowercase: bool | None = option()
    workers: int = option(4)


CASES = {
    "base a=1 --gpus 2 --memory 0.5": Options(config="base", overrides=["a=1"], gpus=2, memory=0.5),
    "base --gpus 2 --recipe t2t": Options(config="base", gpus=2, recipe="t2t"),
    "v1.0 --gpus 2 --from 1.0": Options(config="v1.0", gpus=2, start="1.0"),
    "base --gpus 2 --dry-run --beam 5": Options(config="base", gpus=2, dry_run=True, beam=5),
    "base --gpus 2 --no-lowercase": Options(config="base", gpus=2, lowercase=False),
}


@pytest.mark.parametrize("line", CASES)
def test_a_command_line_gives_its_options(line):
    assert parse(argparse.ArgumentParser(), Options, line.split()) == CASES[line]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--gpus 2", "CONFIG"),
        ("base", "--gpus"),
        ("base --gpus 2 --start x", "--start"),
    ],
)
def test_a_wrong_command_line_names_its_mistake(line, named, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(argparse.ArgumentParser(), Options, line.split())
    assert stop.value.code == 2 and named in capsys.readouterr().err


def test_changes_may_stand_before_and_after_an_option():
    found = parse(argparse.ArgumentParser(), Options, ["base", "a=1", "--gpus", "2", "b=2"])
    assert found.overrides == ["a=1", "b=2"]
