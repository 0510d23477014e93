"""scripts/setup.sh: which Python it takes, when it works, what it says. No downloads: the Pythons,
the compilers and pip are small stand-ins on a PATH of their own."""

import os
import re
import runpy
import shutil
import subprocess
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any, Dict, List

import pytest
import setuptools

ROOT = Path(__file__).resolve().parents[2]
BASH = shutil.which("bash")
TOOLS = ("bash", "cat", "chmod", "cksum", "cut", "dirname", "flock", "grep", "ls", "mkdir")
TOOLS += ("mv", "rm", "sed", "sleep")

# Answers what setup.sh asks of a Python; `-m venv` copies it, `-m pip` notes what it was told.
FAKE_PYTHON = r"""#!{bash}
if [ "$1" = -c ]; then
    case $2 in
    *ensurepip*) echo "{version} {headers} {path}" ;;
    *) echo {version} ;;
    esac
elif [ "$2" = venv ]; then
    mkdir -p "$3/bin" && cat "$0" >"$3/bin/python" && echo "#!$3/bin/python" >"$3/bin/pip"
    chmod +x "$3/bin/python"
elif [ "$2" = pip ]; then
    shift 3
    echo "$*" >>"{calls}"
    given="CPPFLAGS=${{CPPFLAGS:-}} CUDA_HOME=${{CUDA_HOME-unset}}"
    case "$*" in *fairseq*) echo "$given" >>"{calls}.environment" ;; esac
    case "$*" in *"${{KILLED_AT:-nothing}}"*) kill -9 $PPID && exit 9 ;; esac
    sleep "${{PIP_TAKES:-0}}"
    case "$*" in *fairseq*) PIP_SAYS=${{PIP_SAYS_OF_FAIRSEQ:-}} ;; esac
    if [ -n "${{PIP_SAYS:-}}" ]; then echo "$PIP_SAYS" >&2 && exit 1; fi
    bin=$(dirname "$0")
    case "$*" in *fairseq*) echo >"$bin/fairseq-train" && chmod +x "$bin/fairseq-train" ;; esac
    case "$*" in *-e*) echo >"$bin/vaswani" && chmod +x "$bin/vaswani" ;; esac
else # does the stack import? Not if somebody marked it damaged.
    [ ! -e "$(dirname "$0")/damaged" ]
fi
"""


class Machine:
    """A checkout and a PATH that hold only what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkout = folder / "check out"  # a space, since folders have them
        self.bin = folder / "bin"
        self.calls_file = folder / "pip-calls"
        self.bin.mkdir()
        for tool in TOOLS:
            path = shutil.which(tool)
            if path:
                (self.bin / tool).symlink_to(path)
        for tool in ("cc", "c++"):
            self.script(self.bin / tool, "true")
        self.script(self.bin / "uname", "echo Linux x86_64")
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copytree(ROOT / "constraints", self.checkout / "constraints")
        shutil.copy(ROOT / "setup.py", self.checkout)
        shutil.copy(ROOT / "scripts/setup.sh", self.checkout / "scripts")

    def script(self, path: Path, body: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body if body.startswith("#!") else f"#!{BASH}\n{body}\n")
        path.chmod(0o755)
        return path

    def python(self, version: str, name: str = "", headers: str = "headers") -> Path:
        path = self.bin / (name or f"python{version}")
        body = FAKE_PYTHON.format(
            bash=BASH, version=version, headers=headers, path=path, calls=self.calls_file
        )
        return self.script(path, body)

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        environment = {"PATH": str(self.bin), "HOME": str(self.folder), **variables}
        command = [str(self.checkout / "scripts/setup.sh"), *arguments]
        return subprocess.Popen(command, env=environment, text=True, stdout=PIPE, stderr=PIPE)

    def run(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=30)
        return subprocess.CompletedProcess([], process.returncode, out, err)

    def calls(self) -> List[str]:
        """What pip was told since the last time somebody asked."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.write_text("")
        return lines


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refusal(result: Any) -> str:
    """The sentence a failed run ends with."""
    assert result.returncode == 1, result
    lines = result.stderr.strip().splitlines()
    assert lines[-1].startswith("setup: ")
    return lines[-1]


@pytest.mark.parametrize(
    ("there", "taken"),
    [("3.10 3.11 3.12", "3.11"), ("3.10 3.12", "3.12"), ("3.10 3.13", "3.10")],
)
def test_prefers_the_modern_stack(machine: Machine, there: str, taken: str) -> None:
    for version in there.split():
        machine.python(version)
    assert machine.run("--find").stdout.split()[0] == taken


