"""Documents from templates: nothing is left out in silence, and values stay what they are."""

import shlex

import pytest
import yaml
from jinja2 import UndefinedError

from vaswani.common.templates import WIDTH, render


def filled(tmp_path, template, **values):
    (tmp_path / "page.j2").write_text(template, encoding="utf-8")
    return render(tmp_path / "page.j2", **values)


@pytest.mark.parametrize(
    "template", ["{{ gone }}", "{{ table.gone }}", "{% if gone %}x{% endif %}"]
)
def test_a_value_that_was_not_given_is_an_error(tmp_path, template):
    with pytest.raises(UndefinedError, match="gone"):
        filled(tmp_path, template, table={})


def test_a_value_is_not_a_template_and_not_html(tmp_path):
    value = "{{ x }} {% y %} <b> & 'q'"
    assert filled(tmp_path, "a {{ value }}\n", value=value) == f"a {value}\n"


def test_a_line_with_only_a_block_leaves_nothing(tmp_path):
    template = "a\n  {% for n in (1000, 2000) %}\n  {{ n | thousands }}\n  {% endfor %}\nb\n"
    assert filled(tmp_path, template) == "a\n  1,000\n  2,000\nb\n"


def test_a_paragraph_becomes_comment_lines_of_the_same_indent(tmp_path):
    template = "key:\n  {% filter comment %}\n  {{ words }}\n  end\n  {% endfilter %}\n  a: 1\n"
    words = " ".join(["three-part-word"] * 20)
    lines = filled(tmp_path, template, words=words).splitlines()
    assert lines[0] == "key:" and lines[-1] == "  a: 1"
    assert all(line.startswith("  # ") and len(line) <= WIDTH for line in lines[1:-1])
    assert " ".join(line[4:] for line in lines[1:-1]) == f"{words} end"


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


def test_a_cell_does_not_end_early(tmp_path):
    assert filled(tmp_path, "| {{ x | cell }} |", x="a\nb|c") == r"| a b\|c |"
