"""How a command ends: interrupted, terminated, unread, without rights or room; no traceback."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

import pytest
from omegaconf.errors import ConfigKeyError

from vaswani import cli
from vaswani.commands import reproduce
from vaswani.common import signals
from vaswani.common.files import atomic_write

ROOT = Path(__file__).resolve().parents[2]

# what comes while torch is imported: as it is, or as an error that a C extension makes of it
DURING_IMPORT = """
import os, signal, sys, time
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            try:
                os.kill(os.getpid(), signal.{number})
                time.sleep(5)
            except KeyboardInterrupt:
                if {turned}:
                    raise ImportError("initialization failed") from None
                raise
sys.meta_path.insert(0, Finder())
from vaswani.cli import main
sys.exit(main(["plan", "demo_en_de", "--gpus", "1"]))
"""


def in_a_process(*command: str, **options) -> "subprocess.CompletedProcess[str]":
    options = {"capture_output": True, **options}
    return subprocess.run([sys.executable, *command], text=True, cwd=ROOT, timeout=60, **options)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")],
)
def test_a_signal_during_imports_is_one_line(number, code, message, turned):
    done = in_a_process("-c", DURING_IMPORT.format(number=number, turned=turned))
    assert done.returncode == code
    assert done.stderr.strip() == f"vaswani plan: {message}."


@pytest.mark.parametrize("saved", [True, False])
def test_the_same_command_continues_only_where_something_is_saved(saved, monkeypatch, capsys):
    """As the verb says; the next command starts without what this one said."""

    def interrupted(options):
        signals.continues_if(lambda: saved)
        raise KeyboardInterrupt

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", interrupted)
    assert cli.main(["plugin-dir"]) == 130
    continues = "; the same command continues" if saved else ""
    assert capsys.readouterr().err == f"\nvaswani plugin-dir: interrupted{continues}.\n"
    assert signals.continue_hint() == continues
    with signals.signals_as_interrupts():
        assert signals.continue_hint() == ""


@pytest.mark.parametrize("argv", [["plugin-dir"], ["--help"], ["train", "--help"]])
def test_nobody_reads_the_output(argv):
    """As in ``vaswani … | head -1``: silence, and the code that shells give."""
    reading, writing = os.pipe()
    os.close(reading)
    environ = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = in_a_process(
        "-m", "vaswani", *argv, env=environ, capture_output=False, stdout=writing, stderr=-1
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_standard_output_on_a_full_disk():
    with open("/dev/full", "w") as full:
        done = in_a_process(
            "-m", "vaswani", "plugin-dir", capture_output=False, stdout=full, stderr=-1
        )
    assert done.returncode == 1
    assert done.stderr == "vaswani plugin-dir: writing failed: No space left on device\n"


CLOSED = """
import subprocess, sys
from vaswani import cli
cli.open_standard_streams()
with open("written", "w") as file:  # it does not get the number of a closed stream
    assert file.fileno() > 2
    for stream in (sys.stdout, sys.stderr):
        print("\u00fc", file=stream, flush=True)
    subprocess.run("printf x >&2; printf x; cat", shell=True, check=True)
assert not open("written").read() and sys.stdin.isatty() is False
"""


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_the_null_device(closing, tmp_path):
    """For this process, for C libraries and for child processes; nothing lands in another file."""
    opened = [f"{name}/dev/null" for name in ("<", ">", "2>") if f"{name}&-" not in closing.split()]
    (tmp_path / "closed.py").write_text(CLOSED, encoding="utf-8")
    command = " ".join([sys.executable, "closed.py", closing, *opened])
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C"}
    assert subprocess.run(command, shell=True, cwd=tmp_path, env=environ).returncode == 0


def test_a_closed_output_is_no_error():
    command = f"{sys.executable} -m vaswani plugin-dir >&-"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


PROBLEMS: List[tuple] = [
    (OSError(errno.EROFS, "Read-only file system", "/ro/runs"), "/ro/runs: Read-only file system"),
    (IsADirectoryError(errno.EISDIR, "Is a directory", "x.yaml"), "x.yaml: Is a directory"),
    (MemoryError("Unable to allocate 3 TiB"), "there is not enough memory: Unable to allocate 3"),
    (MemoryError(), "there is no memory left"),
    (
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried\nto allocate 9 bytes"),
        "there is not enough memory (smaller batches need less): DefaultCPUAllocator",
    ),
    (TimeoutError("timed out"), "timed out"),
    (RuntimeError("Error(s) in loading\n\tsize mismatch"), "Error(s) in loading size mismatch"),
    (ConfigKeyError("Key 'a' not in 'B'\n    full_key: a"), "Key 'a' not in 'B' full_key: a"),
]


@pytest.mark.parametrize(("error", "message"), PROBLEMS)
def test_what_the_system_refuses_is_one_sentence(error, message, monkeypatch, capsys):
    def refused(args):
        raise error

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", refused)
    assert cli.main(["plugin-dir"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"vaswani plugin-dir: {message}")


def test_what_cannot_be_written_has_the_name_that_a_user_knows(tmp_path, monkeypatch):
    """Not that of the file that is written aside; a full disk gives no name at all."""

    def refuse(**names):
        raise PermissionError(errno.EACCES, "Permission denied", "/ro/.config.yaml.ab12_d34.part")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "config.yaml"
    for module, name, broken in ((tempfile, "mkstemp", refuse), (os, "fsync", full)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, broken)
            with pytest.raises(OSError) as stopped, atomic_write(path) as stream:
                stream.write("x")
        assert stopped.value.filename == str(path)
        assert list(tmp_path.iterdir()) == []


def test_a_log_on_a_full_disk_is_no_stack_trace(capsys):
    """fairseq's messages go on into it during a training."""
    import logging

    from vaswani.commands.train import log_file

    handler = log_file(Path("/dev/full"), logging.INFO)
    with pytest.raises(OSError) as stopped:
        handler.handle(logging.LogRecord("x", logging.INFO, "x", 1, "message", None, None))
    assert stopped.value.filename == "/dev/full"
    assert capsys.readouterr().err == ""


def test_handlers_are_put_back_and_workers_end_by_sigterm(tmp_path):
    """A forked worker that its pool terminates must not print a traceback of ours."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with signals.signals_as_interrupts():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_what_is_ignored_stays_ignored():
    """``nohup``, and commands in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals.signals_as_interrupts() as received:
            os.kill(os.getpid(), signal.SIGINT)
        assert received == []
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_reproduce_waits_for_the_stage_it_began(tmp_path, monkeypatch):
    """A stage may be saving; one that did not hear of it is told, and waited for."""
    monkeypatch.setattr(reproduce, "PATIENCE", 0.1)
    told = tmp_path / "told"
    stage = (
        "import signal, sys, time\n"
        f"def end(*_): time.sleep(0.3); open({str(told)!r}, 'w').close(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "time.sleep(30)"
    )
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(KeyboardInterrupt):
            reproduce.run_command([sys.executable, "-c", stage])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert told.exists()


def test_reproduce_ends_the_stage_it_began_if_it_is_told_twice(tmp_path):
    """Also one that does not listen."""
    begun, told = tmp_path / "begun", []
    stage = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"os.symlink(str(os.getpid()), {str(begun)!r})\n"
        "time.sleep(60)"
    )

    def tell(*_):
        if begun.is_symlink() and len(told) < 2:
            told.append(1)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, tell)
    signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            reproduce.run_command([sys.executable, "-c", stage])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not Path(f"/proc/{os.readlink(begun)}").exists()
