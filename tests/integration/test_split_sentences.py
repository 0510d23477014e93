"""``translate --split-sentences``: a long line of several sentences loses none of them."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.packed import pack
from vaswani.decoding.translator import Hypothesis, InputSentence, Translation, Translator
from vaswani.folders.model_folder import SUMS, ModelFolder
from vaswani.folders.recipe import TextRecipe

#: 6, 10 and 15 words, and 11 in one sentence
TWO, THREE = "The dog sees.  A cat.", "The dog sees. A cat sees.\tThe house is big."
LONG = "The big dog sees a small cat. Is the house big? The small dog."
ONE = "the big dog sees a small cat and a house"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: Any) -> Path:
    """Make a model that "translates" into capitals; its training lines had at most 9 words."""

    def capitals(
        translator: Translator, sentences: Sequence[InputSentence], *_: Any
    ) -> list[Translation]:
        return [
            Translation(
                sentence.line,
                [] if sentence.ids is None else [Hypothesis(sentence.line.upper(), -1.0, [])],
                [],
                [],
                sentence.too_long,
            )
            for sentence in sentences
        ]

    monkeypatch.setattr(Translator, "translate_sentences", capitals)
    folder = tmp_path / "model"
    pack(folder, TextRecipe("en", "de", subword=None))
    change(folder, source_lengths={"50": 4, "99": 9})
    return folder


def change(folder: Path, **values: Any) -> None:
    """Change a folder's config.json, and its hash."""
    from vaswani.common.files import sha256_of

    path = folder / "config.json"
    before = sha256_of(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    sums = (folder / SUMS).read_text()
    (folder / SUMS).write_text(sums.replace(before, sha256_of(path)))


@pytest.fixture
def translated(model: Path, cli: Any, tmp_path: Path) -> Any:
    """Return a function that translates lines, and adds ``|`` to each sentence translated alone."""

    def run(*lines: str, options: Sequence[object] = ()) -> tuple[list[str], str]:
        text = tmp_path / "text"
        text.write_text("".join(line + "\n" for line in lines))
        with pytest.MonkeyPatch.context() as patch:
            upper = Translator.translate_sentences

            def marked(translator: Translator, sentences: Any, *rest: Any) -> list[Translation]:
                results = upper(translator, sentences, *rest)
                for result in results:
                    for place, one in enumerate(result.hypotheses):
                        result.hypotheses[place] = Hypothesis(one.text + "|", one.score, [])
                return results

            patch.setattr(Translator, "translate_sentences", marked)
            ended = cli("translate", model, text, *options)
        assert ended.code == 0, ended.err
        return ended.out.split("\n")[:-1], ended.err

    return run


def test_only_long_lines_are_split(translated: Any) -> None:
    rows, err = translated(TWO, THREE, LONG, "", ONE)
    assert rows == [
        "THE DOG SEES.  A CAT.|",
        "THE DOG SEES.| A CAT SEES.| THE HOUSE IS BIG.|",
        "THE BIG DOG SEES A SMALL CAT.| IS THE HOUSE BIG?| THE SMALL DOG.|",
        "",
        ONE.upper() + "|",
    ]
    warning = "1 line with a sentence longer than 99 % of the training lines (9 subwords)"
    assert warning in err and "whose translation may be incomplete: 5\n" in err


def test_always_and_never_do_what_they_say(translated: Any) -> None:
    rows, _ = translated(TWO, ONE, options=["--split-sentences", "always"])
    assert rows == ["THE DOG SEES.|  A CAT.|", ONE.upper() + "|"]
    rows, err = translated(TWO, LONG, options=["--split-sentences", "never"])
    assert rows == ["THE DOG SEES.  A CAT.|", LONG.upper() + "|"]
    assert "may be incomplete: 2\n" in err


@pytest.mark.parametrize(
    "option", [("--scores",), ("--nbest", 2), ("--print-alignment",)], ids=lambda option: option[0]
)
def test_columns_and_nbest_lists_keep_one_line_one_sentence(
    translated: Any, model: Path, cli: Any, tmp_path: Path, option: tuple[object, ...]
) -> None:
    rows, _ = translated(LONG, options=option)
    assert rows[0].split("\t")[0] == LONG.upper() + "|"
    refused = cli("translate", model, tmp_path / "text", *option, "--split-sentences", "always")
    assert refused.code == 1 and f"always cannot be used with {option[0]}" in refused.err


def test_tokenised_text_keeps_one_line_one_sentence(
    translated: Any, model: Path, cli: Any, tmp_path: Path
) -> None:
    shutil.rmtree(model)
    pack(model)
    line = "the dog sees . A cat sees . " * 6
    rows, err = translated(line)
    assert rows == [line.upper() + "|"]
    assert "longer than most training lines (40 subwords)" in err, "it does not say how long"
    refused = cli("translate", model, tmp_path / "text", "--split-sentences", "always")
    assert refused.code == 1 and "tokenised text" in refused.err


def test_a_line_with_one_sentence_beyond_the_limit_stays_empty(translated: Any) -> None:
    """As before: it is counted and named, and no part of it is passed off as the whole."""
    rows, err = translated("The dog sees. " + "the " * 80 + "house. A cat.", TWO)
    assert rows == ["", TWO.upper() + "|"]
    assert "1 line longer than the model's limit" in err and ": 1\n" in err


def test_a_packed_run_says_how_long_its_training_lines_are(own_run: Path, cli: Any) -> None:
    """Of digits: 3 to 8 on a line; without its training text, a model does not say it."""
    assert cli("pack", "small", "--out", "first").code == 0
    folder = ModelFolder.read(Path("first"))
    assert folder.usual_length == 8 and folder.source_lengths["50"] in (5, 6)
    for path in Path("data/digits/data-bin").glob("train.*"):
        path.unlink()
    assert cli("pack", "small", "--out", "second").code == 0
    assert ModelFolder.read(Path("second")).usual_length is None
