"""WMT14 from nothing to data-bin, from a server on this machine that offers it in small."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import archives
from vaswani.corpus.binarise import binary_lines

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def www(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("www")
    archives.offer(folder)
    return folder


@pytest.fixture
def server(www):
    server = archives.Server(www)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def manifest(www, server, tmp_path, monkeypatch) -> str:
    """The manifest of the server; the test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return str(archives.manifest(www, server.base, tmp_path / "manifest.yaml"))


def script(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run scripts/prepare_wmt14.sh, with a ``vaswani`` of this Python on PATH."""
    commands = tmp_path / "bin"
    commands.mkdir(exist_ok=True)
    (commands / "vaswani").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m vaswani.cli "$@"\n', encoding="utf-8"
    )
    (commands / "vaswani").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "prepare_wmt14.sh"), *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )


def lines(path: Path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize(("pair", "train"), [("en-de", 360), ("en-fr", 600)])
def test_a_pair_from_nothing_to_data_bin(tmp_path, server, manifest, pair, train):
    """Every archive fetched once, every pair in its place; the second run does nothing."""
    command = [pair, "--manifest", manifest, "--workers", "1"]
    done = script(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    target = pair[-2:]
    folder = tmp_path / "data" / f"wmt14_en_{target}"
    seeds = {"test": "newstest2014", "valid": "newstest2013"}
    for split, part in seeds.items():
        for lang in ("en", target):
            expected = archives.sentences(lang, 20, sum(map(ord, part)))
            assert lines(folder / "text" / f"{split}.{lang}") == expected, "raw, as written"
    english, other = lines(folder / "text" / "train.en"), lines(folder / "text" / f"train.{target}")
    assert len(english) == len(other) == train
    assert english[:120] == archives.sentences("en", 120, sum(map(ord, "europarl-v7")))
    assert other[:120] == archives.sentences(target, 120, sum(map(ord, "europarl-v7")))
    assert "isn &apos;t" in lines(folder / "tok" / "train.en")[0], "Moses' tokens"
    for split, count in (("train", train), ("valid", 20), ("test", 20)):
        for lang in ("en", target):
            index = folder / "data-bin" / f"{split}.{pair}.{lang}.idx"
            assert binary_lines(index) == count
    dictionaries = [(folder / "data-bin" / f"dict.{x}.txt").read_bytes() for x in ("en", target)]
    assert dictionaries[0] == dictionaries[1], "joint (3.4)"
    assert all(wanted is None for _, wanted in server.asked)
    asked = [name for name, _ in server.asked]
    assert len(asked) == len(set(asked)) == (5 if pair == "en-de" else 7)
    server.asked.clear()
    again = script(tmp_path, *command)
    assert again.returncode == 0 and "already prepared" in again.stderr and not server.asked
    assert "made" not in again.stderr
