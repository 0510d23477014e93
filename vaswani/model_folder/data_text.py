"""How a data folder's text was prepared: from options, its recipe, or its dictionaries."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Tuple

from vaswani.common.errors import UserError
from vaswani.common.options import option
from vaswani.data.bpe import MARK
from vaswani.experiment.find import read_yaml
from vaswani.model_folder.text_recipe import TextRecipe

#: names of BPE code files: from 'vaswani prepare', in the archives of fairseq's models
CODE_NAMES = ("codes", "bpecodes", "code")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What the user says about the data if it does not say so itself; None: see the data."""

    data: Optional[str] = option(metavar="DIR", help="the data-bin, or a folder with dict.*.txt")
    source_lang: Optional[str] = option(
        metavar="LANG", help="the source language, if neither the model nor the data names it"
    )
    target_lang: Optional[str] = option(
        metavar="LANG", help="the target language, if neither the model nor the data names it"
    )
    bpe_codes: Optional[str] = option(metavar="FILE", help="BPE codes, if the data has none")
    tokeniser: Optional[str] = option(
        choices=["moses", "none"],
        help="none: text to translate is tokens already (default: as in the data's recipe)",
    )
    lowercase: Optional[bool] = option(
        help="lower-case the text (default: if the dictionary has no capitals)"
    )


def text_recipe(
    given: DataOptions, folder: Path, langs: Tuple[str, str], dictionaries: Tuple[Path, Path]
) -> Tuple[TextRecipe, Optional[Path]]:
    """How the text was prepared, and its BPE codes: from options, recipe.yaml or the dictionary.

    Raises:
        UserError: words are split, but there are no codes.
    """
    places = [folder.parent, folder] if (folder.parent / "recipe.yaml").is_file() else [folder]
    prepared = read_yaml(places[0] / "recipe.yaml") if len(places) > 1 else {}
    sides = [symbols(path) for path in dictionaries]
    codes = Path(given.bpe_codes) if given.bpe_codes else None
    split = next((word for side in sides for word in side if word.endswith(MARK.strip())), None)
    if codes is None and split is not None:
        paths = [place / name for place in places for name in CODE_NAMES]
        codes = next((path for path in paths if path.is_file()), None)
        if codes is None:
            raise UserError(
                f"{dictionaries[0]} has parts of words ('{split}'), but {folder} has no BPE codes "
                f"({', '.join(CODE_NAMES)}): give --bpe-codes FILE"
            )
    if codes is not None and not codes.is_file():
        raise UserError(f"there are no BPE codes {codes}")
    tokeniser: Any = given.tokeniser or ("none" if prepared.get("tokenised") else "moses")
    recipe = TextRecipe(
        *langs,
        normalise=prepared.get("normalise") or "none",
        straight_apostrophes=bool(prepared.get("straight_test_apostrophes")),
        tokeniser=tokeniser,
        split_hyphens=prepared.get("split_hyphens", "@-@" in sides[0]),
        lowercase=is_lowercase(sides[0]) if given.lowercase is None else given.lowercase,
        bpe="subword_nmt" if codes else None,
    )
    if not prepared:
        print(
            f"{folder} has no recipe.yaml: assuming the text is {describe(recipe)}", file=sys.stderr
        )
    return recipe, codes


def describe(recipe: TextRecipe) -> str:
    """A recipe in words."""
    moses = "Moses tokens" + (" split at hyphens" if recipe.split_hyphens else "")
    prepared = [moses if recipe.tokeniser == "moses" else "tokens as they come"]
    if recipe.lowercase:
        prepared.append("in lower case")
    prepared.append("split by BPE" if recipe.bpe else "not split by BPE")
    return ", ".join(prepared)


def symbols(dictionary: Path) -> List[str]:
    """The words of a dictionary file, without fairseq's padding words."""
    with open(dictionary, encoding="utf-8", newline="\n") as stream:
        words = [line.split(" ", 1)[0] for line in stream]
    return [word for word in words if not word.startswith("madeupword")]


def is_lowercase(words: List[str]) -> bool:
    """Whether a dictionary has lower-case letters and no capitals."""
    return any(word != word.upper() for word in words) and all(w == w.lower() for w in words)
