"""README's example in plain PyTorch learns to copy."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.slow
def test_the_readmes_example_copies_nearly_all() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    torch.manual_seed(1)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(example, {})
    copied, of = map(int, re.findall(r"\d+", said.getvalue()))
    assert copied >= 0.95 * of
