"""Files that belong together are compared where they are used: text, codes, data, weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.own_text import HERE, sentence_of
from vaswani import Translator, cli
from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.data import pipeline
from vaswani.packing.data_text import DataOptions, text_recipe
from vaswani_transformer import Transformer

LANGS = ("en", "de")


# ---- prepared text ------------------------------------------------------------------------------


@pytest.fixture
def data(own: Path, monkeypatch: Any) -> Path:
    """Prepare data/own without fairseq's part, but with dictionaries, and return the folder."""

    def make_data_bin(job: pipeline.Job, out: Path) -> dict[str, Any]:
        out.mkdir()
        for lang in job.recipe.langs:
            (out / f"dict.{lang}.txt").write_text("a@@ 1\nb 1\n", encoding="utf-8")
        return {}

    monkeypatch.setattr(pipeline, "make_data_bin", make_data_bin)
    assert cli.main(HERE) == 0
    return own / "data" / "own"


def packed_text(data: Path) -> Path | None:
    """Return the codes that ``vaswani pack`` would take."""
    folder = data / "data-bin"
    dictionaries = folder / "dict.en.txt", folder / "dict.de.txt"
    return text_recipe(DataOptions(), folder, LANGS, dictionaries)[1]


def prepare_until(stage: str, monkeypatch: Any) -> None:
    """Learn other codes, and stop before a stage of preparing."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, stage, stop)
        other = [word if word != "30" else "20" for word in HERE]
        assert cli.main(other) == 130


@pytest.mark.parametrize("stage", ["make_bpe", "make_data_bin"])
def test_codes_without_their_dictionary_are_not_packed(
    stage: str, data: Path, monkeypatch: Any, capsys: Any
) -> None:
    """BLEU fell from 98.1 to 29.3: new codes with the old dictionary."""
    assert packed_text(data) == data / "codes"
    prepare_until(stage, monkeypatch)
    with pytest.raises(UserError, match="was made again, but .* was not: run 'vaswani prepare'"):
        packed_text(data)
    capsys.readouterr()
    assert cli.main(["prepare", "--like", str(data), "--test", "valid", "--out", "more"]) == 1
    assert "was made again" in sentence_of(capsys)
    assert cli.main([word if word != "30" else "20" for word in HERE]) == 0
    assert packed_text(data) == data / "codes"


def test_codes_that_were_edited_are_not_packed(data: Path) -> None:
    with open(data / "codes", "a", encoding="utf-8") as stream:
        stream.write("x y\n")
    with pytest.raises(UserError, match="codes has changed since 'vaswani prepare' wrote it"):
        packed_text(data)


def test_a_copy_and_text_of_earlier_versions_are_packed(data: Path, tmp_path: Path) -> None:
    """A copy has other times; earlier versions did not record what a stage was made from."""
    copy = tmp_path / "copy"
    shutil.copytree(data, copy, copy_function=shutil.copyfile)
    for record in (copy / ".stages").glob("*.json"):
        table = json.loads(record.read_text(encoding="utf-8"))
        table.pop("made_from", None)
        record.write_text(json.dumps(table), encoding="utf-8")
    assert packed_text(copy) == copy / "codes"


# ---- translations -------------------------------------------------------------------------------


def test_translations_of_another_test_set_are_not_scored(own_run: Path, cli: Any) -> None:
    """BLEU fell from 97.0 to 1.4: old translations beside new references."""
    assert cli("generate", "small").code == 0
    assert cli("score", "small").code == 0
    data_bin = Path("data/digits/data-bin")
    for name in (f"valid.en-de.{lang}.{end}" for lang in LANGS for end in ("bin", "idx")):
        shutil.copyfile(data_bin / name, data_bin / name.replace("valid", "test"))
    refused = cli("score", "small")
    assert refused.code == 1
    assert (
        "was translated from an earlier version" in refused.err
        and "vaswani generate small" in refused.err
    )


def test_scores_of_older_weights_are_not_packed(own_run: Path, cli: Any) -> None:
    """After more training, and a copy of the run: its files have new times."""
    last = own_run / "checkpoints" / "checkpoint_last.pt"
    assert cli("generate", last).code == cli("score", "small").code == 0
    assert cli("pack", last, "--out", "first").code == 0
    assert json.loads(Path("first/config.json").read_text())["scores"]
    shutil.copyfile(own_run / "checkpoints" / "checkpoint_1_2.pt", last)
    (own_run / "eval" / "test.score.json").touch()
    assert cli("pack", last, "--out", "second").code == 0
    assert json.loads(Path("second/config.json").read_text())["scores"] == {}


def packed_scores(folder: str) -> dict[str, Any]:
    scores: dict[str, Any] = json.loads(Path(folder, "config.json").read_text())["scores"]
    return scores


def test_scores_of_another_search_are_not_packed(own_run: Path, cli: Any) -> None:
    """The card said "decoding: beam 4" and 13.03 BLEU, of beam 1; beam 4 had 18.66."""
    assert cli("generate", "small", "--beam", 1).code == 0
    scored = cli("score", "small")
    assert "decoded with beam 1, lenpen 0.6" in scored.out and "20 sentences" in scored.out
    packed = cli("pack", "small", "--out", "first")
    assert "decoded with beam 1, not 4 as in the packed model" in packed.err
    assert packed_scores("first") == {}
    assert "There were no scores for these decoding options" in Path("first/README.md").read_text()
    assert cli("generate", "small").code == cli("score", "small").code == 0
    packed = cli("pack", "small", "--out", "second")
    assert "not packed" not in packed.err
    row = packed_scores("second")["test"]["bleu"]
    references = Path("data/digits/text/test.de")
    assert row["sentences"] == 20 and row["references_sha256"] == sha256_of(references)
    card = Path("second/README.md").read_text()
    assert row["decoding"] in card and row["references_sha256"] in card
    references.write_text(references.read_text().replace("1", "2"))
    packed = cli("pack", "small", "--out", "third")
    assert "data/digits/text/test.de has changed since" in packed.err
    assert packed_scores("third") == {}


# ---- a model folder, through both doors ---------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"format_version": 0}, "version 0"),
        ({"format_version": 2}, "version 2"),
        ({"format": "another"}, "not written by 'vaswani pack'"),
        ({"variant": {"arch": "relative_transformer", "options": {}}}, "relative_transformer"),
    ],
    ids=str,
)
def test_a_folder_of_another_kind_is_refused_by_both_readers(
    changes: dict[str, Any], named: str, model: Path, tmp_path: Path
) -> None:
    """Its hashes are right. The paper's model was read, with logits 4.4 apart."""
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    path = folder / "config.json"
    before = sha256_of(path)
    table = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps(table), encoding="utf-8")
    sums = folder / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(before, sha256_of(path)))
    with pytest.raises(ValueError, match=named):
        Transformer.from_pretrained(folder)
    with pytest.raises(UserError, match=named):
        Translator.from_pretrained(folder)