def test_a_shim_that_exists_and_fails_is_passed_over(machine: Machine) -> None:
    machine.script(machine.bin / "python3.11", "echo 'python3.11: command not found' >&2; exit 127")
    own = machine.python("3.11", "../.pyenv/versions/3.11.7/bin/python")
    assert machine.run("--find").stdout.split() == ["3.11", str(own)]


def test_a_python3_of_a_supported_version_will_do(machine: Machine) -> None:
    found = machine.python("3.12", "python3")
    assert machine.run("--find").stdout.split() == ["3.12", str(found)]


def test_no_supported_python(machine: Machine) -> None:
    machine.python("3.9", "python3")
    message = refusal(machine.run())
    assert "no Python" in message and "3.11 3.12 3.10" in message and "PYTHON=" in message
    assert not (machine.checkout / ".venv").exists()


def test_a_python_that_is_too_new_is_named(machine: Machine) -> None:
    """What a new system has alone; and the version by itself, which is no command."""
    machine.python("3.13", "python3")
    message = refusal(machine.run())
    assert "python3 is Python 3.13, but fairseq runs on 3.10, 3.11 and 3.12 only" in message
    message = refusal(machine.run(PYTHON="3.13"))
    assert "PYTHON=3.13: fairseq runs on Python 3.10, 3.11 and 3.12 only" in message


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_an_unsupported_python_that_was_named(machine: Machine, version: str) -> None:
    named = machine.python(version)
    message = refusal(machine.run(PYTHON=str(named)))
    assert f"is Python {version}" in message and "3.10, 3.11 and 3.12" in message


def test_a_named_python_that_does_not_run(machine: Machine) -> None:
    machine.python("3.11")
    assert "PYTHON=/nowhere/python does not run" in refusal(machine.run(PYTHON="/nowhere/python"))


def test_no_compiler(machine: Machine) -> None:
    machine.python("3.11")
    (machine.bin / "c++").unlink()
    message = refusal(machine.run())
    assert "no C++ compiler" in message and "apt install g++" in message
    assert machine.calls() == []  # said before anything is downloaded


def test_no_headers(machine: Machine) -> None:
    machine.python("3.11", headers="bare")
    message = refusal(machine.run())
    assert "Python.h" in message and "python3.11-dev" in message


def test_python_312_needs_no_compiler(machine: Machine) -> None:
    for version in ("3.11", "3.12"):
        machine.python(version)
    (machine.bin / "cc").unlink()
    assert "ready" in machine.run().stderr
    assert machine.run("--find").stdout.split()[0] == "3.12"


def test_an_error_of_pip_ends_the_set_up(machine: Machine) -> None:
    machine.python("3.11")
    failed = machine.run(PIP_SAYS="ERROR: No matching distribution found for torch")
    assert "pip could not install torch, as it says above" in refusal(failed)
    assert "No matching distribution" in failed.stderr
    assert "ready" in machine.run().stderr  # and when the network is back it goes on


def test_modern_and_official_are_installed_differently(machine: Machine) -> None:
    machine.python("3.11")
    machine.python("3.10")
    assert machine.run().returncode == 0
    fairseq = [call for call in machine.calls() if "fairseq" in call]
    assert fairseq == ["--no-build-isolation fairseq-fixed --no-deps"]
    assert machine.run(PYTHON="3.10", VENV="other").returncode == 0
    calls = machine.calls()
    assert calls[0] == "pip<24.1"
    assert [call for call in calls if "fairseq" in call] == ["fairseq --no-deps"]
    assert calls[-1].endswith(".[official,text,plots,export,dev]")


def test_fairseq_is_compiled_without_debugging_information(machine: Machine) -> None:
    """A quarter of the time is saved; the user's own flags come later, so they decide."""
    machine.python("3.11")
    assert machine.run(CPPFLAGS="-g3 -Ihere").returncode == 0
    lines = Path(f"{machine.calls_file}.environment").read_text().splitlines()
    assert lines == ["CPPFLAGS=-g0 -g3 -Ihere CUDA_HOME=unset"]


def test_fairseq_is_compiled_where_cuda_is_loaded(machine: Machine) -> None:
    """With CUDA_HOME, fairseq-fixed builds extensions whose sources are not in its sdist."""
    machine.python("3.11")
    assert machine.run(CUDA_HOME="/usr/local/cuda").returncode == 0
    assert "CUDA_HOME=unset" in Path(f"{machine.calls_file}.environment").read_text()


def test_a_fairseq_that_does_not_compile_ends_the_set_up(machine: Machine) -> None:
    machine.python("3.11")
    said = refusal(machine.run(PIP_SAYS_OF_FAIRSEQ="ERROR: no compiler"))
    assert "could not install fairseq-fixed" in said
    assert not (machine.checkout / ".venv/setup.stamp").exists()


