"""examples/paper.py, the walk through the paper, and the notebook made from it."""

import json
import runpy
from pathlib import Path
from typing import Any, Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "examples" / "paper.py"
cells = runpy.run_path(str(ROOT / "scripts" / "paper_notebook.py"))["cells"]


def code_cells() -> List[Dict[str, Any]]:
    """Those of the notebook."""
    notebook = json.loads(PAGE.with_suffix(".ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_every_claim_of_the_page_holds(monkeypatch, capsys) -> None:
    """It runs to its end, past every assert.

    What it prints of our sources is what the notebook shows.
    """
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    runpy.run_path(str(PAGE))
    printed = capsys.readouterr().out
    for cell in code_cells():
        if all(line.startswith("code(") for line in cell["source"]):
            shown = "".join("".join(output["text"]) for output in cell["outputs"])
            assert shown in printed, "run python scripts/paper_notebook.py"


def test_the_notebook_is_the_page() -> None:
    """Its cells are those of the page, all were run, in order, and none failed."""
    notebook = json.loads(PAGE.with_suffix(".ipynb").read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert found == cells(PAGE.read_text(encoding="utf-8")), "run python scripts/paper_notebook.py"
    run = code_cells()
    assert [cell["execution_count"] for cell in run] == list(range(1, len(run) + 1))
    outputs = [output for cell in run for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert {output["name"] for output in outputs if "name" in output} == {"stdout"}
    drawn = sum("image/png" in output.get("data", {}) for output in outputs)
    assert drawn == sum("plt.show()" in "".join(cell["source"]) for cell in run) > 10
