"""The commands called from Python, as docs/translate.md shows it."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests import stock
from tests.integration.test_frozen import FROZEN
from vaswani.commands import generate
from vaswani.common.errors import UserError

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "translate.md"


def test_the_documented_example(tmp_path: Path, monkeypatch: Any) -> None:
    """On a run that has been trained to its end, so that the first line has nothing left to do."""
    with tarfile.open(FROZEN) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [one for one in examples if "train.run(" in one]
    run = tmp_path / "runs" / "numbers"
    average = run / "checkpoints" / "checkpoint_average_last2.pt"
    for made in (average, run / "eval/test.json", run / "eval/test.score.json"):
        made.unlink()
    for left in (run / "eval").glob("test.*"):
        left.unlink()
    with stock.fresh_process():
        exec(example.replace('"mine"', '"numbers"'), {})
    assert average.is_file()
    assert json.loads((run / "eval/test.json").read_text())["options"]["beam"] == 5
    assert json.loads((run / "eval/test.score.json").read_text())["bleu"]["score"] > 90
    with pytest.raises(UserError, match="there is no run 'mine'"):
        generate.run(generate.Options(model="mine"))
    assert issubclass(UserError, ValueError)
