"""A model folder's README.md: what it is, how it was trained, its scores, how to use it."""

from pathlib import Path
from typing import Any

from vaswani.common.templates import render
from vaswani.model_folder.folder import not_stored

TEMPLATE = Path(__file__).with_name("model_card.md.j2")
SCORES = TEMPLATE.with_name("scores.md.j2")


def card(config: dict[str, Any], packable: Any, folder: Path) -> str:
    """The model card, in Markdown.

    Args:
        config: config.json
        packable: the :class:`vaswani.model_folder.packing.Packable`
        folder: where the model is packed
    """
    parameters = count_parameters(packable)
    return render(TEMPLATE, parameters=parameters, folder=str(folder), **config)


def scores_table(scores: dict[str, Any]) -> str:
    """A card's table of scores, in Markdown; a sentence if there are none."""
    return render(SCORES, scores=scores)


def count_parameters(packable: Any) -> int:
    """How many parameters are stored: a matrix that embeddings and output share counts once."""
    again = not_stored(packable.architecture)
    return sum(value.numel() for name, value in packable.parameters.items() if name not in again)
