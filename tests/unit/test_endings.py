"""How a command ends: interrupted, terminated, unread, without rights or room; no traceback."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from omegaconf.errors import ConfigKeyError

from vaswani import cli
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


@pytest.mark.parametrize(
    ("number", "code", "turned"), [("SIGINT", 130, True), ("SIGTERM", 143, False)]
)
def test_a_signal_during_imports_is_one_line(number, code, turned):
    done = in_a_process("-c", DURING_IMPORT.format(number=number, turned=turned))
    assert done.returncode == code
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("vaswani plan: ")


@pytest.mark.parametrize("saved", [True, False])
def test_the_same_command_continues_only_where_something_is_saved(saved, monkeypatch, capsys):
    def interrupted(options):
        signals.set_resumable(lambda: saved)
        raise KeyboardInterrupt

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", interrupted)
    assert cli.main(["plugin-dir"]) == 130
    assert ("the same command continues" in capsys.readouterr().err) == saved


def test_an_output_that_nobody_reads_ends_in_silence():
    """As in ``vaswani … | head -1``: the code that shells give."""
    reading, writing = os.pipe()
    os.close(reading)
    options = {"capture_output": False, "stdout": writing, "stderr": -1}
    environ = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = in_a_process("-m", "vaswani", "train", "--help", env=environ, **options)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_standard_output_on_a_full_disk_is_one_sentence():
    with open("/dev/full", "w") as full:
        options = {"capture_output": False, "stdout": full, "stderr": -1}
        done = in_a_process("-m", "vaswani", "plugin-dir", **options)
    assert done.returncode == 1 and done.stderr.count("\n") == 1


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


@pytest.mark.parametrize("closing", [">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_the_null_device(closing, tmp_path):
    """For this process, for C libraries and for child processes; nothing lands in another file."""
    opened = [f"{name}/dev/null" for name in ("<", ">", "2>") if f"{name}&-" not in closing.split()]
    (tmp_path / "closed.py").write_text(CLOSED, encoding="utf-8")
    command = " ".join([sys.executable, "closed.py", closing, *opened])
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C"}
    assert subprocess.run(command, shell=True, cwd=tmp_path, env=environ).returncode == 0


PROBLEMS = {
    "x.yaml": IsADirectoryError(errno.EISDIR, "Is a directory", "x.yaml"),
    "allocate 3 TiB": MemoryError("Unable to allocate 3 TiB"),
    "smaller batches": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried\nto"),
    "size mismatch": RuntimeError("Error(s) in loading\n\tsize mismatch"),
    "Key 'a'": ConfigKeyError("Key 'a' not in 'B'\n    full_key: a"),
}


@pytest.mark.parametrize("named", PROBLEMS)
def test_an_error_of_the_system_is_one_sentence(named, monkeypatch, capsys):
    def refused(args):
        raise PROBLEMS[named]

    monkeypatch.setattr("vaswani.commands.plugin_dir.run", refused)
    assert cli.main(["plugin-dir"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and named in lines[0]


def test_a_failed_write_names_the_file_that_a_user_knows(tmp_path, monkeypatch):
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


# what torchrun is to its processes: it starts one in a session of its own, and waits
LAUNCHER = """
import os, subprocess, sys, time
child = "import sys, time; from vaswani.common import signals; signals.end_with_parent()"
child += "; print('started', flush=True); time.sleep(60)"
environment = {**os.environ, "TORCHELASTIC_RUN_ID": "1"}
process = subprocess.Popen([sys.executable, "-c", child], env=environment, start_new_session=True)
process.wait()
"""


def test_a_process_of_torchrun_ends_when_torchrun_was_killed():
    """It kept the run's lock for over an hour."""
    command = [sys.executable, "-c", LAUNCHER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as launcher:
        assert launcher.stdout
        assert launcher.stdout.readline() == "started\n"
        launcher.kill()
        begun = time.monotonic()
        launcher.stdout.read()  # until the child, which has the other end, has ended
        assert time.monotonic() - begun < 30
