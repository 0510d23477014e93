"""docs/results.md: each figure is that of a committed record, and the records are their logs'."""

import gzip
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import neighbours, recall, small_table, training_cost
from tests.files import write
from vaswani.paper import small_tables

ROOT = Path(__file__).resolve().parents[2]
RESULTS = runpy.run_path(str(ROOT / "scripts" / "results.py"))


def test_the_pages_are_made_from_the_records() -> None:
    """And a figure that is not the record's is found."""
    assert RESULTS["main"](["--check"]) == 0
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for figure in ("3.3e+18", "41.29", "97.88", "92.7"):
        assert figure in page


def test_a_small_table_is_what_its_logs_say() -> None:
    """Scores are those that `vaswani score` wrote, updates and perplexity those of the training."""
    for name in ("table 2, demo", "table 2, Multi30k", "equal updates", "table 3, Multi30k"):
        path = RESULTS["TABLE"]["records"][name]
        if not path:
            continue
        folder = (RESULTS["RECORDS"] / path).parent
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        for row in record["rows"].values():
            for run in [*row["runs"], *row.get("rates", [])]:
                stem = Path(run["run"]).name
                lines = gzip.decompress((folder / f"{stem}.jsonl.gz").read_bytes()).splitlines()
                log: list[dict[str, Any]] = [json.loads(line) for line in lines]
                losses = [line["valid_nll_loss"] for line in log if "valid_nll_loss" in line]
                assert run["perplexity"] == pytest.approx(2 ** min(losses))
                if "bleu" not in run:  # it chose a learning rate
                    continue
                scores = json.loads((folder / f"{stem}.score.json").read_text(encoding="utf-8"))
                bleu = scores.get("bleu") or scores["bleu_tokenised"]
                assert (run["bleu"], run["chrf"]) == (bleu["score"], scores["chrf"]["score"])
                assert run["updates"] == max(line.get("valid_num_updates", 0) for line in log)


