"""``vaswani generate --workers N``: the same translations, and what ends one process ends all."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from tests import stock
from tests.integration.test_translations import LEFT, QUICK
from tests.own_text import changed
from transformer_plugin.config import ConfigError
from transformer_plugin.generator import VaswaniSequenceGenerator

SMALL_BATCHES = ["--max-tokens", "40"]  # four of them
SEARCH = VaswaniSequenceGenerator.search_batch


@pytest.fixture(scope="module")
def data(tiny_data_bin, trained, tmp_path_factory) -> Path:
    """Make a folder with a checkpoint and its data, to be decoded into other folders."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "checkpoints").mkdir()
    shutil.copy(trained, folder / "checkpoints")
    shutil.copytree(tiny_data_bin, folder / "data-bin")
    return folder


def command(data, out, *more):
    model = data / "checkpoints" / "checkpoint_last.pt"
    given = ["generate", str(model), "--data", str(data / "data-bin"), "--out", str(out)]
    return [*given[:2], *changed([*given[2:], *QUICK], more)]


def generate(data, out, *more) -> int:
    return stock.vaswani(*command(data, out, *changed(SMALL_BATCHES, more)))


def left(out) -> dict:
    """Return name and content of the files, except hidden ones and the report."""
    found = [path for path in sorted(out.iterdir()) if not path.name.startswith(".")]
    assert sorted(path.name for path in found) == LEFT
    return {path.name: path.read_bytes() for path in found if path.suffix != ".json"}


def report(out) -> dict:
    return json.loads((out / "test.json").read_text())


def in_workers(monkeypatch, act) -> None:
    """Let every process but this one ``act`` before each search."""
    here = os.getpid()

    def search_batch(self, net_input):
        if os.getpid() != here:
            act()
        return SEARCH(self, net_input)

    monkeypatch.setattr(VaswaniSequenceGenerator, "search_batch", search_batch)


def in_a_fork(arguments, before) -> int:
    """Return the exit code of a command line in a process of its own; if negative, the signal."""

    def run():
        before()
        os._exit(stock.vaswani(*arguments))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    return process.exitcode


def wait_until_gone(pids: Path, count: int) -> None:
    """Wait until the file has ``count`` numbers of processes, and all have ended."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        numbers = pids.read_text().split() if pids.exists() else []
        states = [Path(f"/proc/{number}/stat") for number in numbers]
        alive = [s for s in states if s.exists() and s.read_text().split()[2] != "Z"]
        if len(numbers) >= count and not alive:
            return
        time.sleep(0.05)
    pytest.fail(f"still alive: {alive}")


def noted(pids: Path) -> None:
    with open(pids, "a", encoding="utf-8") as stream:
        stream.write(f"{os.getpid()}\n")


# --- the same translations ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [["--nbest", "2"], ["--length-penalty", "gnmt", "--lenpen", "0.6"]]
)
def test_the_same_to_the_last_digit_in_any_number_of_processes(more, data, tmp_path):
    """The log too, which holds each score."""
    outs = [tmp_path / str(count) for count in (1, 2, 3)]
    for out in outs:
        assert generate(data, out, "--workers", out.name, *more) == 0
        assert report(out)["workers"] == int(out.name)
    one, two, three = map(left, outs)
    assert one == two == three
    assert len(set(one["test.hyp"].splitlines())) > 1
    assert len({report(out)["key"] for out in outs}) == 1, "none is decoded again"
    assert not multiprocessing.active_children()


def test_threads_of_this_process_are_no_matter(data, tmp_path):
    """They do not hang a process that is forked, and there are as many afterwards."""
    torch.set_num_threads(2)
    torch.randn(600, 600) @ torch.randn(600, 600)
    assert generate(data, tmp_path / "2") == 0  # one for each thread
    assert torch.get_num_threads() == 2 and report(tmp_path / "2")["workers"] == 2
    assert generate(data, tmp_path / "1", "--workers", "1") == 0
    assert left(tmp_path / "1") == left(tmp_path / "2")


# --- how many processes -------------------------------------------------------------------------


def test_no_more_processes_than_batches(data, tmp_path):
    """fairseq makes two of 20 sentences: 16, and what is left."""
    torch.set_num_threads(8)
    assert stock.vaswani(*command(data, tmp_path / "out")) == 0
    assert report(tmp_path / "out")["workers"] == 2


# --- what ends it -------------------------------------------------------------------------------


def fail_with(error):
    def act():
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed"),
        (fail_with(FloatingPointError("the scores are NaN")), "checkpoint_last.pt"),
        (fail_with(ConfigError("too few words")), "too few words"),
        (fail_with(MemoryError()), "memory"),
    ],
    ids=["killed", "NaN", "option", "memory"],
)
def test_an_error_in_a_process_ends_all_and_leaves_nothing(
    act, named, data, tmp_path, monkeypatch, capsys
):
    in_workers(monkeypatch, act)
    assert generate(data, tmp_path / "out", "--workers", "2") == 1
    error = capsys.readouterr().err
    assert named in error and error.count("\n") == 1, "a sentence, without a traceback"
    assert not list((tmp_path / "out").iterdir())
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_all_processes(number, code, data, tmp_path, monkeypatch):
    """Ctrl-C goes to all processes of the terminal, here of the session; they would go on."""
    pids = tmp_path / "pids"

    def interrupt():
        noted(pids)
        time.sleep(0.5)
        if pids.read_text().split()[0] != str(os.getpid()):
            pass  # once is enough
        elif number == signal.SIGINT:
            os.killpg(0, number)
        else:
            os.kill(os.getppid(), number)
        time.sleep(90)
        (tmp_path / "woke").touch()

    in_workers(monkeypatch, interrupt)
    more = [*SMALL_BATCHES, "--workers", "2"]
    assert in_a_fork(command(data, tmp_path / "out", *more), os.setsid) == code
    wait_until_gone(pids, 1)
    assert not (tmp_path / "woke").exists()
    assert not list((tmp_path / "out").iterdir())
