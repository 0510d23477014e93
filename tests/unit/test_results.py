"""docs/results.md: each figure is that of a committed record, and the records are their logs'."""

import json
import math
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.modules import ConvTBC

from experiments import costs, harness, records
from experiments.curves import recorded_log
from experiments.learning import experiment as learning
from experiments.neighbours import experiment as neighbours
from experiments.recall import experiment as recall
from experiments.recall import systems
from experiments.record_files import record_file, record_lines, recorded_translations
from experiments.system_tables import PARAMETERS, SystemsExperiment
from experiments.table3.experiment import contrast_table
from tests.files import needs_records, write
from tests.records import experiment_of, id_of, records_of_experiments
from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.scoring import report
from vaswani.scoring.score_input import ScoreInput

ROOT = Path(__file__).resolve().parents[2]
RESULTS = runpy.run_path(str(ROOT / "scripts" / "results.py"))
RECORDS = records_of_experiments()


@needs_records
def test_the_pages_are_made_from_the_records() -> None:
    """And a figure that is not the record's is found."""
    assert RESULTS["main"](["--check"]) == 0
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert "97.88" in results and "41.29" in results
    reproduce = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert "3.3e+18" in reproduce and "92.7" in reproduce


@needs_records
def test_a_table_of_the_results_has_at_most_six_rows() -> None:
    """Besides the two lines of its heading: whoever wants more reads the record."""
    for name in RESULTS["PAGES"]["docs/results.md"]:
        rows = [line for line in RESULTS["TEXTS"][name]().splitlines() if line.startswith("|")]
        assert len(rows) <= 2 + 6, name


@pytest.mark.parametrize("folder", RECORDS, ids=id_of)
def test_a_record_says_what_its_page_says(folder: Path) -> None:
    page = (folder / records.PAGE).read_text(encoding="utf-8")
    assert records.page(experiment_of(folder), folder) == page
    if re.search(r"\bp\b", page.replace("| p |", "")):
        assert "two-sided" in page or "No p" in page


@pytest.mark.parametrize(
    "folder",
    [folder for folder in RECORDS if isinstance(experiment_of(folder), SystemsExperiment)],
    ids=id_of,
)
def test_a_record_is_what_its_logs_say(folder: Path) -> None:
    """Scores are those that `vaswani score` wrote, updates and perplexity those of the training."""
    record = records.read_record(folder)
    for row in record["rows"].values():
        if "processor_seconds" in row["runs"][0]:  # its costs were measured
            assert all(key in row for key in PARAMETERS[1:])
        for run in [*row["runs"], *row.get("rates", [])]:
            stem = Path(run["run"]).name
            lines = record_lines(folder, f"{stem}.jsonl")
            log: list[dict[str, Any]] = [json.loads(line) for line in lines]
            losses = [line["valid_nll_loss"] for line in log if "valid_nll_loss" in line]
            assert run["perplexity"] == pytest.approx(2 ** min(losses))
            if "bleu" not in run:  # it chose a learning rate
                continue
            scores = json.loads(record_file(folder, f"{stem}.score.json"))
            bleu = scores.get("bleu") or scores["bleu_tokenised"]
            assert (run["bleu"], run["chrf"]) == (bleu["score"], scores["chrf"]["score"])
            assert run["updates"] == max(line.get("valid_num_updates", 0) for line in log)


@needs_records
def test_the_record_of_learning_is_what_its_logs_say() -> None:
    """Also those that belong to another record."""
    (folder,) = (ROOT / "experiments" / "learning" / "records").iterdir()
    for row in records.read_record(folder)["rows"].values():
        for run, curve in zip(row["runs"], learning.curves_of(row), strict=True):
            log = recorded_log(folder, run)
            assert (curve, run["tokens_per_update"]) == (log.curve, log.tokens)


COMPARED = [
    folder for folder in RECORDS if "bleu_p" in (folder / "record.json").read_text(encoding="utf-8")
]


def recorded_input(folder: Path, run: dict[str, Any]) -> ScoreInput:
    """Return a run's translations beside its references; skip if their text is not prepared."""
    name = Path(run["run"]).name
    scores = json.loads(record_file(folder, f"{name}.score.json"))
    kind, sides = next(iter(scores["files"].items()))
    references = ROOT / sides["references"]["file"]
    if not references.is_file() or sha256_of(references) != sides["references"]["sha256"]:
        pytest.skip(f"{sides['references']['file']} is not prepared: p is not recomputed")
    hypotheses = f"{name}.{Path(sides['hypotheses']['file']).name}"
    return ScoreInput(folder, **{kind: recorded_translations(folder, hypotheses, references)})


