"""Attention as a page and as pictures: the weights, words made of subwords, what is written."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy
import pytest

from tests.attentions import ARABIC, HEBREW, ODD, made
from tests.models import small_model
from vaswani.attention_page.maps import Unit, check_size, head_weights, word_weights
from vaswani.attention_page.page import page
from vaswani.common.errors import UserError

SOURCE, TARGET = ["The", "ho@@", "use", "."], ["Das", "H@@", "au@@", "s", "."]


class Elements(HTMLParser):
    """The elements of a page: names, attributes, and text by the innermost element."""

    def __init__(self, text):
        super().__init__()
        self.names = []
        self.attributes = []
        self.text = {}
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        self.text.setdefault(inside, []).append(data)


def data_of(text):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    )


# ---- the weights ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heads():
    """Return the weights of a model whose encoder and decoder differ in layers and heads."""
    model = small_model(encoder_layers=3, encoder_attention_heads=2).eval()
    return head_weights(model, [5, 6, 7, 2], [8, 9, 10, 11, 12, 2])


def test_every_head_of_every_layer_looks_with_weights_that_sum_to_1(heads):
    shapes = {name: array.shape for name, array in heads.items()}
    assert shapes == {"encoder": (3, 2, 4, 4), "decoder": (2, 4, 6, 6), "cross": (2, 4, 6, 4)}
    for array in heads.values():
        assert numpy.allclose(array.sum(-1), 1, atol=1e-6)
    assert (numpy.triu(heads["decoder"], 1) == 0).all(), "no later word: section 3.2.3"


def test_words_sum_what_is_looked_at_and_average_what_looks():
    found = made(SOURCE, TARGET, layers=1, heads=2)
    rows, columns = found.sides["target"].words, found.sides["source"].words
    assert [unit.text for unit in rows] == ["Das", "Haus", ".", "(end)"]
    assert [unit.text for unit in columns] == ["The", "house", ".", "(end)"]
    array = found.weights["cross"]
    shown = word_weights(array, rows, columns)
    assert shown.shape == (1, 2, 4, 4)
    for row, looks in enumerate([[0], [1, 2, 3], [4], [5]]):
        for column, seen in enumerate([[0], [1, 2], [3], [4]]):
            expected = sum(array[0, 1, i, j] for i in looks for j in seen) / len(looks)
            assert shown[0, 1, row, column] == pytest.approx(expected, abs=1e-6)
    assert numpy.allclose(shown.sum(-1), 1, atol=1e-6)


def test_what_is_read_begins_with_the_start_and_lacks_the_end():
    """The decoder's input is its output, one to the right."""
    found = made(SOURCE, TARGET, unknown=["au@@"]).sides
    assert found["read"].words == [
        Unit("(start)", 0, 0),
        Unit("Das", 1, 1),
        Unit("Haus", 2, 4, True),
        Unit(".", 5, 5),
    ]
    assert found["target"].words == [
        Unit("Das", 0, 0),
        Unit("Haus", 1, 3, True),
        Unit(".", 4, 4),
        Unit("(end)", 5, 5),
    ]
    assert [unit.unknown for unit in found["target"].subwords] == [False, False, True, *[False] * 3]


@pytest.mark.parametrize(
    ("subwords", "direction"),
    [
        (ARABIC, "rtl"),
        (HEBREW, "rtl"),
        (SOURCE, "ltr"),
        (["."], "ltr"),
    ],
)
def test_the_direction_is_that_of_the_first_letter(subwords, direction):
    sides = made(subwords, subwords).sides
    assert {sides[name].direction for name in ("source", "target", "read")} == {direction}


# ---- the page -------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["words", "subwords"])
def test_the_page_shows_the_models_weights(by):
    """Computed from the page's data alone, as its script does: rows averaged, columns summed."""
    attention = made(SOURCE, TARGET, layers=2, heads=3)
    data = data_of(page(attention, by))
    for kind in data["kinds"]:
        rows, columns = (data["sides"][kind[side]] for side in ("rows", "columns"))
        table = numpy.frombuffer(base64.b64decode(kind["weights"]), numpy.uint8) / 255.0
        sizes = [len(side["subwords"]) for side in (rows, columns)]
        table = (table**2).reshape(kind["layers"], kind["heads"], *sizes)
        shown = [
            [
                table[..., top : bottom + 1, left : right + 1].sum((2, 3)) / (bottom - top + 1)
                for _, left, right, _ in columns[by]
            ]
            for _, top, bottom, _ in rows[by]
        ]
        sides = (getattr(attention.sides[kind[side]], by) for side in ("rows", "columns"))
        expected = word_weights(attention.weights[kind["name"]], *sides)
        assert numpy.abs(numpy.array(shown).transpose(2, 3, 0, 1) - expected).max() < 0.01


def test_words_cannot_end_the_element_they_stand_in():
    found = Elements(page(made(ODD, ODD), "words"))
    assert found.names.count("script") == 2 and found.names.count("title") == 1
    assert found.text["dd"] == [" ".join(ODD).replace("@@ ", "")] * 2
    units = data_of(page(made(ODD, ODD), "words"))["sides"]["source"]["words"]
    assert [unit[0] for unit in units[:2]] == ["<script>hacked=1</script>", "</title>"]


def test_the_page_needs_nothing_from_elsewhere():
    text = page(made(SOURCE, TARGET), "words")
    assert "http:" not in text and "https:" not in text
    found = Elements(text)
    policies = [value for name, value in found.attributes if name == "content"]
    assert any("default-src 'none'" in value for value in policies)
    sources = [value for name, value in found.attributes if name in ("src", "href")]
    assert sources == ["data:,"]
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text)


# ---- the pictures ---------------------------------------------------------------------------


def test_more_weights_than_a_page_can_show_are_refused():
    model = small_model(encoder_layers=3)
    weights = 12 * 10 * 10 + 8 * (20 * 20 + 20 * 10)  # of the encoder's heads, the decoder's
    check_size(model, 10, 20, weights)
    with pytest.raises(UserError):
        check_size(model, 10, 20, weights - 1)
