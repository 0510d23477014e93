"""Runs that several integration tests look at: made once, read only."""

from pathlib import Path

import pytest

from tests import archives, shared, stock


@pytest.fixture(scope="session")
def trained(tiny_data_bin, tmp_path_factory) -> Path:
    """Train a small model for 60 updates on ``tiny_data_bin``; return its last checkpoint."""

    def make(folder: Path) -> None:
        stock.train(tiny_data_bin, folder, "--max-update", "60", "--no-epoch-checkpoints")

    return shared.made_once(tmp_path_factory, "digits", make) / "checkpoint_last.pt"


@pytest.fixture(scope="session")
def another(tiny_data_bin, tmp_path_factory) -> Path:
    """Train as ``trained``, from another seed and for fewer updates."""
    folder = tmp_path_factory.mktemp("another")
    stock.train(tiny_data_bin, folder, "--max-update", "20", "--no-epoch-checkpoints", "--seed=2")
    return folder / "checkpoint_last.pt"


@pytest.fixture
def light(monkeypatch):
    """Replace the last stage of ``vaswani prepare``, which is fairseq's and takes seconds."""
    from vaswani.data import pipeline

    def folder(job, out):
        out.mkdir()
        (out / "made").write_text("\n")
        return {}

    monkeypatch.setattr(pipeline, "make_data_bin", folder)


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """Enter a folder with 40 training and 10 validation pairs."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("train", 40), ("valid", 10)):
        for lang in ("en", "de"):
            lines = archives.sentences(lang, count, count)
            text = "".join(line + "\n" for line in lines)
            (tmp_path / f"{name}.{lang}").write_text(text, encoding="utf-8")
    return tmp_path
