"""The files of examples/demo_text are what scripts/demo_text generates."""

import lzma

import pytest

pytest.importorskip("num2words")
from scripts.demo_text import phrases  # noqa: E402


@pytest.mark.parametrize("target", phrases.TARGETS)
def test_the_generator_makes_the_same_bytes(target):
    for name, text in phrases.files(target).items():
        path = phrases.FOLDER / name
        compressed = path.with_name(f"{name}.xz")
        shipped = path.read_bytes() if path.exists() else lzma.decompress(compressed.read_bytes())
        assert shipped == text.encode("utf-8"), name
