"""YAML that reads as something else than was meant is refused, with file and line."""

import pytest

from vaswani.common.errors import UserError
from vaswani.common.yaml_tables import read_yaml


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
