"""The key of a stage: of all its options, and the same as in version 0.1."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from vaswani.commands import prepare
from vaswani.common.artifact import key_of
from vaswani.data.clean import Limits
from vaswani.data.recipe import Recipe
from vaswani.data.stage_options import TextOptions, TokenOptions
from vaswani.data.steps import Job, Like

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
IN_THE_INPUT = {"source_lang", "target_lang", "train", "valid", "test", "generate", "archives"}
SHOWN = {"expected"}
RECIPE = Recipe("en", "de", generate="phrases", max_words=30)


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


def test_the_keys_are_those_of_version_0_1():
    """As its code put them together."""
    recipe = replace(RECIPE, valid_every=7, straight_test_apostrophes=True, dictionary=50)
    limits = [{"min_words": None, "max_words": 30, "ratio": None}] * 2
    none = [{"min_words": None, "max_words": None, "ratio": None}] * 2
    key = key_of(["phrases", ["en", "de"], prepare.phrases.VERSION])
    for clean_after, tok, bpe in (("tok", limits, []), ("bpe", none, limits)):
        found = keys(replace(recipe, clean_after=clean_after))
        before = key
        for name, options in {
            "text": ["none", 7, None],
            "tok": [[False, False, True], tok],
            "codes": [10000, "merges"],
            "bpe": bpe,
            "data-bin": 50,
        }.items():
            before = key_of([before, name, options])
            assert found[name] == before, name
        assert len(found) == 5


def test_a_new_option_is_in_the_key_only_where_it_is_given():
    """What a later version may add, to a stage or to its limits."""

    @dataclass(frozen=True)
    class Text(TextOptions):
        reverse: bool = False

    assert Text().in_key() == TextOptions().in_key()
    assert Text(reverse=True).in_key() == [TextOptions().in_key(), {"reverse": True}]

    @dataclass(frozen=True)
    class Letters(Limits):
        letters: int = 1000

    keys = [TokenOptions(limits={"train": one}).in_key() for one in (Limits(), Letters())]
    assert keys[0] == keys[1] != TokenOptions(limits={"train": Letters(letters=9)}).in_key()