@pytest.mark.slow
@pytest.mark.parametrize("folder", COMPARED, ids=id_of)
def test_each_p_is_that_of_the_kept_translations(folder: Path) -> None:
    """Of each run and the first row's of the same seed; its interval, too."""
    first, *later = records.read_record(folder)["rows"].values()
    references = {run["run"].rpartition("_")[2]: run for run in first["runs"]}
    for run in [run for row in later for run in row["runs"]]:
        if "bleu_p" not in run:
            continue
        other = recorded_input(folder, references[run["run"].rpartition("_")[2]])
        metrics = report.significance_of(recorded_input(folder, run), other).metrics
        bleu = metrics.get("bleu") or metrics["bleu_tokenised"]
        assert bleu.score == pytest.approx(run["bleu"])
        for name, compared in {"bleu": bleu, "chrf": metrics["chrf"]}.items():
            assert run[f"{name}_p"] == compared.p, run["run"]
            assert run[f"{name}_interval"] == pytest.approx(compared.interval)


def test_a_record_grows_by_runs_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier record has is taken over; what is here counts first."""

    def run(seed: int, bleu: float) -> dict[str, Any]:
        return {"run": f"runs/t/ours_seed{seed}", "bleu": bleu, "cpu": "old", "commit": "c"}

    monkeypatch.chdir(tmp_path)
    here = Path("runs/t/ours_seed2")
    write(here / "env.json", '{"cpu": "new", "commit": "d"}')

    class Small(SystemsExperiment):
        """Its figures are made up."""

        def runs(self, row: harness.Row) -> list[Path]:
            return [here] if row.name == "ours" else []

        def measure(self, run: Path) -> dict[str, Any]:
            return {"bleu": 31.0}

        def describe(self, row: harness.Row) -> dict[str, Any]:
            return {}

        def complete(self, record: records.Record, earlier: Path | None) -> None:
            pass

    rows = "{ours: {seeds: 2}, theirs: {}}"
    text = f"{{title: t, question: q, expected: e, base: b, average: 1, rows: {rows}}}"
    experiment = Small(write(tmp_path / "t" / "rows.yaml", text).parent)
    theirs = {"paper": "theirs", "runs": [run(1, 40.0)]}
    before = {"ours": {"paper": "ours", "runs": [run(1, 30.0), run(2, 29.0)]}, "theirs": theirs}
    write(tmp_path / "record.json", json.dumps({"table": "t", "rows": before}))
    record = records.collect_record(experiment, tmp_path)
    assert record["rows"]["theirs"] == theirs
    ours = [(one["bleu"], one["cpu"]) for one in record["rows"]["ours"]["runs"]]
    assert ours == [(30.0, "old"), (31.0, "new")]


def test_a_variation_is_compared_with_the_base() -> None:
    """Table 3: the sign of the paper's difference, where ours is shown, which takes three seeds."""

    def runs(*figures: tuple[float, float]) -> list[dict[str, Any]]:
        return [
            {"run": f"runs/t/x_seed{seed}", "bleu": bleu, "perplexity": perplexity}
            for seed, (bleu, perplexity) in enumerate(figures, 1)
        ]

    rows: dict[str, Any] = {
        "A-h1": {"paper": "A-h1", "runs": runs((28.0, 4.0))},
        "base": {"paper": "base", "runs": runs((30.0, 4.0), (31.0, 4.0), (32.0, 4.0))},
        "B-dk8": {"paper": "B-dk32", "runs": runs((25.1, 2.0), (26.0, 2.0), (26.9, 2.0))},
    }
    table = contrast_table({"rows": rows})
    assert table
    cells = {cells[0]: cells[1:] for cells in table.rows}
    assert "p: two-sided t test, corrected by Holm's method for 2 rows" in table.note
    # residuals of two rows and three seeds: 0.05, 0, -0.05 and the opposite; t(2) = 4.303
    width = 4.3027 * math.sqrt(4 * 0.05**2 / 2 * 2 / 3)
    assert cells["B-dk8"][:4] == ["B-dk32", "–", "3", "-0.40"]
    assert cells["B-dk8"][4].startswith(f"-5.00 ± {width:.2f} (p")
    assert cells["B-dk8"][5] == "as in the paper"
    assert cells["B-dk8"][6:] == ["+0.03", "-1.000 ± 0.000 (p < 0.001)", "not as in the paper"]
    assert cells["A-h1"][2] == "1" and cells["A-h1"][5] == "too few seeds"
    del rows["base"]["runs"][1:]
    assert contrast_table({"rows": rows}) is None