def test_a_table_grows_by_runs_of_another_machine(tmp_path: Path, monkeypatch: Any) -> None:
    """What an earlier record has is taken over; what is here counts first."""

    def run(seed: int, bleu: float) -> dict[str, Any]:
        return {"run": f"runs/t/ours_seed{seed}", "bleu": bleu, "cpu": "old", "commit": "c"}

    here = tmp_path / "runs" / "t" / "ours_seed2"
    write(here / "env.json", '{"cpu": "new", "commit": "d"}')
    scored = small_tables.Result("runs/t/ours_seed2", 31.0, "", 50.0, "", 6.0, 10, 60.0)
    rows = [small_tables.Row(name, "small", [], 2, {}, name, 1) for name in ("ours", "theirs")]
    table = small_tables.Table("table2", rows, "nothing", 4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(small_table, "results", lambda _, row: [scored] * (row is rows[0]))
    monkeypatch.setattr(small_table, "cost_of", lambda _: (training_cost.Cost(2.0, 3.0, 1), {}))
    monkeypatch.setattr(small_table, "right_in", lambda _: {})
    monkeypatch.setattr(small_table, "comparisons", lambda *_: {})
    theirs = {"paper": "theirs", "runs": [run(1, 40.0)]}
    known = {"ours": {"paper": "ours", "runs": [run(1, 30.0), run(2, 29.0)]}, "theirs": theirs}
    write(tmp_path / "record.json", json.dumps({"table": "table2", "rows": known}))
    record = small_table.measure(table, tmp_path)
    assert record["rows"]["theirs"] == theirs
    assert [(one["bleu"], one["cpu"]) for one in record["rows"]["ours"]["runs"]] == [
        (30.0, "old"),
        (31.0, "new"),
    ]


def test_a_variation_is_compared_with_the_base() -> None:
    """Table 3: the sign of the paper's difference, where it exceeds the interval over the seeds."""

    def runs(*figures: Any) -> list[dict[str, float]]:
        return [{"bleu": bleu, "perplexity": perplexity} for bleu, perplexity in figures]

    rows: dict[str, Any] = {
        "A-h1": {"paper": "A-h1", "runs": runs((28.0, 6.4))},
        "base": {"paper": "base", "runs": runs((30.0, 6.0), (30.6, 6.1))},
        "B-dk8": {"paper": "B-dk32", "runs": runs((29.9, 5.3), (29.8, 5.2))},
    }
    assert small_table.contrasts({"rows": rows})[2:] == [
        "| A-h1 | A-h1 | -0.90 | -2.30 ± 1.60 | as in the paper | +0.10 | +0.08 ± 0.10 "
        "| not shown |",
        "| B-dk8 | B-dk32 | -0.40 | -0.45 ± 1.31 | not shown "
        "| +0.03 | -0.20 ± 0.08 | not as in the paper |",
    ]
    del rows["base"]["runs"][1:]
    assert small_table.contrasts({"rows": rows}) == []


def test_sentences_of_recall() -> None:
    """The target asks for the source's keys, each once, in another order, with their names."""
    for k in (1, 3, recall.KEYS):
        sources, targets = recall.sentences(50, k, torch.Generator().manual_seed(k))
        assert sources.shape == targets.shape == (50, 2 * k)
        pairs = [t.view(50, k, 2).tolist() for t in (sources, targets)]
        assert list(map(sorted, pairs[0])) == list(map(sorted, pairs[1]))
        assert all(len(dict(one)) == k for one in pairs[0])
        assert sources[:, ::2].max() < recall.FIRST + recall.KEYS <= sources[:, 1::2].min()
        assert k == 1 or not torch.equal(sources, targets)
    dice = torch.Generator().manual_seed(1)
    sizes = [recall.log_uniform(64, dice) for _ in range(4000)]
    assert (min(sizes), max(sizes)) == (1, 64)
    assert 0.4 < sum(k < 8 for k in sizes) / len(sizes) < 0.6


def test_keys_double_up_to_all(monkeypatch: Any) -> None:
    """After so many updates; and none is asked for before it may occur."""
    monkeypatch.setattr(recall, "VALIDATE", 1)
    monkeypatch.setattr(recall, "PATIENCE", 2)
    monkeypatch.setattr(recall, "UPDATES", 11)
    lines = recall.learn(recall.SYSTEMS["LSTM"].build(), 0.001, seed=1)
    assert [line["keys"] for line in lines] == [4, 4, 8, 8, 16, 16, 32, 32, 64, 64, 64]
    sources, _ = recall.sentences(9, 4, torch.Generator().manual_seed(1), types=4)
    assert sources[:, ::2].max() < recall.FIRST + 4


@pytest.mark.parametrize("name", recall.SYSTEMS)
def test_a_system_of_recall_is_asked_for_the_name_after_each_key(name: str) -> None:
    """And a name that it is still to say does not reach it through the target."""
    source, target = recall.sentences(2, 5, torch.Generator().manual_seed(1))
    torch.manual_seed(1)
    model = recall.SYSTEMS[name].build().eval()
    names, logits = recall.names_and_logits(model, (source, target))
    assert logits.shape == (2, 5, recall.TYPES) and torch.equal(names, target[:, 1::2])
    target[:, 5] = recall.FIRST + recall.KEYS  # the third name
    _, others = recall.names_and_logits(model, (source, target))
    assert torch.allclose(logits[:, :3], others[:, :3], atol=1e-5)
    assert not torch.allclose(logits[:, 3], others[:, 3], atol=1e-5)


def test_wrong_sentences_are_counted_by_equal_neighbours(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    write(data / "bpe" / "test.en", "5@@ 5@@ 1\n5@@ 1 5@@ 1\na b\n7 7")
    write(data / "tok" / "test.de", "551\n51 51\na b\n7 7")
    write(run / "eval" / "test.hyp.tok", "51\n51 51\nb a\n7  7")
    translation = {"data": str(data / "data-bin")}
    scores = {"translation": translation, "pair": "en-de", "bleu_tokenised": {"score": 50.0}}
    write(run / "eval" / "test.score.json", json.dumps(scores))
    wrong = neighbours.wrong_in(run)
    assert (wrong["equal_neighbours"], wrong["wrong_equal"]) == (2, [0])
    assert (wrong["others"], wrong["wrong_others"]) == (2, [2])


def test_intervals_over_seeds_are_students() -> None:
    """For 1, 2, 3: a deviation of 1, t = 4.303 with two degrees of freedom."""
    assert small_table.mean([1, 2, 3]) == "2.00 ± 2.48 (1.00, 2.00, 3.00)"
    assert small_table.mean([1, 2], ".0f") == "2 (1, 2)"
    assert small_table.mean([4], ".1f") == "4.0"


def test_operations_are_counted_where_torch_does_not_see_them() -> None:
    """Cells and fairseq's convolutions by their weights; matrices of a layer once, not twice."""
    from fairseq.modules import ConvTBC

    class Model(torch.nn.Module):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer, self.out = layer, torch.nn.Linear(6, 3, bias=False)

        def forward(self, x: Any) -> Any:
            found = self.layer(x)
            return [self.out(found[0] if isinstance(found, tuple) else found)]

    x = torch.randn(2, 5, 4, requires_grad=True)
    out = 6 * 3
    cases = {
        torch.nn.LSTM(4, 6, batch_first=True): 4 * 6 * (4 + 6),
        torch.nn.GRU(4, 3, bidirectional=True, batch_first=True): 2 * 3 * 3 * (4 + 3),
        torch.nn.Linear(4, 6): 4 * 6,
        ConvTBC(4, 6, 3, padding=1): 3 * 4 * 6,
    }
    for layer, weights in cases.items():
        counted = training_cost.operations(Model(layer), {"x": x})
        # where torch sees into a cell, it leaves out the first state's gradient
        assert counted == pytest.approx(3 * 2 * 10 * (weights + out), rel=0.03), layer
