"""scripts/setup.sh and setup.py. ``make check`` runs shellcheck on the script, nox all of it."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import setuptools
import yaml

from scripts import planted_bugs as mutants

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
    lines = (ROOT / f"scripts/constraints/{stack}.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9.]*", line)] == []
    assert len({pin.split("==")[0].lower() for pin in pins}) == len(pins)


def test_pip_brings_neither_fairseq_nor_torchaudio(monkeypatch):
    """fairseq requires torchaudio, imports it only for speech, and none fits torch 2.13."""
    given = {}
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: given.update(keywords))
    runpy.run_path(str(ROOT / "setup.py"))
    needs = [*given["install_requires"]]
    for extra in given["extras_require"].values():
        needs += extra
    assert not [name for name in needs if name.startswith(("torchaudio", "fairseq"))]


def test_the_workflows_run_what_is_there():
    """Each ``make`` has its target, in ci.yml and weekly.yml; the planted bugs are tried weekly."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {}
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        steps = [step for job in jobs.values() for step in job["steps"]]
        commands = [step["run"] for step in steps if "run" in step]
        named = {command.split()[1] for command in commands if command.startswith("make ")}
        if "${{" in named:
            named = set(jobs[path.stem]["strategy"]["matrix"]["target"])
        asked[path.stem] = named
    assert asked["ci"] == {"check", "test", "test-processors"} <= targets
    assert "mutants" in asked["weekly"] <= targets


def test_an_issue_begins_with_a_form():
    """GitHub shows a form only if it can be read: each field has a name of its own and a label."""
    for name in ("bug", "question"):
        text = (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8")
        form = yaml.safe_load(text)
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert form["name"] and form["description"]
        assert len({field["id"] for field in fields}) == len(fields)
        assert all(field["attributes"]["label"] for field in fields)


@pytest.mark.slow
def test_the_first_change_in_contributing_goes_to_red_and_back_to_green(tmp_path):
    """Its lines, but for the clone, the environment and what is a contributor's own."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    green, change, red, back = (line.partition("  #")[0].strip() for line in lines[2:6])
    place = mutants.copy_sources(tmp_path / "sources")
    variables = mutants.environment(place)

    def passes(command: str) -> bool:
        assert command.startswith("python -m pytest ")
        done = subprocess.run(
            [sys.executable, *command.split()[1:]], cwd=place, env=variables, capture_output=True
        )
        assert done.returncode in (0, 1), done.stdout
        return done.returncode == 0

    subprocess.run(change, shell=True, cwd=place, check=True)
    assert not passes(red)
    file = back.removeprefix("git checkout ")
    shutil.copy(ROOT / file, place / file)
    assert passes(green)
