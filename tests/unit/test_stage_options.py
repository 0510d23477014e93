"""The key of a stage: of all its options."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from vaswani.commands import prepare
from vaswani.data.recipe import Recipe
from vaswani.data.steps import Job, Like
from vaswani.data.text import SPLITS

#: a recipe's other values; those that only say where text is, or are shown, are no stage's option
OTHERS = {
    "normalise": "all",
    "valid_every": 7,
    "limit": 100,
    "tokenised": True,
    "split_hyphens": True,
    "straight_test_apostrophes": True,
    "min_words": 2,
    "max_words": 9,
    "ratio": 3.0,
    "clean_after": "bpe",
    "bpe": 99,
    "subword": "sentencepiece",
    "bpe_counts": "types",
    "dictionary": 50,
    "trees": True,
    "keep_tags": True,
}
IN_THE_INPUT = {"source_lang", "target_lang", "train", "valid", "test", "archives"}
SHOWN = {"expected"}
RECIPE = Recipe("en", "de", *SPLITS, max_words=30)


@pytest.fixture(autouse=True)
def texts(tmp_path, monkeypatch):
    """What the recipe names, as text and as trees."""
    monkeypatch.chdir(tmp_path)
    for split in SPLITS:
        for name in (split, f"{split}.en", f"{split}.de"):
            Path(name).write_text("a\n")


def keys(recipe, like=None):
    """Stage → its key."""
    key, stages, _ = prepare.plan_stages(Job(recipe, Path("out"), 1, {}, Path(), like=like), None)
    found = {}
    for step in stages:
        key = found[step.name] = step.key(key)
    return found


def test_every_field_of_a_recipe_is_known_here():
    """A new field needs another value above; then it has to be an option of some stage."""
    assert {item.name for item in fields(Recipe)} == {*OTHERS, *IN_THE_INPUT, *SHOWN, "like"}


@pytest.mark.parametrize("name", OTHERS)
def test_another_option_is_another_key(name):
    before, after = keys(RECIPE), keys(replace(RECIPE, **{name: OTHERS[name]}))
    assert before["data-bin"] != after["data-bin"]


def test_other_codes_and_another_dictionary_are_other_keys():
    first, second = (keys(RECIPE, Like(Path(), Path(), pair)) for pair in (("a", "b"), ("a", "c")))
    assert first["bpe"] == second["bpe"] != keys(RECIPE)["bpe"]
    assert first["data-bin"] != second["data-bin"]
