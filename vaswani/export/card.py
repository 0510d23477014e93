"""An exported model's README.md: how to use it, and its proof."""

from pathlib import Path
from typing import Any, Dict, List

from vaswani.common.templates import render
from vaswani.data.subwords import KINDS

TEMPLATE = Path(__file__).with_name("card.md.j2")


def export_card(table: Dict[str, Any], folder: Path, proof: List[str]) -> str:
    """The card, in Markdown.

    Args:
        table: vaswani.json
        folder: the export's folder
        proof: the lines of the comparison
    """
    flags = [
        f"--{name.replace('_', '-')} {value:g}"
        for name, value in table["generation"].items()
        if name != "length_penalty"  # fairseq's search knows only its own
    ]
    values = {**table, "proof": proof}  # not the table's, which has more digits
    kind = KINDS.get(table["text"]["bpe"])
    return render(TEMPLATE, folder=str(folder), kind=kind, search_flags=" ".join(flags), **values)
