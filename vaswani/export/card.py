"""An exported model's README.md: how to use it, and its proof."""

from pathlib import Path

from vaswani.common.files import Table
from vaswani.common.templates import render
from vaswani.data.text_recipe import SUBWORD_MODELS
from vaswani.export.to_huggingface import END, UNKNOWN
from vaswani.model_folder.folder import ModelFolder

TEMPLATE = Path(__file__).with_name("card.md.j2")
HUGGING_FACE = TEMPLATE.with_name("huggingface_card.md.j2")


def export_card(
    table: Table,
    packed: ModelFolder,
    folder: Path,
    proof: list[str],
    user_dir: str | None = None,
) -> str:
    """The card, in Markdown.

    Args:
        table: vaswani.json
        packed: the model folder
        folder: the export's folder
        proof: the lines of the comparison; none if there was none
        user_dir: defines the model, if it is a variant of the paper's
    """
    values = {**table, "proof": proof}  # not the table's, which has more digits
    values.update(user_dir=user_dir, variant=packed.config.get("variant"))
    values.update(folder=str(folder), kind=SUBWORD_MODELS.get(table["text"]["bpe"]))
    if table["target"] == "huggingface":
        source, target = (packed.dictionary(lang).read_bytes() for lang in packed.langs)
        values.update(end=END, unknown=UNKNOWN, two_vocabularies=source != target)
        return render(HUGGING_FACE, **values)
    flags = [
        f"--{name.replace('_', '-')} {value:g}"
        for name, value in table["generation"].items()
        if name != "length_penalty"  # fairseq's search knows only its own
    ]
    return render(TEMPLATE, search_flags=" ".join(flags), **values)
