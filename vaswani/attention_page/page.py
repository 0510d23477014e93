"""The attention of a model as one self-contained HTML page.

The template is ``page.html``, with its style sheet and script beside it; the page holds the
weights as bytes: 255 √w, rounded, in base64. The root keeps small weights distinct, and no weight
is off by more than 0.004.
"""

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path

import numpy

from vaswani.attention_page.maps import KINDS, Attention, Side, Unit
from vaswani.common.templates import render

#: weights on a page, each of which takes 4/3 bytes: 32 MB
MOST_WEIGHTS = 24_000_000
HERE = Path(__file__)
VIEWS = ("words", "subwords")


def page(attention: Attention, by: str) -> str:
    """Return the attention page as HTML.

    Args:
        attention: what it shows
        by: what it shows first, "words" or "subwords"
    """
    source, target = attention.sides["source"], attention.sides["target"]
    parts = {
        "style": HERE.with_suffix(".css").read_text(encoding="utf-8"),
        "program": HERE.with_suffix(".js").read_text(encoding="utf-8"),
        "data": as_json(data_of(attention, by)),
        "title": html.escape(f"Attention: {attention.source}"),
        "source": html.escape(attention.source),
        "target": html.escape(attention.target),
        "source_lang": html.escape(source.lang),
        "target_lang": html.escape(target.lang),
        "whose": "the model’s own translation" if attention.translated else "as given",
    }
    return render(HERE.with_suffix(".html"), **parts)


def as_json(table: Mapping[str, object]) -> str:
    """Return JSON that cannot close the HTML element it is in."""
    return json.dumps(table, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def data_of(attention: Attention, by: str) -> dict[str, object]:
    """Return what the page's script reads."""
    kinds = []
    for name, weights in attention.weights.items():
        kind = KINDS[name]
        kinds.append(
            {
                "name": name,
                "title": kind.title,
                "rows": kind.rows,
                "columns": kind.columns,
                "layers": weights.shape[0],
                "heads": weights.shape[1],
                "weights": as_base64(weights),
            }
        )
    sides = {name: side_as_json(side) for name, side in attention.sides.items()}
    return {"by": by, "sides": sides, "kinds": kinds}


def side_as_json(side: Side) -> dict[str, object]:
    """Return a side as the page's script reads it."""
    units: dict[str, list[Unit]] = {view: getattr(side, view) for view in VIEWS}
    return {"lang": side.lang, "dir": side.direction, **units}


def as_base64(weights: numpy.ndarray) -> str:
    """Return weights as bytes in base64."""
    roots = numpy.rint(255 * numpy.sqrt(weights)).astype(numpy.uint8)
    return base64.b64encode(roots.tobytes()).decode("ascii")
