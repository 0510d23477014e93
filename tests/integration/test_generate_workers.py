"""``vaswani generate --workers N``: the same translations, and what ends one process ends all."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from tests import stock
from tests.integration.test_translations import LEFT, QUICK
from transformer_plugin.config import ConfigError
from transformer_plugin.search.generator import VaswaniSequenceGenerator
from vaswani import cli
from vaswani.commands import generate as generate_verb
from vaswani.decoding import fairseq_engine
from vaswani.decoding.fairseq_engine import search_processes

SMALL_BATCHES = ["--max-tokens", "40"]  # four of them
SEARCH = VaswaniSequenceGenerator.search_batch


@pytest.fixture(scope="module")
def data(tiny_data_bin, trained, tmp_path_factory) -> Path:
    """A folder with a checkpoint and its data, to be decoded into folders of its own."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "checkpoints").mkdir()
    shutil.copy(trained, folder / "checkpoints")
    shutil.copytree(tiny_data_bin, folder / "data-bin")
    return folder


def command(data, out, *more):
    model = data / "checkpoints" / "checkpoint_last.pt"
    given = ["generate", str(model), "--data", str(data / "data-bin"), "--out", str(out)]
    return [*given, *QUICK, *more]


def generate(data, out, *more) -> int:
    with stock.fresh_process():
        return cli.main(command(data, out, *SMALL_BATCHES, *more))


def left(out) -> dict:
    """Name and content of the files, but for hidden ones and the report."""
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


def in_a_fork(arguments, message, before) -> int:
    """The exit code of a command in a process of its own, which calls ``before`` first."""

    def run():
        before()
        with open(message, "w", encoding="utf-8") as sys.stderr:
            sys.exit(cli.main(arguments))

    process = multiprocessing.get_context("fork").Process(target=run)
    with stock.fresh_process():
        process.start()
        process.join()
    return process.exitcode


def wait_until_gone(pids: Path, count: int) -> None:
    """Until no process is alive whose number is in the file, which has so many at least."""
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


@pytest.mark.parametrize("search", ["ours", "n-best", "gnmt"])
def test_the_same_to_the_last_digit_in_any_number_of_processes(search, data, tmp_path, monkeypatch):
    """The log too, which holds each score; few at a time, so that batches come out of order."""
    more = {
        "n-best": ["--nbest", "2"],
        "gnmt": ["--length-penalty", "gnmt", "--lenpen", "0.6"],
    }.get(search, [])
    monkeypatch.setattr(fairseq_engine, "BATCHES_AT_A_TIME", 3)
    here, seen = os.getpid(), []
    in_this_process = VaswaniSequenceGenerator._generate

    def _generate(self, *args, **kwargs):
        seen.append(os.getpid())
        return in_this_process(self, *args, **kwargs)

    monkeypatch.setattr(VaswaniSequenceGenerator, "_generate", _generate)
    for count in (1, 2, 3):
        assert generate(data, tmp_path / str(count), "--workers", str(count), *more) == 0
        assert report(tmp_path / str(count))["workers"] == count
    assert len(seen) == 4 and set(seen) == {here}  # of the first alone
    one, two, three = (left(tmp_path / str(count)) for count in (1, 2, 3))
    assert one == two == three
    assert len(one["test.hyp"].splitlines()) == 20 and len(set(one["test.hyp"].splitlines())) > 1
    keys = {report(tmp_path / str(count))["key"] for count in (1, 2, 3)}
    assert len(keys) == 1
    assert not multiprocessing.active_children()


def test_what_was_translated_by_another_number_of_processes_is_not_translated_again(
    data, tmp_path, capsys
):
    assert generate(data, tmp_path / "out", "--workers", "2") == 0
    assert generate(data, tmp_path / "out", "--workers", "1") == 0
    assert "already translated" in capsys.readouterr().err


def test_threads_of_this_process_are_no_matter(data, tmp_path):
    """They do not hang a process that is forked, and there are as many afterwards."""
    torch.set_num_threads(2)
    torch.randn(600, 600) @ torch.randn(600, 600)
    assert generate(data, tmp_path / "2") == 0  # one for each thread
    assert torch.get_num_threads() == 2 and report(tmp_path / "2")["workers"] == 2
    assert generate(data, tmp_path / "1", "--workers", "1") == 0
    assert left(tmp_path / "1") == left(tmp_path / "2")


