"""``vaswani reproduce figures``: heads that look at a word's distant partner (figures 3 to 5)."""

import functools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, List

import numpy
import pytest
import torch

from tests import packed, stock
from tests.models import small_model, task
from vaswani.attention_page.maps import Unit
from vaswani.experiment.strict_yaml import read_table
from vaswani.model_folder.text_recipe import TextRecipe
from vaswani.paper import figures
from vaswani.paper.figures import Pair, best_heads, least_alike, measured, place_of

run = functools.partial(stock.vaswani, "reproduce", "figures")

ANNOTATED = """
distant:
- {text: the dog sees 1 2 a CAT ., word: sees, partner: cat}
- {text: a house the dog sees ., word: sees, partner: a house}
antecedent:
- {text: the big house is 1 and its 2 ., word: its, partner: house}
- {text: the small house is 1 and its 2 ., word: its, partner: house}
"""
#: the model has 2 layers of 4 heads: these two look at the partner, and all others everywhere
DISTANT, ANTECEDENT = (0, 2), (1, 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> Path:
    """Its embeddings are one-hot: feature 0 "sees", 1 "cat", "a", "house"; 2 "its", 3 "house"."""
    folder = tmp_path_factory.mktemp("packed") / "model"
    known = packed.dictionary([*packed.WORDS, "its"])  # not "and"
    planted = small_model(0, task(known, known))
    encoder, width = planted.encoder, 16
    features = {"sees": [0], "cat": [1], "a": [1], "house": [1, 3], "its": [2]}
    with torch.no_grad():
        for parameter in planted.encoder.layers.parameters():
            if parameter.dim() > 1:
                parameter.zero_()
        encoder.embedding.tokens.weight.zero_()
        for word, numbers in features.items():
            encoder.embedding.tokens.weight[known.index(word), numbers] = 10.0
        for (layer, head), (query, key) in ((DISTANT, (0, 1)), (ANTECEDENT, (2, 3))):
            projection = encoder.layers[layer].self_attention.qkv_proj.weight  # [3 * width, width]
            projection[head * 4, query] = 10.0
            projection[width + head * 4, key] = 10.0
    recipe = TextRecipe("en", "de", tokeniser="none", bpe=None, lowercase=True)
    packed.write(folder, planted, recipe, known)
    return folder


@pytest.fixture(autouse=True)
def _sentences(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "annotated.yaml").write_text(ANNOTATED, encoding="utf-8")
    monkeypatch.setattr(figures, "SENTENCES", tmp_path / "annotated.yaml")
    monkeypatch.chdir(tmp_path)


@pytest.mark.paper("figures 3 to 5")
def test_the_head_that_looks_at_the_partner_is_found(
    model: Path, tmp_path: Path, capsys: Any
) -> None:
    """The others give each word of a sentence of W words, its end included, 1 / W."""
    pytest.importorskip("matplotlib")
    for _ in range(2):  # the second replaces the first
        assert run(model) == 0
    out = tmp_path / "runs" / "figures"
    pictures = [f"figure{n}.{kind}" for n in (3, 4, 5) for kind in ("pdf", "png")]
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [*pictures, "figures.json", "figures.md"]
    )
    for name in pictures:
        start = b"%PDF" if name.endswith("pdf") else b"\x89PNG"
        assert (out / name).read_bytes().startswith(start)
    text = (out / "figures.md").read_text(encoding="utf-8")
    said = capsys.readouterr()
    assert text in said.out
    assert "The best of 8 heads over 2 sentences: layer 1, head 3." in text
    assert "The best of 8 heads over 2 sentences: layer 2, head 2." in text
    assert text.count("| 1.000 | 0.000 |") == 2
    # all heads, for either kind; in "sees … cat" and "a house … sees" W is 9 and 7
    uniform = (1 / 9 + 2 / 7) / 2
    assert f"| 1 | 1 | {uniform:.3f} | {(1 / 9 + 1 / 7) / 2:.3f} | {uniform:.3f} |" in text
    rows = [line for line in text.splitlines() if line.count("|") == 7 and line[2].isdigit()]
    assert len(rows) == 16
    assert "warning: unknown to the model: 'and' in: the big house" in said.err
    assert "English" not in said.err
    record = json.loads((out / "figures.json").read_text(encoding="utf-8"))
    assert [entry["counted"] for entry in record["sentences"]] == [True] * 4


