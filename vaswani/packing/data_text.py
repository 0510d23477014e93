"""How a data folder's text was prepared: from options, its recipe, or its dictionaries."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import is_inside, sha256_of
from vaswani.common.options import option
from vaswani.data.bpe import MARK
from vaswani.data.pieces import SPACE, check_dictionary, symbols
from vaswani.data.tokenisation import is_lowercase
from vaswani.folders.prepared_text import SUBWORD_FILES, PreparedText
from vaswani.folders.recipe import BPE, SENTENCEPIECE, SUBWORD_MODELS, Name, Recipe, TextRecipe
from vaswani_transformer.io import moses

#: names of the files: from 'vaswani prepare', in the archives of fairseq's models
FILE_NAMES = {
    BPE: (SUBWORD_FILES[BPE], "bpecodes", "code"),
    SENTENCEPIECE: (SUBWORD_FILES[SENTENCEPIECE], "sentencepiece.model", "spm.model"),
}
FLAGS = {BPE: "--bpe-codes", SENTENCEPIECE: "--sentencepiece-model"}


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What the user says about the data where the data does not; None: as the data says."""

    data: str | None = option(metavar="DIR", help="the data-bin, or a folder with dict.*.txt")
    source_lang: str | None = option(
        metavar="LANG", help="the source language, if neither the model nor the data names it"
    )
    target_lang: str | None = option(
        metavar="LANG", help="the target language, if neither the model nor the data names it"
    )
    bpe_codes: str | None = option(
        metavar="FILE", help="BPE codes, if the data's folder does not have them"
    )
    sentencepiece_model: str | None = option(
        metavar="FILE",
        help="SentencePiece model that split the data, if the data's folder does not have it",
    )
    tokeniser: str | None = option(
        choices=["moses", "none"],
        help="tokeniser for text to translate; none: it is already tokenised (default: as "
        "in the data's recipe)",
    )
    lowercase: bool | None = option(
        help="lower-case the text (default: if the dictionary has no capitals)"
    )


def text_recipe(
    options: DataOptions, folder: Path, langs: tuple[str, str], dictionaries: tuple[Path, Path]
) -> tuple[TextRecipe, Path | None]:
    """Return how the text was prepared, and its BPE codes or SentencePiece's model.

    They come from the options, from recipe.yaml, or from the dictionary.
    """
    text = PreparedText.around(folder)
    prepared = text.recipe()
    places = [text.folder, folder] if prepared else [folder]
    sides = [symbols(path) for path in dictionaries]
    kind, subword_model = find_subword_model(options, places, prepared, sides, dictionaries)
    if prepared:
        used = [*dictionaries, *([subword_model] if subword_model else [])]
        text.check([path for path in used if is_inside(path, text.folder)])
    # of pieces the dictionary has no rare letters, and so perhaps no capitals
    lowercase = kind != SENTENCEPIECE and is_lowercase(sides[0])
    lowercase = lowercase or bool(prepared and prepared.lowercase)
    elsewhere = TextRecipe(*langs, split_hyphens="@-@" in sides[0], text_rules=moses.VERSION)
    recipe = prepared.text if prepared else elsewhere
    tokeniser: Any = options.tokeniser or recipe.tokeniser
    recipe = replace(
        recipe,
        source_lang=langs[0],
        target_lang=langs[1],
        tokeniser="none" if kind == SENTENCEPIECE else tokeniser,
        lowercase=lowercase if options.lowercase is None else options.lowercase,
        subword=kind,
    )
    if not prepared:
        print(
            f"{folder} has no recipe.yaml: assuming the text is {describe_text(recipe)}",
            file=sys.stderr,
        )
    return recipe, subword_model


def find_subword_model(
    options: DataOptions,
    places: list[Path],
    prepared: Recipe | None,
    sides: list[list[str]],
    dictionaries: tuple[Path, Path],
) -> tuple[Name | None, Path | None]:
    """Return the kind of subwords (None: words are not split), and the learned file.

    Raises:
        UserError: there is no such file, or it is that of another dictionary.
    """
    files: dict[Name, str | None] = {
        BPE: options.bpe_codes,
        SENTENCEPIECE: options.sentencepiece_model,
    }
    words = [word for side in sides for word in side]
    parts: dict[Name, list[str]] = {
        BPE: [word for word in words if word.endswith(MARK.strip())],
        SENTENCEPIECE: [word for word in words if word.startswith(SPACE)],
    }
    kind = max(parts, key=lambda each: len(parts[each]))
    kind = next((each for each in files if files[each]), prepared.subword if prepared else kind)
    if prepared and kind != prepared.subword:
        raise UserError(
            f"{FLAGS[kind]} contradicts {PreparedText(places[0]).recipe_file}, whose text was "
            f"split by {prepared.subword}: leave out {FLAGS[kind]}"
        )
    named = files[kind]
    if not named and not parts[kind]:
        return None, None
    paths = [place / name for place in places for name in FILE_NAMES[kind]]
    in_data = next((path for path in paths if path.is_file()), None)
    subword_model = Path(named) if named else in_data
    if subword_model and in_data and sha256_of(subword_model) != sha256_of(in_data):
        raise UserError(
            f"{FLAGS[kind]} {subword_model} differs from {in_data}, which the data was split with: "
            f"leave out {FLAGS[kind]}"
        )
    if subword_model is None:
        raise UserError(
            f"{dictionaries[0]} has subwords ('{parts[kind][0]}'), but {places[-1]} has no "
            f"{SUBWORD_MODELS[kind].title} ({', '.join(FILE_NAMES[kind])}): give {FLAGS[kind]} "
            "FILE"
        )
    if kind == SENTENCEPIECE:
        for path in dictionaries:
            check_dictionary(subword_model, path)
    return kind, subword_model


def describe_text(recipe: TextRecipe) -> str:
    """Describe a recipe in words."""
    if recipe.subword == SENTENCEPIECE:
        return "raw, split by SentencePiece" + (" in lower case" if recipe.lowercase else "")
    tokens = "Moses tokens" + (" split at hyphens" if recipe.split_hyphens else "")
    prepared = [tokens if recipe.tokeniser == "moses" else "already tokenised"]
    if recipe.lowercase:
        prepared.append("in lower case")
    prepared.append("split by BPE" if recipe.subword else "not split by BPE")
    return ", ".join(prepared)