def test_a_warning_of_the_search_is_logged_once(data, tmp_path, caplog):
    more = ["--length-penalty", "gnmt", "--beam", "8", "--workers", "3"]  # most of the types
    assert generate(data, tmp_path / "out", *more) == 0
    message = [
        r.getMessage() for r in caplog.records if "not --length-penalty gnmt" in r.getMessage()
    ]
    assert len(message) == 1


# --- how many processes -------------------------------------------------------------------------


def test_no_more_processes_than_batches(data, tmp_path):
    """fairseq makes two of 20 sentences: 16, and what is left."""
    torch.set_num_threads(8)
    with stock.fresh_process():
        assert cli.main(command(data, tmp_path / "out")) == 0
    found = report(tmp_path / "out")
    assert found["workers"] == 2 and found["max_tokens"] == 2000


def test_how_many_processes(monkeypatch, capsys):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    assert search_processes(None, on_cpu=True) == 6
    assert search_processes(None, on_cpu=False) == 1
    assert search_processes(1, on_cpu=False) == 1
    assert [search_processes(n, on_cpu=True) for n in (1, 4)] == [1, 4]
    assert search_processes(10**6, on_cpu=True) < 10**5
    assert "--workers 1,000,000 is more than" in capsys.readouterr().err


def test_several_processes_on_a_gpu_are_refused(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    trained_with = generate_verb.trained_with  # the model was trained with common.cpu
    monkeypatch.setattr(
        generate_verb, "trained_with", lambda *_: {**trained_with(*_), "common": {}}
    )
    assert generate(data, tmp_path / "out", "--workers", "2") == 1
    err = capsys.readouterr().err
    assert "--workers 2 is for CPUs: on a GPU one process" in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


# --- what ends it -------------------------------------------------------------------------------


def fail_with(error):
    def act():
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "one of 2 processes was killed"),
        (
            fail_with(FloatingPointError("the scores are NaN")),
            "checkpoint_last.pt: the scores are NaN\n",
        ),
        (fail_with(ConfigError("too few words")), "generate: too few words\n"),
        (fail_with(MemoryError()), "there is no memory left"),
        (fail_with(RuntimeError("DefaultCPUAllocator: can't allocate memory")), "not enough mem"),
    ],
    ids=["killed", "NaN", "option", "memory", "torch's memory"],
)
def test_what_goes_wrong_in_a_process_is_one_sentence(
    act, message, data, tmp_path, monkeypatch, capsys
):
    in_workers(monkeypatch, act)
    assert generate(data, tmp_path / "out", "--workers", "2") == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
    assert not multiprocessing.active_children()


class Odd(Exception):
    """One that cannot be copied to another process."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


@pytest.mark.parametrize("error", [KeyError("a bug"), Odd("a", "bug")], ids=["plain", "odd"])
def test_a_bug_in_a_process_is_shown_with_its_traceback(error, data, tmp_path, monkeypatch):
    in_workers(monkeypatch, fail_with(error))
    with pytest.raises(Exception, match="a bug") as caught:
        generate(data, tmp_path / "out", "--workers", "2")
    assert re.search(r"in one of 2 processes:\n.*search_batch", str(caught.value.__cause__), re.S)
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
    arguments = command(data, tmp_path / "out", *more)
    assert in_a_fork(arguments, tmp_path / "message", os.setsid) == code
    assert len((tmp_path / "message").read_text().strip().splitlines()) == 1
    wait_until_gone(pids, 1)
    assert not (tmp_path / "woke").exists()
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]


def test_a_killed_command_leaves_no_process_behind(data, tmp_path, monkeypatch):
    """They see that nobody takes their results; the next command clears the rest away."""
    pids, parent = tmp_path / "pids", tmp_path / "parent"

    def kill_the_parent():
        noted(pids)
        time.sleep(0.5)
        while os.getppid() == int(parent.read_text()):  # until it has gone: it may take a moment
            os.kill(int(parent.read_text()), signal.SIGKILL)
            time.sleep(0.05)

    in_workers(monkeypatch, kill_the_parent)
    more = [*SMALL_BATCHES, "--workers", "2"]
    arguments = command(data, tmp_path / "out", *more)
    noting = lambda: parent.write_text(str(os.getpid()))  # noqa: E731
    assert in_a_fork(arguments, tmp_path / "message", noting) == -signal.SIGKILL
    wait_until_gone(pids, 2)
    assert len(pids.read_text().split()) == 2  # neither has begun with its second batch
    monkeypatch.undo()
    assert generate(data, tmp_path / "out", "--workers", "2") == 0
    assert len(left(tmp_path / "out")) == 3
