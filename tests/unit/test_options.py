"""Options as a dataclass: the parser made from one."""

import argparse
import math
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from vaswani.common.errors import UserError
from vaswani.common.options import Checked, argument, check_encoding, option, parse


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
    train: list[str] | None = option(metavar="PREFIX")


CASES = {
    "base a=1 --gpus 2 --memory 0.5": Options(config="base", overrides=["a=1"], gpus=2, memory=0.5),
    "base --gpus 2 --recipe t2t": Options(config="base", gpus=2, recipe="t2t"),
    "v1.0 --gpus 2 --from 1.0": Options(config="v1.0", gpus=2, start="1.0"),
    "base --gpus 2 --dry-run --beam 5": Options(config="base", gpus=2, dry_run=True, beam=5),
    "base --gpus 2 --no-lowercase": Options(config="base", gpus=2, lowercase=False),
    "base --train b --gpus 2 --train a": Options(config="base", gpus=2, train=["b", "a"]),
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


@pytest.mark.parametrize(
    "line",
    ["--gpus 2 --gpus 2", "--gpus 2 --gpu 3", "--gpus 2 --dry-run --dry-run"]
    + ["--gpus 2 --lowercase --no-lowercase", "--gpus 2 --from a --from b"],
)
def test_an_option_given_twice_is_refused(line, capsys):
    """The last one was taken, without a word."""
    with pytest.raises(SystemExit) as stop:
        parse(argparse.ArgumentParser(), Options, ["base", *line.split()])
    assert stop.value.code == 2 and "given twice: give it once" in capsys.readouterr().err


def test_a_key_given_twice_is_refused():
    for words in (["a.b=1", "a.b=2"], ["run=x", "--workers", "2", "run=x"]):
        with pytest.raises(UserError, match=f"{words[0].split('=')[0]} is given twice"):
            parse(argparse.ArgumentParser(), Options, ["base", *words, "--gpus", "2"])


def test_changes_may_stand_before_and_after_an_option():
    found = parse(argparse.ArgumentParser(), Options, ["base", "a=1", "--gpus", "2", "b=2"])
    assert found.overrides == ["a=1", "b=2"]


# ---- what is checked ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Numbers(Checked):
    """Options with limits, and without."""

    files: list[str] = argument("FILE", default=[], any_name=True)
    workers: int | None = option(metavar="N", least=1)
    share: float = option(0.5, above=0)
    penalty: float = option(1.0)
    name: str = option("a")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"workers": 0}, "--workers must be at least 1, not 0"),
        ({"share": 0.0}, "--share must be above 0, not 0.0"),
        ({"share": np.float32(-1)}, "--share must be above 0, not -1.0"),
        ({"share": math.nan}, "--share must be a finite number, not nan"),
        ({"workers": 10**20}, f"--workers must be at most {sys.maxsize:,}, not {10**20}"),
        ({"penalty": math.nan}, "--penalty must be a finite number, not nan"),
        ({"penalty": -math.inf}, "--penalty must be a finite number, not -inf"),
    ],
)
def test_a_number_outside_its_limits_is_refused_by_its_flag(given, sentence):
    """NaN passes every comparison: a ratio of NaN would be no limit."""
    with pytest.raises(UserError) as refused:
        Numbers(**given)
    assert str(refused.value) == sentence
    line = [f"--{name}={value}" for name, value in given.items()]
    with pytest.raises(UserError):
        parse(argparse.ArgumentParser(), Numbers, line)


def test_numbers_within_their_limits_pass():
    Numbers(workers=1, share=1e-9, penalty=-3.0)


def test_an_argument_that_is_not_utf8_is_refused_unless_it_names_text_to_read():
    """Python has the byte E9 as a surrogate, which it can write nowhere but in a file's name."""
    check_encoding(Numbers(files=["caf\udce9"], name="café"))
    with pytest.raises(UserError, match=r"'caf\\xe9' is not UTF-8"):
        check_encoding(Numbers(name="caf\udce9"))
