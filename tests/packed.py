"""Small packed models for the tests, made in milliseconds, with random weights."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary

from tests.models import SMALL, small_model, task
from transformer_plugin.model import VaswaniTransformerModel
from vaswani.common.files import write_json
from vaswani.folders import model_folder
from vaswani.folders.recipe import TextRecipe
from vaswani.packing.networks import packed_options
from vaswani_transformer.io.folder_table import ModelTable
from vaswani_transformer.io.packed import write_weights

WORDS = ["the", "house", "is", "big", "small", "dog", "cat", "sees", "a", ".", ",", "1", "2", "3"]


def dictionary(words: Sequence[str] = WORDS) -> Dictionary:
    """Return a dictionary of these words."""
    found = Dictionary()
    for word in words:
        found.add_symbol(word)
    return found


def pack(
    folder: Path,
    recipe: TextRecipe = TextRecipe("en", "de", tokeniser="none", subword=None),  # noqa: B008
    words: Sequence[str] = WORDS,
    seed: int = 0,
    **options: Any,
) -> VaswaniTransformerModel:
    """Pack a small model with random weights, and return it."""
    known = dictionary(words)
    model = small_model(seed, task(known, known), **options)
    write(folder, model, recipe, known)
    return model


def write(
    folder: Path,
    model: VaswaniTransformerModel,
    recipe: TextRecipe,
    known: Dictionary,
    codes: Path | None = None,
) -> None:
    """Pack a model with one dictionary for both sides, and what splits its text, if anything."""
    table = ModelTable(
        architecture={name: getattr(model.cfg, name) for name in packed_options()},
        text=recipe.to_json(),
        generation={"beam": 2, "max_len_a": 1, "max_len_b": 5},
        origin={},
    )

    def fill(part: Path) -> None:
        write_json(part / model_folder.CONFIG, table.to_json())
        write_weights(part / model_folder.WEIGHTS, model.state_dict(), model.cfg)
        for lang in (recipe.source_lang, recipe.target_lang):
            known.save(str(part / f"dict.{lang}.txt"))
        if codes:
            shutil.copy(codes, part)
        (part / model_folder.CARD).write_text("# A model\n")

    model_folder.write_folder(folder, fill)


assert SMALL["max_source_positions"] == 64  # the tests' long lines are longer
