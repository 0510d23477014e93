"""``vaswani export`` without its targets: rules, tolerances, the text, what is refused."""

import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import exported, packed
from vaswani import Translator, cli
from vaswani.common.errors import UserError
from vaswani.export.card import export_card, licence_of
from vaswani.export.comparison import ModelComparison, SearchComparison, TokenizerComparison
from vaswani.export.proof import bleu_of, log_probabilities, nearest_exponent
from vaswani.export.text import proof_text
from vaswani.folders.exported_model import EXPORTED, ExportedModel, ExportTable
from vaswani.folders.model_folder import ModelFolder, write_folder

ROOT = Path(__file__).resolve().parents[2]

# ---- the proof ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha, length", [(0.6, 5.0), (0.6, 14.4), (1.0, 30.0), (0.0, 9.0)])
def test_the_nearest_exponent_has_the_same_slope(alpha, length):
    """d log length^λ / d log length = λ is that of the paper's ((5 + length) / 6)^α."""
    x = torch.tensor(length, dtype=torch.float64).log().requires_grad_()
    (alpha * ((5 + x.exp()) / 6).log()).backward()
    assert nearest_exponent(alpha, length) == pytest.approx(x.grad.item())


def test_bleu_counts_characters_where_there_are_no_spaces():
    """As ``vaswani score`` does; 13a, which finds one word in a sentence, would say 0."""
    from sacrebleu.metrics import BLEU

    said, meant = ["วันนี้อยู่บ้าน", "แมวตัวใหญ่"], ["วันนี้อยู่บ้าน", "แมวตัวเล็ก"]
    expected = BLEU(tokenize="char", force=True).corpus_score(said, [meant]).score
    assert bleu_of("th", meant).corpus_score(said, [meant]).score == pytest.approx(expected)


def search(sentences, identical, least_identical=0.5):
    return SearchComparison("greedy", sentences, identical, least_identical, None)


@pytest.mark.parametrize(
    "comparison, passes",
    [
        (ModelComparison(900, 9e-5, 1e-2, 1e-4), True),
        (ModelComparison(900, 2e-4, 2e-4, 1e-4), False),
        (ModelComparison(900, math.nan, math.nan, 0.1), False),
        (TokenizerComparison(500, 495, 500), True),
        (TokenizerComparison(500, 494, 500), False),
        (TokenizerComparison(3, 3, 1), False),
        (search(500, 250), True),
        (search(500, 249), False),
        (search(1, 0), True),  # one sentence, of which two words were as likely
        (search(2, 0), False),
        (search(500, 0, None), True),  # of another length penalty
    ],
)
def test_what_exceeds_its_tolerance_fails(comparison, passes):
    assert (comparison.problem() is None) == passes


def test_given_translations_have_their_probabilities(tmp_path):
    """In a batch padded on both sides: those of each sentence alone, in its place."""
    packed.pack(tmp_path / "model")
    translator = Translator(ModelFolder.read(tmp_path / "model"), device="cpu")
    lines, targets = ["the house is big .", "a dog", "the cat"], [["a"], [], ["the", "cat", "is"]]
    words, model = translator.engine.target, translator.engine.model
    found = log_probabilities(translator, lines, targets)
    for line, target, row in zip(lines, targets, found, strict=True):
        tokens = [*map(words.index, target), words.eos()]
        with torch.no_grad():
            source = torch.tensor([translator.read(line).ids])
            logits = model(source, torch.tensor([tokens]).roll(1))
        expected = logits[0].log_softmax(-1)[range(len(tokens)), tokens]
        torch.testing.assert_close(torch.tensor(row), expected, rtol=0, atol=1e-5)


# ---- an exported folder -------------------------------------------------------------------------

TABLE = {
    "format": EXPORTED.format,
    "format_version": 1,
    "target": "ctranslate2",
    "quantization": None,
    "text": exported.RECIPE.to_json(),
    "generation": {"beam": 2},
    "limits": {"source": 64, "target": 64},
    "origin": {},
}


def fill(part):
    (part / "vaswani.json").write_text(json.dumps(TABLE))
    for name in ("model.bin", "config.json", "README.md"):
        (part / name).write_text("{}")
    (part / "shared_vocabulary.json").write_text('["<s>", "<pad>", "</s>", "<unk>"]')


@pytest.fixture
def folder(tmp_path):
    """Write an export with nothing in its model."""
    write_folder(tmp_path / "exported", fill, EXPORTED)
    return tmp_path / "exported"


@pytest.mark.parametrize(
    "damage, named",
    [
        (lambda folder: (folder / "shared_vocabulary.json").unlink(), "shared_vocabulary.json"),
        (lambda folder: (folder / "model.bin").write_bytes(b"}{"), "model.bin was altered"),
        (lambda folder: (folder / "vaswani.json").write_bytes(b"{"), "vaswani.json"),
        (lambda folder: exported.change(folder, "", format_version=2), "version 2"),
        (lambda folder: exported.change(folder, "", target="fairseq"), "exported to fairseq"),
    ],
)
def test_an_export_that_is_damaged_or_anothers_is_refused(damage, named, folder):
    assert ExportedModel.read(folder).langs == ("en", "de")
    damage(folder)
    with pytest.raises((UserError, OSError), match=named):
        Translator.from_pretrained(folder)


