"""Documents from templates: nothing is left out in silence, and values stay what they are."""

import shlex

import pytest
import yaml
from jinja2 import UndefinedError

from vaswani.common.templates import render


def filled(tmp_path, template, **values):
    (tmp_path / "page.j2").write_text(template, encoding="utf-8")
    return render(tmp_path / "page.j2", **values)


def test_a_value_that_was_not_given_is_an_error(tmp_path):
    with pytest.raises(UndefinedError, match="gone"):
        filled(tmp_path, "{% if gone %}x{% endif %}")


def test_a_value_is_not_a_template_and_not_html(tmp_path):
    value = "{{ x }} {% y %} <b> & 'q'"
    assert filled(tmp_path, "a {{ value }}\n", value=value) == f"a {value}\n"


@pytest.mark.parametrize(
    "value", ["a b", "no", "1.5", "it's # x: y", "ä", [1, 2], None, True, 1e-9]
)
def test_a_value_is_read_back_as_it_was(tmp_path, value):
    text = filled(tmp_path, "key: {{ value | yaml }}\n", value=value)
    assert text.count("\n") == 1 and yaml.safe_load(text) == {"key": value}
    if isinstance(value, str):
        text = filled(tmp_path, "{{ value | shell }}\n{{ value | python }}", value=value)
        shell, python = text.splitlines()
        assert shlex.split(shell) == [value] and eval(python) == value  # noqa: S307
