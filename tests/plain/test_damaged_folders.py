"""A packed model whose files were changed, hashes included, is refused in a sentence."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plain.small import DEMO, sign
from vaswani_transformer import Transformer

pytest.importorskip("safetensors")
#: one value of each type that JSON has
VALUES = [None, True, -1, 10**9, 10**30, float("nan"), "text", [1], {"a": 1}]
#: what may be replaced in config.json
TABLE = json.loads((DEMO / "config.json").read_text(encoding="utf-8"))


def places() -> Iterator[tuple[str, ...]]:
    """Yield the sections, and the keys of those that are read."""
    for section in TABLE:
        yield (section,)
    for section in ("architecture", "text"):
        for key in TABLE[section]:
            yield (section, key)


def damaged(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return config.json with another value at a place."""
    table: dict[str, Any] = json.loads(json.dumps(TABLE))
    section = table
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = value
    return table


def is_sentence(message: str) -> bool:
    """Return whether an error says in one line where it is."""
    return "demo" in message and "\n" not in message


@pytest.mark.parametrize("place", places(), ids=".".join)
def test_a_value_of_another_type_is_refused_or_harmless(
    place: tuple[str, ...], copied: Path
) -> None:
    """Every other outcome was a traceback, of 14 in 90."""
    for value in VALUES:
        text = json.dumps(damaged(place, value))
        (copied / "config.json").write_text(text, encoding="utf-8")
        sign(copied)
        try:
            Transformer.from_pretrained(copied)
        except (OSError, ValueError) as error:  # the dictionary of another language is missing
            assert is_sentence(str(error)), (place, value)  # noqa: PT017


@pytest.mark.parametrize("section", ["architecture", "text", "generation", "origin"])
def test_a_missing_section_is_named(section: str, copied: Path) -> None:
    table = {key: value for key, value in TABLE.items() if key != section}
    (copied / "config.json").write_text(json.dumps(table), encoding="utf-8")
    sign(copied)
    with pytest.raises(ValueError, match=f"has no '{section}': pack the model again"):
        Transformer.from_pretrained(copied)


@pytest.mark.parametrize(
    "place, value, named",
    [
        (("architecture", "encoder_layers"), "2", "encoder_layers must be a whole number"),
        (("architecture", "dropout"), True, "dropout must be a number"),
        (("architecture", "untie_embeddings"), "false", "must be true or false"),
        (("architecture",), [1], "architecture must be a table"),
        (("architecture", "encoder_layers"), 0, "at least 1"),
        (("architecture", "max_target_positions"), -1, "must be 1 to"),
        (("text", "source_lang"), 5, "source_lang must be text"),
        (("architecture", "untie_embeddings"), True, "missing"),
        (("architecture", "head_key_dim"), 10**6, "kv_proj"),
    ],
)
def test_a_wrong_value_is_named(
    place: tuple[str, ...], value: Any, named: str, copied: Path
) -> None:
    (copied / "config.json").write_text(json.dumps(damaged(place, value)), encoding="utf-8")
    sign(copied)
    with pytest.raises(ValueError, match=named) as refusal:
        Transformer.from_pretrained(copied)
    assert is_sentence(str(refusal.value))


@pytest.mark.parametrize("share", [0, 4, 8, 100, 0.02, 0.3, 0.6, 0.99, -1])
def test_cut_weights_are_refused(share: float, copied: Path) -> None:
    """``share`` of the file is left, or so many bytes, or all but one."""
    path = copied / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data)) if 0 < share < 1 else int(share)])
    sign(copied)
    with pytest.raises(ValueError, match="model.safetensors") as refusal:
        Transformer.from_pretrained(copied)
    assert is_sentence(str(refusal.value))