@pytest.mark.parametrize("command", [["attention", "the house"], ["export", "--to", "fairseq"]])
def test_an_export_is_no_packed_model(command, folder, capsys):
    assert cli.main([command[0], str(folder), *command[1:]]) == 1
    assert "vaswani export" in capsys.readouterr().err


def test_without_its_package_a_target_is_refused(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    packed.pack(tmp_path / "model")
    (tmp_path / "text").write_text("the house\n")
    to_ctranslate2 = ["export", str(tmp_path / "model"), "--to", "ctranslate2"]
    for arguments in (to_ctranslate2, ["translate", str(folder), str(tmp_path / "text")]):
        assert cli.main(arguments) == 1
        assert "pip install" in capsys.readouterr().err


# ---- the text -----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Make a run with a packed model, and its prepared text beside it."""
    packed.pack(tmp_path / "runs" / "mine" / "model")
    (tmp_path / "runs/mine/config.yaml").write_text("task: {data: data/mine/data-bin}\n")
    text = tmp_path / "data" / "mine" / "text"
    text.mkdir(parents=True)
    for subset in ("test", "valid"):
        (text / f"{subset}.en").write_text(f"the {subset}\n\na house\nthe end\n")
        (text / f"{subset}.de").write_text("das eine\n\nein Haus\ndas Ende\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_text_is_the_runs_test_else_its_validation_text(run, monkeypatch):
    monkeypatch.chdir("/")  # wherever one is

    def found(lines=0):
        path = run / "runs" / "mine" / "model"
        return proof_text(path, ModelFolder.read(path), None, None, lines)

    assert found().source == ["the test", "", "a house", "the end"]
    assert found(lines=3).reference == ["das eine", "", "ein Haus"]
    (run / "data" / "mine" / "text" / "test.de").unlink()
    assert found().source[0] == "the valid"
    shutil.rmtree(run / "data")
    with pytest.raises(UserError, match="--text"):
        found()


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--text", "gone"], "gone"),
        (["--text", "blank"], "blank"),
        (["--text", "two", "--reference", "one"], "one"),
        (["--reference", "one"], "--text"),
        (["--quantization", "int8"], "--to ctranslate2"),
        (["--out", "data"], "data"),
    ],
)
def test_an_export_that_could_not_be_proved_is_refused(arguments, named, run, capsys):
    for name, text in {"one": "a\n", "two": "a\nb\n", "blank": "\n \n"}.items():
        Path(name).write_text(text)
    assert cli.main(["export", "mine", "--to", "fairseq", *arguments]) == 1
    assert named in capsys.readouterr().err
    assert sorted(path.name for path in Path("runs/mine").iterdir()) == ["config.yaml", "model"]


def test_the_card_has_a_command_that_reads_text_as_the_model_does(run):
    model = ModelFolder.read(run / "runs" / "mine" / "model")
    recipe = replace(model.recipe, tokeniser="moses", subword="subword_nmt")
    generation = {"beam": 4, "lenpen": 0.6, "length_penalty": "fairseq"}
    table = table_of(target="fairseq", generation=generation)
    card = export_card(table, replace(model, recipe=recipe), Path("a model"), ["greedy 1 of 1"])
    assert "fairseq-interactive 'a model' --path 'a model'/model.pt --source-lang en" in card
    assert "--tokenizer moses --moses-no-dash-splits" in card
    assert "--bpe subword_nmt --bpe-codes 'a model'/bpecodes" in card
    assert "--beam 4 --lenpen 0.6\n```" in card and "greedy 1 of 1" in card


def table_of(**changed):
    """Return an export's table with other sections."""
    return ExportTable.from_json({**TABLE, **changed}, "vaswani.json")


SEARCHED = table_of(generation={"beam": 4, "lenpen": 0.6, "max_len_a": 1.0, "max_len_b": 50})
EDITED_CARD = """---
language: [en, de]
license: cc-by-4.0
tags: [translation]
---

# mine: en → de

It translates **short** sentences ([record](../records/mine.md), [the paper](https://arxiv.org/abs/1706.03762)).

## Use

```sh
vaswani translate here
```

## Scores

```
# not a heading
```
"""


@pytest.mark.parametrize("target", ["ctranslate2", "fairseq", "huggingface"])
def test_an_exports_card_has_the_licence_and_the_text_of_the_models_card(target, run):
    """Attribution and limits too; no link to a file that is not beside the export."""
    folder = run / "runs" / "mine" / "model"
    (folder / "README.md").write_text(EDITED_CARD, encoding="utf-8")
    card = export_card(replace(SEARCHED, target=target), ModelFolder.read(folder), Path("out"), [])
    head, about = card.split("\n---\n")[0], card.split("## About the model\n")[1]
    assert "license: cc-by-4.0" in head.splitlines()
    assert "short** sentences (record, [the paper](https://arxiv.org/abs/1706.03762))" in about
    assert "### Scores" in about and "\n# not a heading" in about
    assert "vaswani translate here" not in card and "# mine: en → de\n\nIt" not in card
    assert licence_of(ModelFolder.read(folder)) == "cc-by-4.0"


def test_an_exports_card_asks_for_a_licence_where_the_models_card_has_none(run):
    model = ModelFolder.read(run / "runs" / "mine" / "model")
    (model.path / "README.md").unlink()
    card = export_card(SEARCHED, model, Path("out"), [])
    assert "add `license: …`" in card and licence_of(model) is None
