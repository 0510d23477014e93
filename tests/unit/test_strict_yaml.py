"""YAML that reads as something else than was meant is refused, with file and line."""

from pathlib import Path

import pytest
import yaml

from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.experiment.find import read_yaml
from vaswani.experiment.strict_yaml import parse

ROOT = Path(__file__).resolve().parents[2]


def refused(text: str, tmp_path: Path) -> str:
    """The sentence that a file with this text is refused with."""
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as stopped:
        read_yaml(path)
    sentence = str(stopped.value)
    assert sentence.startswith(str(path)) and "\n" not in sentence
    return sentence.removeprefix(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", ", line 3: 'a' occurs twice"),
        ("task:\n  data: x\n  data: y\n", ", line 3: 'data' occurs twice"),
        ("rows:\n  - {x: 1, y: 2, x: 3}\n", ", line 2: 'x' occurs twice"),
        ("a: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
        ("? [1, 2]\n: 3\n", "not valid YAML"),
    ],
    ids=lambda text: text[:20].replace("\n", " "),
)
def test_what_would_be_read_as_something_else(text, message, tmp_path):
    assert message in refused(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-4", 1e-4), ("[1e-4, 5E3]", [1e-4, 5e3]), ("1.5e-3", 1.5e-3), ("-0.5", -0.5)),
        *(("0", 0), ("0.1", 0.1), ("1_000", 1000), ("0x10", 16), ("'010'", "010")),
        *(("2026-11-21", "2026-11-21"), ("(0.9, 0.98)", "(0.9, 0.98)"), ("1.0.2", "1.0.2")),
        *(("no", False), ("true", True), ("null", None), ("", None), ("1:75", "1:75")),
    ],
)
def test_what_is_read_as_it_is_meant(text, value):
    """As omegaconf reads it for fairseq-hydra-train, which PyYAML does not: 1e-4, 2026-11-21."""
    found = parse(text, "x")
    assert found == value and type(found) is type(value)


def test_a_merged_table_may_be_overridden(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\nz:\n  <<: *x\n", encoding="utf-8")
    assert read_yaml(path)["y"] == {"a": 1, "b": 3}
    assert read_yaml(path)["z"] == {"a": 1, "b": 2}
    path.write_text("w:\n  x: &x {<<: &v {b: 1}, b: 2}\ny: {<<: *x}\n", encoding="utf-8")
    assert read_yaml(path) == {"w": {"x": {"b": 2}}, "y": {"b": 2}}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda path: path.stem
)
def test_shipped_files_read_as_ever(path):
    assert read_yaml(path) == yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("place", "argv"),
    [
        ("mine.yaml", ["train", "mine.yaml"]),
        ("mine.yaml", ["plan", "mine.yaml", "--gpus", "1"]),
        ("mine.yaml", ["prepare", "mine.yaml"]),
        (
            "configs/table3.yaml",
            ["reproduce", "wmt14-en-de-base", "--row", "A-h1", "--dry-run"],
        ),
    ],
)
def test_every_command_names_a_key_that_stands_twice(place, argv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = Path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("task:\n  data: x\nmodel:\n  a: 1\n  a: 2\n", encoding="utf-8")
    assert cli.main(argv) == 1
    assert f"{place}, line 5: 'a' occurs twice" in capsys.readouterr().err


def test_a_manifest_with_a_name_twice(tmp_path):
    from vaswani.data.manifest import read_manifest

    path = tmp_path / "manifest.yaml"
    path.write_text("parts:\n  a: {}\n  a: {}\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 3: 'a' occurs twice"):
        read_manifest(str(path))


@pytest.mark.parametrize("rows", ["", "\nrows: [1]", "\nrows: {A-h1: {ppl: 1}}"])
def test_another_table_3_is_one_sentence(rows, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    Path("configs/table3.yaml").write_text(f"base: x{rows}", encoding="utf-8")
    assert cli.main(["reproduce", "wmt14-en-de-base", "--row", "A-h1", "--dry-run"]) == 1
    assert "configs/table3.yaml: " in capsys.readouterr().err