@pytest.mark.parametrize("stack", ["modern", "official"])
def test_torchaudio_is_not_installed(stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq requires it, imports it only for speech, and no release of it fits torch 2.13."""
    given: Dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: given.update(keywords))
    runpy.run_path(str(ROOT / "setup.py"))
    needs = given["extras_require"][stack]
    assert not [name for name in needs if name.startswith(("torchaudio", "fairseq"))]
    assert "torchaudio" not in (ROOT / "constraints" / f"{stack}.txt").read_text()


def test_nothing_changed_nothing_done(machine: Machine) -> None:
    machine.python("3.11")
    assert machine.run().returncode == 0
    assert machine.calls()
    began, result = time.monotonic(), machine.run()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert machine.calls() == []
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("name", ["constraints/modern.txt", "setup.py"])
def test_a_change_of_what_is_installed_is_installed(machine: Machine, name: str) -> None:
    machine.python("3.11")
    machine.run()
    machine.calls()
    with open(machine.checkout / name, "a") as stream:
        stream.write("# changed\n")
    assert "ready" in machine.run().stderr and machine.calls()


@pytest.mark.parametrize("step", ["torch", "fairseq-fixed", "-e"])
def test_killed_and_run_again(machine: Machine, step: str) -> None:
    machine.python("3.11")
    assert machine.run(KILLED_AT=step).returncode == -9
    assert "ready" in machine.run().stderr
    assert (machine.checkout / ".venv/bin/vaswani").exists()


@pytest.mark.parametrize("part", ["bin", "bin/python", "bin/fairseq-train"])
def test_what_was_deleted_comes_back(machine: Machine, part: str) -> None:
    machine.python("3.11")
    machine.run()
    path = machine.checkout / ".venv" / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert machine.run().returncode == 0
    assert path.exists()


def test_a_moved_checkout_gets_a_new_environment(machine: Machine) -> None:
    machine.python("3.11")
    machine.run()
    moved = machine.checkout = machine.checkout.rename(machine.folder / "moved")
    assert machine.run().returncode == 0
    assert (moved / ".venv/bin/pip").read_text() == f"#!{moved}/.venv/bin/python\n"


def test_a_damaged_environment_is_made_again(machine: Machine) -> None:
    machine.python("3.11")
    machine.run()
    damaged = machine.checkout / ".venv/bin/damaged"
    damaged.touch()
    (machine.checkout / ".venv/setup.stamp").unlink()  # as an interrupted run leaves it
    assert "making it again" in machine.run().stderr
    assert not damaged.exists()


def test_a_folder_of_the_users_is_never_removed(machine: Machine) -> None:
    machine.python("3.11")
    thesis = machine.folder / "work/thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("years")
    assert "is not an environment" in refusal(machine.run(VENV=str(thesis.parent)))
    assert thesis.read_text() == "years"


@pytest.mark.skipif(shutil.which("flock") is None, reason="the lock needs flock")
def test_two_at_once_install_once(machine: Machine) -> None:
    machine.python("3.11")
    both = [machine.start(PIP_TAKES="0.2") for _ in range(2)]
    for process in both:
        process.communicate(timeout=30)
        assert process.returncode == 0
    assert len([call for call in machine.calls() if "fairseq-fixed" in call]) == 1


@pytest.mark.parametrize("stack", ["modern", "official"])
def test_every_version_is_pinned(stack: str) -> None:
    lines = (ROOT / f"constraints/{stack}.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9.]*", line)] == []
    assert len({pin.split("==")[0].lower() for pin in pins}) == len(pins)


def test_installing_the_plugin_never_brings_a_fairseq(monkeypatch: pytest.MonkeyPatch) -> None:
    given: Dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    assert given["install_requires"] == []
    assert {"modern", "official", "text", "plots", "dev"} <= set(given["extras_require"])


@pytest.mark.parametrize("target", ["demo", "test"])
def test_demo_and_test_set_up_first(target: str) -> None:
    clean = {"PATH": os.environ["PATH"]}  # this test may itself run under make
    planned = subprocess.check_output(["make", "-n", target], cwd=ROOT, env=clean, text=True)
    assert planned.splitlines()[0] == "scripts/setup.sh"


@pytest.mark.parametrize("script", ["train", "evaluate"])
def test_a_script_without_the_environment_says_how_to_have_it(script: str) -> None:
    command = ["/bin/bash", str(ROOT / "scripts" / f"{script}.sh"), "demo_en_de"]
    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 1 and "source .venv/bin/activate" in done.stderr
    assert done.stderr.count("\n") == 1
