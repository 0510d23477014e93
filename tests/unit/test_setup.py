"""scripts/setup.sh and setup.py. ``make check`` runs shellcheck on the script, nox all of it."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).resolve().parents[2]


def setup(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "PYTHON": sys.executable, **variables}
    command = [str(ROOT / "scripts" / "setup.sh"), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_a_python_of_a_supported_version_is_found():
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert setup("--find", version).stdout.split()[0] == version


@pytest.mark.parametrize("python", ["/nowhere/python", "3.13"])
def test_a_python_that_cannot_be_used_is_named(python, tmp_path):
    done = setup(PYTHON=python, VENV=str(tmp_path / "env"))
    assert done.returncode == 1 and python in done.stderr
    assert not (tmp_path / "env").exists()


def test_a_folder_of_the_users_is_never_replaced_by_an_environment(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    assert setup(VENV=str(tmp_path)).returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("stack", ["modern", "official"])
def test_every_version_is_pinned_once(stack):
    lines = (ROOT / f"constraints/{stack}.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9.]*", line)] == []
    assert len({pin.split("==")[0].lower() for pin in pins}) == len(pins)


def test_pip_brings_neither_fairseq_nor_torchaudio(monkeypatch):
    """fairseq requires torchaudio, imports it only for speech, and none fits torch 2.13."""
    given = {}
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: given.update(keywords))
    runpy.run_path(str(ROOT / "setup.py"))
    assert given["install_requires"] == []
    needs = [name for extra in given["extras_require"].values() for name in extra]
    assert not [name for name in needs if name.startswith(("torchaudio", "fairseq"))]
