"""``vaswani prepare`` on one's own text: options, and what each redoes.

fairseq's own part, the last stage, takes seconds and is tried elsewhere; here a folder stands for
it (``light``).
"""

import contextlib
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests import archives
from tests.files import write
from tests.own_text import STAGES, contents, here
from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.data.pipeline import Job, stages_of
from vaswani.data.read_recipe import recipe_from
from vaswani.folders.data_bin import SPLITS
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.recipe import Recipe


def prepare(capsys, *more):
    """Return the stages that ran."""
    capsys.readouterr()
    assert cli.main(here(*more)) == 0
    message = capsys.readouterr().err
    made = [line.split(": made (")[0] for line in message.splitlines() if ": made (" in line]
    return [name.rpartition("/")[2] for name in made]


@pytest.mark.parametrize(
    ("option", "redone"),
    [
        (["--limit", "20"], STAGES),
        (["--bpe", "20"], STAGES[2:]),
        (["--split-digits"], STAGES[2:]),
        (["--workers", "2"], []),
        (["--from", "bpe"], STAGES[3:]),
    ],
)
def test_a_changed_option_redoes_exactly_what_depends_on_it(own, light, capsys, option, redone):
    assert prepare(capsys) == STAGES
    assert prepare(capsys, *option) == redone
    assert prepare(capsys, *(option if option[0] != "--from" else [])) == []


#: other values of a recipe's words; those that only say where text is are no stage's option
WORDS = {
    "normalise": "all",
    "unicode": "NFC",
    "clean_after": "bpe",
    "subword": "sentencepiece",
    "bpe_counts": "types",
}
NO_OPTIONS = {"source_lang", "target_lang", *SPLITS, "archives", "restored_bleu", "expected"}
NO_OPTIONS |= {"like", "restored_lines"}


def last_key(recipe, **read):
    """Return the key of data-bin."""
    job = Job(recipe, PreparedText(Path("out")), 1, {}, read=read)
    key = job.source_key()
    for stage in stages_of(job):
        key = stage.key(job, key)
    return key


def test_every_option_of_a_recipe_is_in_the_key_of_a_stage(tmp_path):
    other_text = write(tmp_path / "codes", "a")
    recipe = Recipe("en", "de", "train", "valid", max_words=30, bpe_dropout=0.1)
    keys = []
    for name in {item.name for item in fields(Recipe)} - NO_OPTIONS:
        value = getattr(recipe, name)
        other = WORDS[name] if name in WORDS else not value if isinstance(value, bool) else 7
        keys.append(last_key(replace(recipe, **{name: other})))
    keys += [last_key(recipe, **{read: other_text}) for read in ("codes", "dictionary")]
    assert len({last_key(recipe), *keys}) == len(keys) + 1


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--bpe 0", "--bpe must be at least 1, not 0"),
        ("--ratio nan", "--ratio must be a finite number, not nan"),
        ("--limit -1", "--limit must be at least 1, not -1"),
        ("--valid-every 1", "--valid-every must be at least 2, not 1"),
        ("--workers 0", "--workers must be at least 1, not 0"),
    ],
)
def test_a_number_that_cannot_be_is_refused_before_anything_is_made(own, capsys, option, sentence):
    """Codes without a merge were made, and then called damaged."""
    text = ["--source-lang", "en", "--target-lang", "de", "--train", "train", "--valid", "valid"]
    assert cli.main(["prepare", *text, "--out", "data", *option.split()]) == 1
    assert sentence in capsys.readouterr().err and not Path("data").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--valid valid", "there is no training text: give --train"),
        ("--train train", "there is no validation text: give --valid"),
        ("--train train --valid valid --valid-every 2", "--valid and --valid-every"),
        ("--like data", "there is no text to prepare: with --like, give"),
    ],
)
def test_text_that_is_missing_or_given_twice_is_named(own, capsys, options, sentence):
    """One sentence said all of it, whatever was missing."""
    if "--like" in options:
        prepared = ["--train", "train", "--valid", "valid", "--bpe", "50", "--out", "data"]
        assert cli.main(["prepare", "--source-lang", "en", "--target-lang", "de", *prepared]) == 0
    languages = ["--source-lang", "en", "--target-lang", "de"]
    assert cli.main(["prepare", *languages, "--out", "more", *options.split()]) == 1
    assert sentence in capsys.readouterr().err and not Path("more").exists()


@pytest.mark.parametrize(
    ("key", "value"), [("bpe", 0), ("ratio", float("nan")), ("bpe", "many"), ("valid_every", 1)]
)
def test_a_number_in_a_recipe_is_refused_by_its_key(key, value):
    table = {"source_lang": "en", "target_lang": "de", "train": "a", "valid": "b", key: value}
    with pytest.raises(UserError, match=f"mine.yaml: {key} must be .*, not '?{value}"):
        recipe_from(table, "mine.yaml")


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("split_digits", "false", "true or false"),
        ("tokenised", 1, "true or false"),
        ("copies", 1.5, "a whole number"),
        ("bpe", True, "a whole number"),
        ("ratio", "2", "a number"),
        ("train", [1, 2], "text or a list of text"),
        ("expected", 7, "a table of whole numbers"),
    ],
)
def test_a_value_of_another_type_in_a_recipe_is_refused(key, value, kind):
    """ "false" in quotes meant true, and 1.5 copies were a traceback."""
    table = {"source_lang": "en", "target_lang": "de", "train": "a", "valid": "b", key: value}
    with pytest.raises(UserError, match=f"mine.yaml: {key} must be {kind}, not "):
        recipe_from(table, "mine.yaml")


def test_values_of_the_right_type_are_taken():
    table = {"source_lang": "en", "target_lang": "de", "valid": "b", "ratio": 2, "copies": 2}
    recipe = recipe_from({**table, "train": ["a", "c"], "bpe_dropout": 0.1}, "mine.yaml")
    assert (recipe.train, recipe.ratio) == (["a", "c"], 2)


def test_complete_data_need_no_text_any_more(own, light, capsys):
    """With ``--if-missing``, as on a machine to which only the data were copied."""
    assert prepare(capsys, "--if-missing") == STAGES
    for path in own.glob("train.*"):
        path.unlink()
    assert prepare(capsys, "--if-missing") == []
    Path("data/own/data-bin/made").unlink()
    assert cli.main(here("--if-missing")) == 1


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(own):
    """Two processes, all stages; a command that takes longer than its time is killed."""
    for lang in ("en", "de"):
        write(own / f"train.{lang}", *archives.sentences(lang, 40_000, 7))

    def command(out):
        return [sys.executable, "-m", "vaswani", *here("--workers", "2", "--out", out)]

    subprocess.run(command("whole"), check=True)
    for seconds in (1, 2, 4, 5, 6, 7, 8):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command("killed"), timeout=seconds)
    subprocess.run(command("killed"), check=True)
    for name, content in contents(own / "whole").items():
        assert ".stages" in name or content == (own / "killed" / name).read_bytes(), name
