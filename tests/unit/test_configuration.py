"""The flow of a configuration: read, completed by one function, and read-only from there on.

YAML that reads as something else than was meant is refused, with file and line.
"""

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ReadonlyConfigError

from vaswani.common.errors import UserError
from vaswani.common.yaml_tables import read_yaml
from vaswani.configuration.fairseq_config import (
    complete,
    fairseq_form,
    read_configuration,
    writable,
)

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture(scope="module")
def config():
    return read_configuration(CONFIGS / "demo_en_de.yaml")


def test_nobody_changes_a_configuration_that_was_read(config):
    with pytest.raises(ReadonlyConfigError):
        config.task.source_lang = "fr"
    with pytest.raises(ReadonlyConfigError):
        config.checkpoint.update({"save_dir": "elsewhere"})


def test_what_a_command_adds_is_in_a_new_configuration(config):
    before = OmegaConf.to_yaml(config)
    completed = complete(config, {"task": {"target_lang": "fr"}, "common": {"seed": 3}})
    assert (completed.task.target_lang, completed.common.seed) == ("fr", 3)
    assert OmegaConf.to_yaml(config) == before
    with pytest.raises(ReadonlyConfigError):
        completed.common.seed = 4


@pytest.mark.parametrize("name", ["demo_en_de", "multi30k_en_de_fairseq"])
def test_fairseq_gets_a_copy_that_it_may_change(name):
    """Also of an old model without a dataclass, whose section is a Namespace there."""
    config = read_configuration(CONFIGS / f"{name}.yaml")
    before = OmegaConf.to_yaml(config)
    form = fairseq_form(config)
    form.optimization.max_epoch = 3
    form.model.dropout = 0.25
    assert OmegaConf.to_yaml(config) == before


def test_what_fairseq_does_not_find_has_its_default(config):
    """The omegaconf of official fairseq would give None for a key that could still be added."""
    for form in (fairseq_form(config), writable(complete(config, {}))):
        assert getattr(form.model, "base_layers", 0) == 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: .* key a"),
        ("rows:\n  - {x: 1, y: 2, x: 3}\n", "line 2: .* key x"),
        ("a: !!python/object/apply:os.getcwd []\n", "mine.yaml"),
        ("task:\n  data: [1, 2\nmodel: x", "line 3"),
        ("task: &t\n  data: *t\n", "itself|recursive"),
        ("a: " + "[" * 2000 + "]" * 2000, "nested too deep"),
    ],
)
def test_a_key_or_value_with_two_meanings_is_refused(text, named, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=named) as stopped:
        read_yaml(path)
    assert str(stopped.value).startswith(str(path)) and "\n" not in str(stopped.value)
