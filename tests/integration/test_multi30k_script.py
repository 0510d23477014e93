"""scripts/multi30k.sh: what it downloads is the corpus, or it is not kept."""

import gzip
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.own_text import contents

SCRIPT = Path(__file__).parents[2] / "scripts/multi30k.sh"
TEXTS = {"train.en": b"a dog\n", "train.de": b"ein hund\n"}
FRENCH = b"un chien\n"
PAGE = b"<html>Try again later</html>\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs the script, with a folder as server, on three small files."""
    scripts, tools = tmp_path / "scripts", tmp_path / "tools"
    for folder in (scripts, tools, tmp_path / "server"):
        folder.mkdir()
    shutil.copy(SCRIPT, scripts)
    corpus = {**TEXTS, "train.fr": FRENCH}
    sums = [f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in corpus.items()]
    (scripts / "multi30k.sha256").write_text("".join(sums))
    (tools / "vaswani").write_text('#!/bin/sh\necho "vaswani $*"\n')
    (tools / "vaswani").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("URL", f"file://{tmp_path}/server")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", "scripts/multi30k.sh", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return run


def test_the_corpus_is_downloaded_once_packed_or_not(run, tmp_path):
    (tmp_path / "server/train.en").write_bytes(TEXTS["train.en"])
    (tmp_path / "server/train.de.gz").write_bytes(gzip.compress(TEXTS["train.de"]))
    assert "vaswani prepare multi30k_en_de --text data/multi30k_text\n" in run().stdout
    shutil.rmtree(tmp_path / "server")
    assert run().returncode == 0
    assert contents(tmp_path / "data/multi30k_text") == TEXTS


def test_a_page_in_place_of_the_text_is_not_kept(run, tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / "server" / name).write_bytes(text)
    (tmp_path / "server/train.en").write_bytes(PAGE)
    found = run()
    assert found.returncode == 1 and "vaswani" not in found.stdout and "train.en" in found.stderr
    assert PAGE not in contents(tmp_path / "data/multi30k_text").values()
