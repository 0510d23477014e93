"""An exported model's README.md: how to use it, its proof, and what the model's own card says."""

from pathlib import Path

from vaswani.common.markdown import as_section, front_matter, without_dead_links
from vaswani.common.templates import render
from vaswani.export.to_huggingface import END, PAD, UNKNOWN
from vaswani.folders.exported_model import ExportTable
from vaswani.folders.model_folder import ModelFolder

TEMPLATE = Path(__file__).with_name("card.md.j2")
HUGGING_FACE = TEMPLATE.with_name("huggingface_card.md.j2")
#: keys of a card's first lines that name a licence, as the Hugging Face Hub reads them
LICENCE_KEYS = ("license:", "license_name:", "license_link:")


def export_card(
    table: ExportTable,
    folder: ModelFolder,
    out: Path,
    proof: list[str],
    user_dir: str | None = None,
) -> str:
    """Return the model card of an export, in Markdown.

    Args:
        table: vaswani.json
        folder: of the packed model
        out: the export's folder
        proof: the lines of the comparison; none if there was none
        user_dir: defines the model, if it is a variant of the paper's
    """
    own_card = folder.card
    values = {**table.to_json(), "proof": proof}  # not the table's, which has more digits
    recipe = folder.recipe
    values["text"] = recipe.to_json()  # complete, where an earlier version packed it
    values["languages"] = [*map(recipe.language, recipe.langs)]
    values.update(user_dir=user_dir, variant=folder.table.variant)
    file = folder.subword_model
    values.update(folder=str(out), subword_file=file.name if file else None)
    values.update(licence_lines=licence_lines(own_card), about=about_the_model(own_card))
    if table.target == "huggingface":
        source, target = (folder.dictionary(lang).read_bytes() for lang in folder.langs)
        values.update(end=END, pad=PAD, unknown=UNKNOWN, two_vocabularies=source != target)
        return render(HUGGING_FACE, **values)
    flags = [
        f"--{name.replace('_', '-')} {value:g}"
        for name, value in table.generation.items()
        # fairseq's search knows only its own length penalty, and no repeated n-grams
        if name not in ("length_penalty", "no_repeat_ngram_size")
    ]
    return render(TEMPLATE, search_flags=" ".join(flags), **values)


def licence_lines(card: str) -> list[str]:
    """Return the first lines of a card that name a licence."""
    return [line for line in front_matter(card) if line.startswith(LICENCE_KEYS)]


def licence_of(folder: ModelFolder) -> str | None:
    """Return the licence that a packed model's card names, such as ``cc-by-4.0``; None if none."""
    for line in licence_lines(folder.card):
        key, _, value = line.partition(":")
        if key == "license":
            return value.strip().strip("'\"")
    return None


def about_the_model(card: str) -> str:
    """Return the parts of a packed model's card on training, text, limits and scores.

    Links to files are left out, as these are not beside the export.
    """
    return without_dead_links(as_section(card, without="Use"))
