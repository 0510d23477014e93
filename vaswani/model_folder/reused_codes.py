"""Prepares text as other text was: with its recipe, its BPE codes and its dictionary.

A trained model knows only the subwords of its own codes and dictionary. A second test set, or text
to fine-tune on, must be split and numbered with these (fairseq's ``--srcdict``), never its own.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Dict

from vaswani.common.errors import UserError
from vaswani.common.files import read_json, sha256_of
from vaswani.data.pieces import check_dictionary
from vaswani.data.recipe import Recipe, recipe_from
from vaswani.data.steps import Like
from vaswani.data.subwords import KINDS, SENTENCEPIECE, kind_of, learned_in
from vaswani.data.text import SPLITS
from vaswani.experiment.find import find_run, first_data_bin, read_yaml
from vaswani.model_folder.data_text import symbols
from vaswani.model_folder.finetune_source import codes_and_dictionary, is_model, recipe_table
from vaswani.model_folder.folder import CONFIG

#: what a recipe says about its own text, and not about how text is processed
OF_THE_TEXT = (
    *SPLITS,
    "archives",
    "valid_every",
    "limit",
    "expected",
    "like",
)


def find_like(name: str) -> Path:
    """The folder of prepared text that a folder, a data-bin or a run refers to; or a packed model.

    Raises:
        UserError: there is none, or its dictionary is not the one that the run was trained with.
    """
    path = Path(name)
    if is_model(path):
        return path
    for folder in (path, path.parent):
        if learned_in(folder)[1] and (folder / "data-bin").is_dir():
            return folder
    if (path / "data-bin").is_dir() or any(path.glob("dict.*.txt")):
        raise UserError(
            f"{name} has no {title_of(path)} beside its data-bin: --like takes what 'vaswani "
            "prepare' made"
        )
    run = find_run(name)
    data = first_data_bin(read_yaml(run / "config.yaml")["task"]["data"])
    if not learned_in(data.parent)[1]:
        raise UserError(
            f"{run} was trained on {data}, which no longer exists, or has no "
            f"{title_of(data.parent)} beside it: --like needs what 'vaswani prepare' made for it"
        )
    before = read_json(run / "env.json").get("data", {}).get("sha256", {})
    for dict_file in sorted(data.glob("dict.*.txt")):
        if before.get(dict_file.name, "") not in ("", sha256_of(dict_file)):
            raise UserError(f"{dict_file} is no longer the dictionary that {run} was trained with")
    return data.parent


def reused_codes(folder: Path) -> Like:
    """The codes and the dictionary in a folder of prepared text, or of a packed model.

    Raises:
        UserError: there is no dictionary, or one for each language, or one of other pieces.
    """
    if is_model(folder):
        files = codes_and_dictionary(folder)
        return Like(*files, (sha256_of(files[0]), sha256_of(files[1])))
    dictionaries = sorted((folder / "data-bin").glob("dict.*.txt"))
    hashes = {sha256_of(path) for path in dictionaries}
    if len(hashes) != 1:
        number = "two dictionaries" if hashes else "no dictionary"
        raise UserError(f"{folder}/data-bin has {number}, but --like needs one for both languages")
    kind, codes = learned_in(folder)
    assert codes is not None, "it was found by it"
    if kind == SENTENCEPIECE:
        check_dictionary(codes, dictionaries[0], symbols(dictionaries[0]))
    return Like(codes, dictionaries[0], (sha256_of(codes), hashes.pop()))


def title_of(folder: Path) -> str:
    """What a folder's subwords would be made with."""
    return KINDS[learned_in(folder)[0]].title


def recipe_like(name: str, folder: Path, own: Dict[str, Any]) -> Recipe:
    """A folder's recipe applied to other text, with changes from the arguments ``own``.

    Raises:
        UserError: the arguments contradict it, or name no text.
    """
    where = f"{folder}/{CONFIG if is_model(folder) else 'recipe.yaml'}"
    table = recipe_table(folder) if is_model(folder) else read_yaml(folder / "recipe.yaml")
    kind = kind_of(table)
    if own.get("bpe") or own.get("subword") not in (None, kind):
        raise UserError(
            f"--bpe and --subword exclude --like {name}: its text was split by {kind}, with the "
            f"codes in {folder}"
        )
    known = {item.name for item in fields(Recipe)} - set(OF_THE_TEXT)
    table = {key: value for key, value in table.items() if key in known}
    langs = (table.get("source_lang"), table.get("target_lang"))
    languages = tuple(own.get(key) or table.get(key) for key in ("source_lang", "target_lang"))
    if languages not in (langs, langs[::-1]):
        raise UserError(
            f"{name} is {langs[0]}-{langs[1]}, and has no codes for {languages[0]}-{languages[1]}"
        )
    given = {key: value for key, value in own.items() if value is not None}
    recipe = recipe_from({**table, **given, "like": str(folder)}, f"{where} with the options")
    return replace(recipe, bpe=table.get("bpe", recipe.bpe))