def pair(weights: Any, word: int, partner: List[int]) -> Pair:
    """A pair in a sentence of as many words as the weights [N, H, W, W] have."""
    words = [Unit(f"w{n}", n, n) for n in range(weights.shape[-1])]
    return Pair("distant", "", words, word, partner, weights)


def test_the_weights_are_sums_and_means_by_hand() -> None:
    """In the third row, 0.1 0.2 0.3 0.4, the partner is words 0 and 1, two and one before it."""
    rows = [[0.7, 0.1, 0.1, 0.1], [0.5, 0.3, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.0, 0.6, 0.4, 0.0]]
    found = measured(pair(numpy.array(rows)[None, None], 2, [0, 1]))
    assert found["partner"].item() == pytest.approx(0.1 + 0.2)
    assert found["others"].item() == pytest.approx((0.3 + 0.4) / 2)
    # two before: only word 3, 0.6; one before: words 1 and 3, 0.5 and 0.4
    assert found["distance"].item() == pytest.approx(0.6 + (0.5 + 0.4) / 2)
    assert not found["first"].item()
    after = measured(pair(numpy.array(rows)[None, None], 0, [1]))
    # one after: words 1 and 2, 0.1 and 0.4
    assert after["distance"].item() == pytest.approx((0.1 + 0.4) / 2)
    assert measured(pair(numpy.array(rows)[None, None], 3, [1]))["first"].item()


def test_which_heads_are_drawn() -> None:
    weights = numpy.array([[0.1, 0.2, 0.3], [0.4, 0.0, 0.6]])
    assert best_heads(weights) == (1, [2, 0, 1])
    maps = numpy.array([[[1.0, 0.0], [1.0, 0.0]], [[0.6, 0.4], [0.5, 0.5]], [[0, 1.0], [0, 1.0]]])
    assert least_alike(maps) == (0, 2)


def test_the_annotations_name_words_of_their_sentences() -> None:
    """Two of the paper's sentences, twenty others; each word and partner occurs once."""
    table = read_table(Path(figures.__file__).with_name("figures.yaml"))
    assert list(table) == list(figures.KINDS) and sum(map(len, table.values())) == 22
    for entry in (entry for entries in table.values() for entry in entries):
        words = entry["text"].split()
        units = [Unit(word, n, n) for n, word in enumerate(words)]
        (word,), partner = place_of(entry["word"], units), place_of(entry["partner"], units)
        counts = Counter(word.casefold() for word in words)
        assert counts[entry["word"]] == 1, entry
        assert min(counts[words[n].casefold()] for n in partner) == 1, entry
        assert min(abs(word - n) for n in partner) > 2, entry


def test_a_pair_that_the_model_does_not_know_is_not_counted(
    model: Path, tmp_path: Path, capsys: Any
) -> None:
    unknown = "- {text: the big dog sees xyz and 1 ., word: sees, partner: xyz}\nantecedent:"
    (tmp_path / "annotated.yaml").write_text(
        ANNOTATED.replace("antecedent:", unknown), encoding="utf-8"
    )
    pytest.importorskip("matplotlib")
    assert run(model) == 0
    said = capsys.readouterr()
    assert said.out.count("over 2 sentences") == 2 and "| 1.000 | 0.000 |" in said.out
    assert "unknown to the model, so it is not counted: 'xyz', 'and' in: the big dog" in said.err

    (tmp_path / "annotated.yaml").write_text(ANNOTATED.replace("its", "xyz"), encoding="utf-8")
    assert run(model, "--out", "none") == 1
    assert "does not know the words of any sentence of the kind 'antecedent'" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "none").exists()


def test_what_it_refuses(model: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """In a sentence, before the model is read, with nothing left behind or replaced."""
    mine = tmp_path / "mine"
    mine.mkdir()
    ours = {"figures.json": '{"figures": [3, 4, 5]}', "notes": "mine"}
    for name, text in ours.items():
        (mine / name).write_text(text, encoding="utf-8")
    assert run(model, "--out", "mine") == 1
    assert "mine has figures.json, which 'vaswani reproduce figures' did not make" in (
        capsys.readouterr().err
    )
    assert {path.name: path.read_text() for path in mine.iterdir()} == ours
    assert run(model, "--out", "mine/notes") == 1
    assert "mine/notes is not a folder" in capsys.readouterr().err
    assert run("nothing") == 1
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(model) == 1
    assert "matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "figures").exists()
