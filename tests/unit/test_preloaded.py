"""The Python of tests/preloaded.py does what Python does, in a fork of what has imported torch."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.preloaded import python

pytestmark = pytest.mark.skipif(
    os.environ["OMP_NUM_THREADS"] != "1", reason="with several threads it is Python itself"
)


def run(*arguments, **options):
    return subprocess.run([python(), *arguments], capture_output=True, text=True, **options)


SHOW = """
import json, os, resource, signal, sys
preloaded = "fairseq.trainer" in sys.modules
print(json.dumps([preloaded, __name__, sys.argv[1:], sys.path[:2], os.environ.get("GIVEN"),
    os.getcwd(), sys.stdin.read(), os.umask(0), resource.getrlimit(resource.RLIMIT_FSIZE),
    os.getpid() == os.getpgrp() == os.getsid(0)]))
"""


@pytest.mark.parametrize("kind", ["-c", "-m", "file"])
def test_a_fork_is_what_python_would_be(kind, tmp_path):
    """But for having imported fairseq already."""
    (tmp_path / "show.py").write_text(SHOW)
    what = {"-c": ["-c", SHOW], "-m": ["-m", "show"], "file": ["here/show.py"]}[kind]
    (tmp_path / "here").symlink_to(tmp_path)
    limit = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**7)); "
    limit += "os.umask(0o27); os.execv(sys.argv[1], sys.argv[1:])"
    found = []
    for program in (python(), sys.executable):
        done = subprocess.run(
            [sys.executable, "-c", limit, program, *what, "an argument", "-m"],
            cwd=tmp_path / "here",
            env={**os.environ, "PYTHONPATH": "/a/folder", "GIVEN": "\u00e4 \udcff"},
            input="some text",
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        preloaded, same = done.stdout.split(",", 1)
        found.append((preloaded, same))
    assert [preloaded for preloaded, _ in found] == ["[true", "[false"]
    assert found[0][1] == found[1][1] and "some text" in found[0][1]


@pytest.mark.parametrize("code", ["pass", "sys.exit(3)", "sys.exit('why')", "1 / 0", "os._exit(9)"])
def test_it_ends_as_python_does(code):
    there, here = (
        subprocess.run([program, "-c", f"import os, sys; {code}"], capture_output=True, text=True)
        for program in (python(), sys.executable)
    )
    assert there.returncode == here.returncode
    assert there.stderr.splitlines()[-1:] == here.stderr.splitlines()[-1:]


def test_what_is_printed_last_and_registered_for_the_end_is_there():
    done = run("-c", "import atexit; atexit.register(print, 'the end'); print('before it')")
    assert done.stdout == "before it\nthe end\n"


def test_a_signal_is_passed_on():
    assert run("-c", "import os; os.kill(os.getpid(), 15)").returncode == -signal.SIGTERM
    assert run("-c", "import os; os.kill(os.getpid(), 9)").returncode == -signal.SIGKILL


def test_killed_it_is_gone(tmp_path):
    """Its standard output is closed once the fork has ended."""
    process = subprocess.Popen(
        [python(), "-c", "import time; print('here', flush=True); time.sleep(99)"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"here\n"
    process.kill()
    begun = time.monotonic()
    assert process.communicate() == (b"", None) and time.monotonic() - begun < 50


def test_it_starts_further_ones():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    assert run("-c", code, "import sys; print('torch' in sys.modules)").stdout == "True\n"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY", "PYTHONHASHSEED"])
def test_a_new_interpreter_reads_what_python_and_torch_read_at_their_start(name):
    code = f"import os, sys; print(os.environ['{name}'], 'torch' in sys.modules)"
    assert run("-c", code, env={**os.environ, name: "2"}).stdout == "2 False\n"


def test_a_new_interpreter_has_the_streams_that_are_closed():
    command = f"{python()} -c 'import os, sys; os.write(2, repr(sys.stdout).encode())' >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "None")
