"""Is a Transformer the paper's? A card of checks for any implementation in torch.

    from vaswani_transformer.check import check
    print(check("mine.py").text())

In the order in which to read it:

    template.py      the file that describes an implementation; 'vaswani check --template' prints it
    subject.py       the implementation under check: its sizes, and its functions
    card.py          what a check is, and the card of all results
    whole_model.py   what needs only logits: masks, order, matrices, heads, dropout
    trace.py         the softmaxes and random numbers of a model while it runs
    embeddings.py    3.4, 3.5
    first_layer.py   3.1, 3.3: the encoder's first layer
    attention.py     3.2.1
    training.py      5.3, 5.4: learning rate, optimizer, loss
    searching.py     6.1: beam search, of a model that learns three sentences first
"""

from pathlib import Path
from typing import Any

from . import (  # noqa: F401 (each adds its checks)
    attention,
    embeddings,
    first_layer,
    masks,
    output,
    scores,
    searching,
    training,
    whole_model,
    wiring,
)
from .card import CHECKS, Card, Result, not_checked
from .subject import AdapterError, Config, Subject, load

__all__ = ["AdapterError", "Card", "Config", "Result", "check"]


def check(adapter: Any, config: Config | None = None) -> Card:
    """Check an implementation against the paper.

    Args:
        adapter: a file, or a module or another object with ``build``, ``logits`` and any of the
            template's other functions
        config: what to build; the adapter's ``CONFIG``, if not given

    Raises:
        AdapterError: a function of the adapter fails, or returns what it should not.
    """
    name = getattr(adapter, "__name__", type(adapter).__name__)
    if isinstance(adapter, (str, Path)):
        adapter, name = load(Path(adapter)), str(adapter)
    subject = Subject(adapter, config, name)
    found = []
    for each in CHECKS:
        missing = [function for function in each.needs if not subject.has(function)]
        found.append((each, not_checked(f"define {missing[0]}") if missing else each.look(subject)))
    return Card(name, found)


def template() -> str:
    """A file to begin with: it describes this project's own Transformer."""
    return Path(__file__).with_name("template.py").read_text(encoding="utf-8")
