"""The manifest of archives, and the recipes that name its parts."""

from dataclasses import fields

import pytest

from vaswani.common.errors import UserError
from vaswani.data.manifest import choose, read_manifest
from vaswani.data.recipe import Recipe, find_recipe, recipe_from
from vaswani.experiment.find import CONFIGS, read_yaml

RECIPES = [f"wmt14_en_{lang}{kind}" for lang in ("de", "fr") for kind in ("", "_t2t", "_fairseq")]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_states_every_value_and_names_parts_there_are(name):
    recipe, folder = find_recipe(name)
    assert str(folder) == f"data/{name}"
    table = read_yaml(CONFIGS / "data" / f"{name}.yaml")
    left_to_the_user = {"limit", "like", "valid", "valid_every"}
    left_to_the_user |= {"trees", "keep_tags", "subword"}  # none of them in WMT 2014
    assert {item.name for item in fields(Recipe)} - left_to_the_user <= set(table)
    manifest = read_manifest(str(recipe.archives))
    for split in ("train", "valid", "test"):
        for part in choose(manifest, recipe.parts(split), name):
            assert all(part.files(recipe.langs))


def test_the_papers_data_is_wmt14s():
    """5.1 and 6: news commentary v9, newstest2013 and 2014, 37,000 types, 32,000 for French."""
    german, french = (find_recipe(f"wmt14_en_{lang}")[0] for lang in ("de", "fr"))
    assert german.train == ["europarl-v7", "commoncrawl", "news-commentary-v9"]
    assert set(french.parts("train")) == {*german.parts("train"), "un", "giga-fren"}
    for recipe in (german, french):
        assert (recipe.valid, recipe.test) == ("newstest2013", "newstest2014")
        assert recipe.normalise == "none" and not recipe.straight_test_apostrophes
    assert (german.bpe, german.bpe_counts, french.bpe) == (37000, "types", 32000)


def test_archives_that_share_a_folder_have_different_names():
    parts = read_manifest("wmt14").values()
    names = [source.name for part in parts for source in part.sources]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("change", [{"normalise": "some"}, {"valid_every": 10}, {"valid": None}])
def test_an_impossible_recipe_is_refused(change):
    table = {"source_lang": "en", "target_lang": "de", "train": "t", "valid": "v"}
    assert recipe_from(table, "x").bpe == 10000
    with pytest.raises(UserError, match=next(iter(change))):
        recipe_from({**table, **change}, "x")
