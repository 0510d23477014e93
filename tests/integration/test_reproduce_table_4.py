"""``reproduce table4 --small``, start to finish on a small treebank."""

import json
from pathlib import Path

import pytest

from tests import stock
from tests.files import write
from vaswani.paper import runner

TREES = Path(__file__).resolve().parents[1] / "evalb" / "gold.ptb"
SMALL = ["optimization.max_update=9", "checkpoint.save_interval_updates=1"]
for side in ("encoder", "decoder"):
    SMALL += [f"model.{side}_{name}=16" for name in ("embed_dim", "ffn_embed_dim")]
    SMALL += [f"model.{side}_layers=1"]


@pytest.mark.slow
@pytest.mark.paper("6.3")
def test_table_4_is_reproduced_from_trees_to_f1(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "run_command", lambda command: stock.vaswani(*command[3:]))
    few = write(tmp_path / "few.ptb", *TREES.read_text(encoding="utf-8").splitlines()[:3])
    trees = ["--train", TREES, "--valid", few, "--test", few, "--workers", 1]
    assert cli("prepare", "parsing_wsj", *trees, "--out", "data/table4_small").code == 0
    done = cli("reproduce", "table4", "--small", *SMALL)
    assert done.code == 0, done.err
    order = [line.split()[1] for line in done.err.splitlines() if line.startswith("== ")]
    assert order[0] == "train:" and order[-1] == "score:"
    (score,) = (tmp_path / "runs" / "table4_small" / "eval").glob("*.score.json")
    assert "f1" in score.read_text().lower() and json.loads(score.read_text())
