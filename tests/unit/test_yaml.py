"""YAML that reads as something else than was meant is refused, with file and line."""

from pathlib import Path

import pytest
import yaml

from vaswani.common.errors import UserError
from vaswani.experiment.find import parse_yaml, read_yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: .* key a"),
        ("rows:\n  - {x: 1, y: 2, x: 3}\n", "line 2: .* key x"),
        ("a: !!python/object/apply:os.getcwd []\n", "mine.yaml"),
        ("task:\n  data: [1, 2\nmodel: x", "line 3"),
    ],
)
def test_a_key_or_value_with_two_meanings_is_refused(text, named, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=named) as stopped:
        read_yaml(path)
    assert str(stopped.value).startswith(str(path)) and "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-4", 1e-4), ("[1e-4, 5E3]", [1e-4, 5e3]), ("1_000", 1000), ("'010'", "010")),
        *(("2026-11-21", "2026-11-21"), ("(0.9, 0.98)", "(0.9, 0.98)"), ("1:75", "1:75")),
        *(("no", False), ("null", None), ("", None)),
    ],
)
def test_scalars_are_read_as_fairseq_hydra_train_reads_them(text, value):
    """Which PyYAML does not: 1e-4, 2026-11-21."""
    found = parse_yaml(f"x: {text}", "x")["x"]
    assert found == value and type(found) is type(value)


def test_shipped_files_read_as_ever():
    for path in (ROOT / "configs").rglob("*.yaml"):
        assert read_yaml(path) == yaml.safe_load(path.read_text(encoding="utf-8"))
