"""The wheel: all of it is in it, and it works in a folder with nothing else."""

import contextlib
import http.server
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("vaswani_transformer", "transformer_check", "transformer_plugin", "vaswani")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
OFFLINE = ["--no-index", "--no-deps"]
BUILT_FROM = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def copied(source: Path, folders: Iterable[str], files: Iterable[str]) -> Path:
    """Copy some of the checkout, because building leaves folders beside the sources."""
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in folders:
        shutil.copytree(ROOT / name, source / name, ignore=leave)
    for name in files:
        (source / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    return source


def wheel_of(source: str | Path, folder: Path) -> Path:
    """Build the wheel of a folder, an sdist or a repository."""
    build = [*PIP, "wheel", *OFFLINE, "--no-build-isolation", "-w", str(folder), str(source)]
    environ = {**os.environ, "no_proxy": "127.0.0.1"}
    done = subprocess.run(build, capture_output=True, text=True, cwd=folder, env=environ)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def make_repository(folder: Path) -> None:
    """Commit the sources of a wheel to a repository that any file server can offer."""
    copied(folder, (*PACKAGES, "configs", "docs", "examples/demo_text"), BUILT_FROM)
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.org"]
    commit = ["commit", "-q", "--no-verify", "--no-gpg-sign", "-m", "All that a wheel is made of"]
    for command in (["init", "-q"], ["add", "--all", "--force"], [*identity, *commit]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    for command in (["gc", "-q"], ["update-server-info"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *args: object) -> None:
        """Print nothing for a request."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine in the block, and yield its URL."""
    handler = partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel that ``pip install "vaswani-transformer @ git+URL"`` installs."""
    folder = tmp_path_factory.mktemp("wheel")
    make_repository(folder / "source")
    with served(folder / "source") as url:
        return wheel_of(f"vaswani-transformer @ git+{url}/.git", folder)


def test_everything_is_in_it_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = set()
    for package in PACKAGES:
        sources = (ROOT / package).rglob("*.py")
        # examples of files to check belong to the checkout
        expected |= {str(path.relative_to(ROOT)) for path in sources if path.parent.name != "known"}
        expected.add(f"{package}/py.typed")  # its types are for type checkers, too (PEP 561)
    page = (ROOT / "vaswani" / "attention_page").glob("page.*")
    others = [*(ROOT / "vaswani").rglob("*.j2"), *(ROOT / "vaswani").rglob("*.yaml")]
    others += [ROOT / "transformer_check" / "explanations.md"]
    expected |= {str(path.relative_to(ROOT)) for path in (*page, *others)}
    for folder in ("configs", "docs", "examples/demo_text"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        expected |= {f"vaswani/{path.relative_to(ROOT)}" for path in files}
    assert names == expected


@pytest.mark.slow
def test_a_model_is_checked_from_the_wheel_alone(wheel, tmp_path):
    """Its packages and no others: what moved was left out of a wheel once before."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-m", "vaswani"]
    check = [*command, "check", "--template"]
    template = subprocess.run(check, env=environ, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "mine.py").write_bytes(template.stdout)
    card = subprocess.run(
        [*command, "check", "mine.py"], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    assert card.returncode == 0, card.stderr
    assert "0 errors, 0 differences, 0 variants" in card.stdout


def test_pip_installs_it_and_replaces_nothing(wheel):
    """What it requires is here, with any torch from 2.2 on, and stays as it is; so does fairseq."""
    install = [*PIP[:-1], "install", "--dry-run", "--no-index", "--find-links", wheel.parent, wheel]
    environ = {**os.environ, "PIP_CONSTRAINT": "", "PYTHONPATH": ""}
    done = subprocess.run(install, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    planned = [line for line in done.stdout.splitlines() if line.startswith("Would install ")]
    name = "-".join(wheel.name.split("-")[:2]).replace("_", "-")
    assert planned in ([], [f"Would install {name}"]), "nothing where it is installed from here"
    for requirement in ("torch", "numpy", "safetensors"):
        assert f"Requirement already satisfied: {requirement}" in done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_the_sdist_has_all_that_the_wheel_is_made_of(wheel, tmp_path):
    """All that MANIFEST.in names, too, and no records; its wheel is the same, byte for byte."""
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines]
    folders = [line[1] for line in words if line[0] == "graft"]
    included = [line[1:] for line in words if line[0] == "include"]
    files = [name for names in included for name in names]
    source = copied(tmp_path / "source", sorted({*folders, *PACKAGES}), [*BUILT_FROM, *files])
    make = [sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)]
    subprocess.run(make, check=True, capture_output=True, cwd=source)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert contents(wheel_of(sdist, tmp_path)) == contents(wheel)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*folders, *files, ".ci/run", "tests/integration/test_wheel.py"} <= names
    assert [name for name in names if re.search("/records/|^benchmarks/results/", name)] == []


USE = """
python -m pip check || true
vaswani --version
vaswani prepare demo_en_de --workers 1
vaswani new mine --data data/demo_en_de
vaswani train demo_en_de optimization.max_update=5
vaswani pack demo_en_de
vaswani check --template > mine.py
vaswani check mine.py
echo "The meeting is on the 3rd of March 1987." | vaswani translate runs/demo_en_de/model
"""


@pytest.mark.slow
def test_the_pages_commands_install_it_without_a_checkout(wheel, tmp_path):
    """In an empty environment, by pip's own index, with the pinned versions; then the demo's verbs.

    pip caches the fairseq that it compiles: after 'make setup' this takes a minute or two.
    """
    stack = "official" if sys.version_info < (3, 11) else "modern"
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    found = re.search(rf"# {stack}, .*\n((?:.*pip install .*\n)+)", page)
    assert found and f"{wheel.name}[{stack},text,plots,export]" in found[1]
    shutil.copy(wheel, tmp_path)
    shutil.copy(ROOT / "scripts" / "constraints" / f"{stack}.txt", tmp_path / "pins.txt")
    base = getattr(sys, "_base_executable", sys.executable)
    lines = ["set -e", f"'{base}' -m venv env", "source env/bin/activate", found[1], USE]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env={**environ, "PIP_CONSTRAINT": "pins.txt", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
    )
    if re.search("NewConnectionError|name resolution|No matching distribution", done.stderr):
        pytest.skip("pip reaches no index that has it all")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "INFO" not in done.stderr  # fairseq: of packages that it does not need
    said = done.stdout.splitlines()
    # fairseq requires torchaudio, and imports it only for speech
    missing = [line for line in said if " requires " in line]
    assert [line for line in missing if "torchaudio" not in line] == [] and said[-1]
    assert f"vaswani {wheel.name.split('-')[1]}" in said


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.10", "3.13", "3.14"])
def test_the_extra_translate_needs_no_compiler_and_translates(version, wheel, tmp_path):
    """In an empty environment of the oldest Python and of those that fairseq does not support."""
    python = shutil.which(f"python{version}")
    if not python or subprocess.run([python, "-V"], capture_output=True).returncode:
        pytest.skip(f"no python{version}")
    lines = [
        f"'{python}' -m venv env",
        f"env/bin/python -m pip install -q --only-binary :all: '{wheel}[translate]'",
        f"echo 'one two' | env/bin/vaswani translate '{ROOT}/models/demo_en_de'",
    ]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    shutil.rmtree(tmp_path / "env", ignore_errors=True)  # gigabytes
    if re.search("NewConnectionError|name resolution|No matching distribution", done.stderr):
        pytest.skip("pip reaches no index that has it all")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1, done.stderr[-3000:]
