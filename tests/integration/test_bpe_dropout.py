"""``vaswani prepare --bpe-dropout P --copies K``: the training text in several segmentations."""

from pathlib import Path

import pytest
import yaml

from tests import archives, stock
from tests.files import write
from tests.own_text import HERE, LANGS, contents, here, sentence_of
from vaswani import cli
from vaswani.data import bpe
from vaswani.folders.prepared_text import PreparedText
from vaswani.planning.first_experiment import settings_of_text
from vaswani.planning.published_settings import BPE_DROPOUT, settings_for

DROPOUT = ["--bpe-dropout", "0.3", "--copies", "3"]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_the_training_text_is_split_anew_in_each_copy(own: Path) -> None:
    """And is the same words; validation and test text is split without dropout."""
    assert cli.main(HERE) == 0
    plain = contents(own / "data/own")
    assert cli.main(here(*DROPOUT)) == 0
    folder = own / "data/own"
    for lang in ("en", "de"):
        split = lines(folder / f"bpe/train.{lang}")
        copies = [split[:40], split[40:80], split[80:]]
        assert len(split) == 120
        assert copies[0] != copies[1] != copies[2] != copies[0]
        for copy in copies:
            assert [bpe.undo(line) for line in copy] == lines(folder / f"tok/train.{lang}")
        assert (folder / f"bpe/valid.{lang}").read_bytes() == plain[f"bpe/valid.{lang}"]
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    assert (recipe["bpe_dropout"], recipe["copies"]) == (0.3, 3)
    subwords = plain["bpe/train.en"].decode("utf-8").split()
    assert len(" ".join(lines(folder / "bpe/train.en")).split()) > 3 * len(subwords)


def test_a_new_experiment_says_what_it_costs(own: Path, capsys: pytest.CaptureFixture) -> None:
    """Of text that was split as usual it says nothing."""
    for name, options in (("usual", []), ("dropped", DROPOUT)):
        assert cli.main(here(*options)) == 0
        capsys.readouterr()
        with stock.fresh_process():
            assert cli.main(["new", name, "--data", "data/own"]) == 0
        written = (own / f"{name}.yaml").read_text(encoding="utf-8").replace("\n  # ", " ")
        for text in (written, capsys.readouterr().err):
            assert (BPE_DROPOUT in text) == (name == "dropped")


@pytest.mark.slow
def test_any_number_of_processes_writes_the_same(own: Path) -> None:
    for lang in ("en", "de"):  # more lines than one process gets at a time
        write(own / f"train.{lang}", *archives.sentences(lang, 9_000, 7))
    for workers in ("1", "3"):
        options = [*LANGS, "--train", "train", "--valid", "valid", "--bpe", "30", *DROPOUT]
        assert cli.main(["prepare", *options, "--workers", workers, "--out", workers]) == 0
    one, three = contents(own / "1"), contents(own / "3")
    for name in one:
        assert ".stages" in name or one[name] == three[name], name


def test_text_like_it_is_split_without_dropout(own: Path) -> None:
    """A second training text, too: it may be for another purpose."""
    assert cli.main(here(*DROPOUT)) == 0
    like = ["prepare", "--like", "data/own", "--train", "train", "--out", "data/more"]
    assert cli.main([*like, "--workers", "1"]) == 0
    recipe = yaml.safe_load((own / "data/more/recipe.yaml").read_text(encoding="utf-8"))
    assert (recipe["bpe_dropout"], recipe["copies"]) == (None, 1)
    split = bpe.splitter(own / "data/own/codes")
    for lang in ("en", "de"):
        tokens = lines(own / f"data/more/tok/train.{lang}")
        assert lines(own / f"data/more/bpe/train.{lang}") == [split(line) for line in tokens]


def test_a_new_experiment_counts_the_text_once(tmp_path: Path) -> None:
    """Settings are those of the text, and each epoch is as many of its epochs as it has copies."""
    write(tmp_path / "recipe.yaml", "{source_lang: en, target_lang: de, copies: 4}")
    recipe = PreparedText(tmp_path).recipe()
    once = settings_for(30_000)
    settings = settings_of_text(recipe, 120_000)
    assert settings.source == once.source != settings_for(120_000).source
    assert settings.epochs == -(-once.epochs // 4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--copies", "3"], "all equal without BPE-dropout"),
        (["--bpe-dropout", "1"], "above 0 and below 1"),
        (["--bpe-dropout", "0"], "--bpe-dropout must be above 0, not 0.0"),
        (
            ["--bpe-dropout", "0.1", "--subword", "sentencepiece"],
            "BPE-dropout works only with subword-nmt",
        ),
        (["--bpe-dropout", "0.1", "--copies", "0"], "--copies must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_is_refused(
    own: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    assert cli.main(here(*options)) == 1
    assert sentence in sentence_of(capsys) and not Path("data").exists()
