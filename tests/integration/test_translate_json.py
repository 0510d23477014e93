"""``translate --json``: one object per line, with the score and what casts doubt on it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import packed
from tests.integration.test_split_sentences import change
from vaswani import Translator
from vaswani.folders.recipe import TextRecipe

#: one sentence; blank; an unknown word; two sentences; longer than the training lines, in one
#: sentence and in three; beyond the model's limit
LINES = [
    "the house is big .",
    "",
    "the zebra sees a cat .",
    "The dog sees.  A cat.",
    "the big dog sees a small cat and a house",
    "The big dog sees a small cat. Is the house big? The small dog.",
    "the " * 80,
]
TEXT = "".join(line + "\n" for line in LINES)


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> Path:
    """Pack a model with random weights, whose training lines had at most 9 subwords."""
    folder = tmp_path_factory.mktemp("json") / "model"
    packed.pack(
        folder, TextRecipe("en", "de", subword=None), words=[*packed.WORDS, "The", "A", "Is"]
    )
    change(folder, source_lengths={"50": 4, "99": 9})
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_text(TEXT)
    return path


def objects(output: str) -> list[dict[str, Any]]:
    """Parse each line of the output."""
    return [json.loads(line) for line in output.split("\n")[:-1]]


def test_each_line_is_an_object_with_the_same_translation(model, text, cli):
    plain = cli("translate", model, text)
    ended = cli("translate", model, text, "--json")
    found = objects(ended.out)
    assert [one["text"] for one in found] == plain.out.split("\n")[:-1]
    assert ended.err == plain.err, "the warnings are the same"
    keys = ["text", "score", "too_long", "unusually_long", "sentences", "split", "unknown"]
    assert [list(one) for one in found] == [keys] * len(LINES)


def test_what_casts_doubt_on_a_line_is_in_its_object(model, text, cli):
    ended = cli("translate", model, text, "--json")
    found = objects(ended.out)
    column = {key: [one[key] for one in found] for key in found[0]}
    assert column["too_long"] == [False] * 6 + [True]
    assert column["sentences"] == [1, 0, 1, 2, 1, 3, 1]
    assert column["split"] == [False] * 5 + [True, False]
    assert column["unknown"][2] == ["zebra"] and column["unknown"][0] == []
    assert [score is None for score in column["score"]] == [False, True, *[False] * 4, True]
    assert column["unusually_long"][:6] == [False] * 4 + [True, False]
    # and stderr counts the same lines
    assert "1 line longer than the model's limit" in ended.err and ": 7\n" in ended.err
    assert "1 line with a sentence longer than" in ended.err and "be incomplete: 5\n" in ended.err
    unknown = sum(len(one["unknown"]) for one in found if not one["too_long"])
    assert f"{unknown} word" in ended.err


def test_the_fields_are_those_of_the_translator(model, text, cli):
    whole = [*LINES[:5], LINES[6]]
    text.write_text("".join(line + "\n" for line in whole))
    found = objects(cli("translate", model, text, "--json").out)
    for one, translation in zip(
        found, Translator.from_pretrained(model).translate(whole), strict=True
    ):
        assert one["text"] == translation.text and one["too_long"] == translation.too_long
        assert one["unknown"] == translation.unknown
        assert one["score"] == pytest.approx(translation.score, abs=1e-3)


def test_a_line_that_was_split_has_the_lowest_score_of_its_sentences(model, text, cli):
    text.write_text(LINES[5] + "\n")
    (one,) = objects(cli("translate", model, text, "--json").out)
    sentences = ["The big dog sees a small cat.", "Is the house big?", "The small dog."]
    translations = Translator.from_pretrained(model).translate(sentences)
    assert one["split"] and len({translation.score for translation in translations}) == 3
    lowest = min(translation.score for translation in translations)
    assert one["score"] == pytest.approx(lowest, abs=1e-3)


def test_nbest_lists_are_in_one_object_per_line(model, text, cli):
    options = ["--nbest", 2, "--print-alignment"]
    found = objects(cli("translate", model, text, "--json", *options).out)
    expected = Translator.from_pretrained(model).translate(LINES, nbest=2, print_alignment=True)
    assert len(found) == len(LINES)
    for one, translation in zip(found, expected, strict=True):
        assert not one["split"], "takes each line as one sentence"
        assert one["source_tokens"] == translation.source_tokens
        assert len(one["hypotheses"]) == len(translation.hypotheses) in (0, 2)
        for record, hypothesis in zip(one["hypotheses"], translation.hypotheses, strict=True):
            assert list(record) == ["text", "score", "tokens", "alignment"]
            assert (record["text"], record["tokens"]) == (hypothesis.text, hypothesis.tokens)
            assert record["alignment"] == [list(pair) for pair in hypothesis.alignment]
            assert record["score"] == pytest.approx(hypothesis.score, abs=1e-3)
        if one["hypotheses"]:
            assert one["text"] == one["hypotheses"][0]["text"]
            assert one["score"] == one["hypotheses"][0]["score"]
    assert [one["sentences"] for one in found][3] == 2
    (record, _) = objects(cli("translate", model, text, "--json", "--nbest", 2).out)[0][
        "hypotheses"
    ]
    assert list(record) == ["text", "score"]


def test_a_pipe_and_a_file_are_as_the_output_on_the_terminal(
    model, text, tmp_path, cli, monkeypatch
):
    expected = cli("translate", model, text, "--json").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert cli("translate", model, "--json").out == expected
    output = tmp_path / "out.jsonl"
    assert cli("translate", model, text, "--json", "--output", output).code == 0
    assert output.read_text() == expected
    again = cli("translate", model, text, "--json", "--output", output)
    assert "already translated" in again.err
    # as text it is another output
    assert cli("translate", model, text, "--output", output).code == 0
    assert output.read_text() == cli("translate", model, text).out


def test_every_line_may_be_split(model, text, cli):
    flags = ["--json", "--split-sentences", "always"]
    found = objects(cli("translate", model, text, *flags).out)
    assert [one["split"] for one in found] == [False] * 3 + [True, False, True, False]
    assert len(found) == len(LINES) and found[1]["text"] == ""


def test_a_column_of_scores_is_refused(model, text, cli):
    refused = cli("translate", model, text, "--json", "--scores")
    assert refused.code == 1 and refused.out == ""
    assert "leave out --scores" in refused.err


def test_a_model_of_tokenised_text_counts_sentences_but_splits_none(tmp_path, text, cli):
    packed.pack(tmp_path / "model", words=[*packed.WORDS, "The", "A", "Is"])
    text.write_text("The dog sees . A cat . \n")
    (one,) = objects(cli("translate", tmp_path / "model", text, "--json").out)
    assert one["sentences"] == 2 and not one["split"]