def test_sentences_of_recall() -> None:
    """The target asks for the source's keys, each once, in another order, with their names."""
    for k in (1, 3, systems.KEYS):
        sources, targets = recall.sentences(50, k, torch.Generator().manual_seed(k))
        assert sources.shape == targets.shape == (50, 2 * k)
        pairs = [t.view(50, k, 2).tolist() for t in (sources, targets)]
        assert list(map(sorted, pairs[0])) == list(map(sorted, pairs[1]))
        assert all(len(dict(one)) == k for one in pairs[0])
        assert sources[:, ::2].max() < systems.FIRST + systems.KEYS <= sources[:, 1::2].min()
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
    lines = recall.learn(systems.SYSTEMS["LSTM"].build(), 0.001, seed=1)
    assert [line["keys"] for line in lines] == [4, 4, 8, 8, 16, 16, 32, 32, 64, 64, 64]
    sources, _ = recall.sentences(9, 4, torch.Generator().manual_seed(1), types=4)
    assert sources[:, ::2].max() < systems.FIRST + 4


def test_a_result_of_recall_is_taken_only_if_its_settings_are_asked_for(monkeypatch, tmp_path):
    """A changed size would otherwise be reported with the figures of the size before."""
    monkeypatch.setattr(recall, "RUNS", tmp_path)
    run = recall.run_of("LSTM", 0.001, 1)
    run.mkdir()
    parameters = recall.settings_of("LSTM")["parameters"]
    figures = {"run": str(run), "parameters": parameters}
    (run / "result.json").write_text(json.dumps(figures))
    assert recall.train_or_load("LSTM", 0.001, 1) == figures
    (run / "result.json").write_text(json.dumps({**figures, "parameters": parameters - 1}))
    with pytest.raises(UserError, match="was trained with parameters .* rename or remove"):
        recall.train_or_load("LSTM", 0.001, 1)


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_a_system_of_recall_is_asked_for_the_name_after_each_key(name: str) -> None:
    """And a name that it is still to say does not reach it through the target."""
    source, target = recall.sentences(2, 5, torch.Generator().manual_seed(1))
    torch.manual_seed(1)
    model = systems.SYSTEMS[name].build().eval()
    names, logits = recall.names_and_logits(model, (source, target))
    assert logits.shape == (2, 5, systems.TYPES) and torch.equal(names, target[:, 1::2])
    target[:, 5] = systems.FIRST + systems.KEYS  # the third name
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
    wrong = neighbours.wrong_sentences(run)
    assert (wrong["equal_neighbours"], wrong["wrong_equal"]) == (2, [0])
    assert (wrong["others"], wrong["wrong_others"]) == (2, [2])


def test_operations_are_counted_where_torch_does_not_see_them() -> None:
    """Cells and fairseq's convolutions by their weights; matrices of a layer once, not twice."""

    class Model(torch.nn.Module):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer
            self.out = torch.nn.Linear(6, 3, bias=False)

        def forward(self, x: Any) -> Any:
            output = self.layer(x)
            return [self.out(output[0] if isinstance(output, tuple) else output)]

    x = torch.randn(2, 5, 4, requires_grad=True)
    out = 6 * 3
    cases = {
        torch.nn.LSTM(4, 6, batch_first=True): 4 * 6 * (4 + 6),
        torch.nn.GRU(4, 3, bidirectional=True, batch_first=True): 2 * 3 * 3 * (4 + 3),
        torch.nn.Linear(4, 6): 4 * 6,
        ConvTBC(4, 6, 3, padding=1): 3 * 4 * 6,
    }
    for layer, weights in cases.items():
        counted = costs.operations(Model(layer), {"x": x})
        # where torch sees into a cell, it leaves out the first state's gradient
        assert counted == pytest.approx(3 * 2 * 10 * (weights + out), rel=0.03), layer


def test_trainings_are_measured_in_turn() -> None:
    """So that a slow minute is none of one training's alone; an update may have several passes."""
    passes = []

    def model_of(name: str) -> Any:
        weight = torch.ones(2, requires_grad=True)

        def model(scale: float) -> list[Any]:
            passes.append(name)
            return [scale * weight]

        return model

    inputs = [{"scale": 1.0}, {"scale": 2.0}]
    trainings = [
        costs.Passes(model_of(name), inputs, operations=10.0, batches=batches, parameters={})
        for name, batches in (("A", 1), ("B", 3))
    ]
    measured = costs.costs_of(trainings)
    assert passes == [*"AABB"] * costs.ROUNDS
    assert [(cost.operations, cost.batches) for cost in measured] == [(10.0, 1), (30.0, 3)]
