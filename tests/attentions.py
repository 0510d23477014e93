"""Attention over made-up sentences, for the tests of the page and the pictures."""

from collections.abc import Sequence
from typing import Any

import numpy
from fairseq.data import Dictionary

from vaswani.attention_page.maps import KINDS, Attention, side

ARABIC = ["يقر@@", "أ", "الولد", "كتا@@", "با", "جد@@", "يدا", "."]
HEBREW = ["הילד", "קו@@", "רא", "ספר", "חדש", "."]
ODD = ["<script>hacked=1</script>", "</title>", "&amp;", '"', "'", "a@@", "b", "$x$", "{{data}}"]


def weights(layers: int, heads: int, rows: int, columns: int, seed: int) -> Any:
    """Return random weights [layers, heads, rows, columns], each row a distribution."""
    scores = numpy.random.RandomState(seed).randn(layers, heads, rows, columns) * 3
    powers = numpy.exp(scores).astype(numpy.float32)
    return powers / powers.sum(-1, keepdims=True)


def made(
    source: Sequence[str],
    target: Sequence[str],
    layers: int = 2,
    heads: int = 4,
    langs: Sequence[str] = ("en", "de"),
    unknown: Sequence[str] = (),
) -> Attention:
    """Return an attention with random weights over these subwords."""
    known = Dictionary()
    for subword in {*source, *target} - set(unknown):
        known.add_symbol(subword)
    sides = {
        "source": side(langs[0], source, known),
        "target": side(langs[1], target, known),
        "read": side(langs[1], target, known, starts=True),
    }
    counts = {name: len(found.subwords) for name, found in sides.items()}
    maps: dict[str, Any] = {}
    for seed, (name, kind) in enumerate(KINDS.items()):
        maps[name] = weights(layers, heads, counts[kind.rows], counts[kind.columns], seed)
    return Attention(text(source), text(target), True, sides, maps)


def text(subwords: Sequence[str]) -> str:
    """Join subwords to a sentence."""
    return (" ".join(subwords) + " ").replace("@@ ", "").strip()
