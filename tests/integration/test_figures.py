"""``vaswani reproduce figures``: heads that look at a word's distant partner (figures 3 to 5)."""

import functools
from collections import Counter
from pathlib import Path
from typing import Any, List

import numpy
import pytest
import torch

from tests import packed, stock
from tests.models import small_model, task
from vaswani.attention_page.maps import Unit
from vaswani.data.text_recipe import TextRecipe
from vaswani.experiment.find import read_yaml
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
    assert run(model) == 0
    out = tmp_path / "runs" / "figures"
    pictures = [f"figure{n}.{kind}" for n in (3, 4, 5) for kind in ("pdf", "png")]
    assert {path.name for path in out.iterdir()} == {*pictures, "figures.json", "figures.md"}
    text = (out / "figures.md").read_text(encoding="utf-8")
    assert "The best of 8 heads over 2 sentences: layer 1, head 3." in text
    assert "The best of 8 heads over 2 sentences: layer 2, head 2." in text
    assert text.count("| 1.000 | 0.000 |") == 2
    # all heads, for either kind; in "sees … cat" and "a house … sees" W is 9 and 7
    uniform = (1 / 9 + 2 / 7) / 2
    assert f"| 1 | 1 | {uniform:.3f} | {(1 / 9 + 1 / 7) / 2:.3f} | {uniform:.3f} |" in text
    assert "'and'" in capsys.readouterr().err, "unknown to the model"


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


def test_the_best_and_the_least_alike_heads_are_drawn() -> None:
    weights = numpy.array([[0.1, 0.2, 0.3], [0.4, 0.0, 0.6]])
    assert best_heads(weights) == (1, [2, 0, 1])
    maps = numpy.array([[[1.0, 0.0], [1.0, 0.0]], [[0.6, 0.4], [0.5, 0.5]], [[0, 1.0], [0, 1.0]]])
    assert least_alike(maps) == (0, 2)


def test_the_annotations_name_words_of_their_sentences() -> None:
    """Two of the paper's sentences, twenty others; each word and partner occurs once."""
    table = read_yaml(Path(figures.__file__).with_name("figures.yaml"))
    assert list(table) == list(figures.KINDS) and sum(map(len, table.values())) == 22
    for entry in (entry for entries in table.values() for entry in entries):
        words = entry["text"].split()
        units = [Unit(word, n, n) for n, word in enumerate(words)]
        (word,), partner = place_of(entry["word"], units), place_of(entry["partner"], units)
        counts = Counter(word.casefold() for word in words)
        assert counts[entry["word"]] == 1, entry
        assert min(counts[words[n].casefold()] for n in partner) == 1, entry
        assert min(abs(word - n) for n in partner) > 2, entry


def test_a_kind_of_which_the_model_knows_no_pair_has_no_figure(model: Path, tmp_path: Path) -> None:
    unknown = ANNOTATED.replace("its", "xyz")
    (tmp_path / "annotated.yaml").write_text(unknown, encoding="utf-8")
    assert run(model, "--out", "none") == 1
    assert not (tmp_path / "none").exists()
