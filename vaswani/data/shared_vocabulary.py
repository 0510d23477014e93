"""Text prepared as other text was (``--like``).

A trained model knows only the subwords of its own codes and dictionary. A second test set, or text
to fine-tune on, must be split and numbered with these (fairseq's ``--srcdict``), never its own.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.data.pieces import check_dictionary, symbols
from vaswani.data.read_recipe import recipe_from
from vaswani.data.tokenisation import is_lowercase
from vaswani.folders.data_bin import SPLITS
from vaswani.folders.model_folder import ModelText, is_model_folder
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.recipe import (
    BPE,
    SENTENCEPIECE,
    SUBWORD_MODELS,
    Recipe,
)
from vaswani.folders.run import Run


@dataclass(frozen=True)
class SharedVocabulary:
    """Codes and dictionary in a folder of prepared text or a packed model, and its recipe."""

    folder: Path
    recipe: Recipe
    #: codes (or SentencePiece's model), and the one dictionary of both languages
    files: tuple[Path, Path]

    def recipe_for(self, own: Mapping[str, object], name: str) -> Recipe:
        """Return the recipe for other text, with changes from the arguments ``own``.

        Raises:
            UserError: the arguments contradict it, or name no text.
        """
        before = self.recipe
        learned = own.get("bpe") or own.get("split_digits")
        if learned or own.get("subword") not in (None, before.subword):
            raise UserError(
                f"--bpe, --split-digits and --subword cannot be used with --like {name}, which "
                "already sets how text is split: leave them out"
            )
        of_the_text = dict.fromkeys(
            [
                *[*SPLITS, "archives", "valid_every", "limit", "expected"],
                *["restored_lines", "restored_bleu", "bpe_dropout", "copies"],
            ]
        )
        table = {**asdict(before), **of_the_text, **own, "like": str(self.folder)}
        return recipe_from(table, f"{self.folder}, with the options")


def shared_vocabulary(name: str) -> SharedVocabulary:
    """Return the subword model and dictionary of a run, a model, or a folder of text.

    Raises:
        UserError: there is no text; it has no codes, or not one dictionary, or not the run's.
    """
    if is_model_folder(Path(name)):
        return in_model(Path(name))
    prepared = text_named(name) or text_of_run(name)
    kind, codes = prepared.subword_model()
    recipe = prepared.recipe()
    dictionaries = prepared.data_bin.dictionaries()
    if recipe is None:
        raise UserError(
            f"--like {name}: {prepared.folder} has no {prepared.recipe_file.name}: give text that "
            "'vaswani prepare' made"
        )
    if codes is None:
        raise UserError(
            f"--like {name}: {prepared.folder} has no {SUBWORD_MODELS[kind].title}: give text that "
            "was split into subwords"
        )
    if len({sha256_of(path) for path in dictionaries}) != 1:
        raise UserError(
            f"--like {name}: the dictionaries of {prepared.folder} differ: give text with one "
            "dictionary for both languages"
        )
    prepared.check([codes, *dictionaries])
    if kind == SENTENCEPIECE:
        check_dictionary(codes, dictionaries[0])
    if kind == BPE and is_lowercase(symbols(dictionaries[0])):  # as 'vaswani pack' decides
        recipe = replace(recipe, lowercase=True)
    return SharedVocabulary(prepared.folder, recipe, (codes, dictionaries[0]))


def text_named(name: str) -> PreparedText | None:
    """Return the prepared text in a folder or around a data-bin; None if it is neither."""
    places = [PreparedText(Path(name)), PreparedText(Path(name).parent)]
    return next((text for text in places if text.has_data_bin), None)


def is_text(name: str) -> bool:
    """Return whether ``--like`` names prepared text, rather than a run or a packed model."""
    return not is_model_folder(Path(name)) and text_named(name) is not None


def in_model(folder: Path) -> SharedVocabulary:
    """Return the codes and the dictionary of a packed model, and the recipe of its text.

    Raises:
        UserError: the folder is damaged, words are not split, or the dictionaries differ.
    """
    text = ModelText.read_unchecked(folder)
    codes = text.subword_model
    recipe = text.recipe
    if codes is None or recipe.subword is None:
        raise UserError(
            f"--like {folder}: the model has no BPE codes: give a model, a run or text whose words "
            "are split into subwords"
        )
    text.check_files()
    source, target = map(text.dictionary, text.langs)
    if sha256_of(source) != sha256_of(target):
        raise UserError(
            f"--like {folder}: the dictionaries of the model differ: give a model, a run or text "
            "with one dictionary for both languages"
        )
    of_data = Recipe(
        *recipe.langs,
        normalise=recipe.normalise,
        subword=recipe.subword,
        tokenised=recipe.tokeniser == "none" and recipe.subword != SENTENCEPIECE,
        split_hyphens=recipe.split_hyphens,
        straight_test_apostrophes=recipe.straight_apostrophes,
        lowercase=recipe.lowercase,
        unicode=recipe.unicode,
        text_rules=recipe.text_rules,
    )
    return SharedVocabulary(folder, of_data, (codes, source))


def text_of_run(name: str) -> PreparedText:
    """Return the folder of the text that a run was trained on.

    Raises:
        UserError: there is no such run, or its dictionary is not the one of before.
    """
    run = Run.find(name)
    data = run.data_bin
    before = run.start().data.sha256
    for path in data.dictionaries():
        if before.get(path.name, "") not in ("", sha256_of(path)):
            raise UserError(
                f"{path} is no longer the dictionary that {run} was trained with: restore the "
                "file, or give a packed model of the run"
            )
    return PreparedText.around(data.folder)
