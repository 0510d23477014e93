"""Experiments, start to finish: rows that are trained, scored, compared and recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fairseq.models import build_model
from fairseq.modules import LearnedPositionalEmbedding

from experiments import costs, harness, records
from experiments.curves import read_log, recorded_log
from experiments.fairseq_runs import FairseqExperiment, result
from experiments.harness import CommandError, Experiment, Row
from experiments.learning.experiment import LearningExperiment
from experiments.sentences import read_counts
from experiments.system_tables import SystemsExperiment, comparisons
from experiments.table3.experiment import PAPER
from tests import stock
from tests.files import write
from tests.models import dictionary, task
from tests.processes import ROOT
from vaswani.common.find import find_config
from vaswani.configuration.fairseq_config import fairseq_form, read_configuration
from vaswani.reproduction import runner

TREES = Path(__file__).resolve().parents[1] / "evalb" / "gold.ptb"
TINY = ["embed_dim=16", "ffn_embed_dim=16", "layers=1", "attention_heads=2"]
SIZES = [f"model.{side}_{size}" for side in ("encoder", "decoder") for size in TINY]
COPIES = ("_weight", "_bias")
"""How fairseq 0.12.2 names copies of parameters, for a faster encoder."""


@pytest.fixture
def experiment(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> SystemsExperiment:
    """Write an experiment of two small rows, one of which has to find its learning rate."""
    recipe = yaml.safe_load(find_config("multi30k_en_de").read_text(encoding="utf-8"))
    recipe["task"]["data"] = "data/digits/data-bin"
    write(workplace / "configs" / "small.yaml", yaml.safe_dump(recipe))
    recurrent = [
        f"common.user_dir={ROOT / 'examples' / 'user_dirs' / 'recurrent'}",
        "model._name=recurrent_translation",
        "model.hidden_size=8",
        "model.layers=1",
    ]
    table = {
        "title": "Small",
        "question": "Which?",
        "expected": "nothing",
        "base": "small",
        "change": [
            "common.cpu=true",
            "dataset.max_tokens=500",
            "optimization.update_freq=[1]",
            "optimization.max_update=8",
            "generation.max_len_a=0",
            "generation.max_len_b=5",
            "task.eval_bleu=false",
        ],
        "average": 2,
        "rate_updates": 2,
        "rows": {
            "ours": {"change": SIZES, "rates": [0.001, 0.01]},
            "A cell, alone": {"change": recurrent},
        },
    }
    rows = write(workplace / "table" / "rows.yaml", yaml.safe_dump(table, sort_keys=False))
    monkeypatch.setattr(runner, "run_command", lambda command: stock.vaswani(*command[3:]))
    monkeypatch.setattr(costs, "ROUNDS", 1)
    return SystemsExperiment(rows.parent)


def shipped(name: str) -> FairseqExperiment:
    """Return one of the experiments whose rows fairseq trains."""
    experiment = harness.find(name)
    assert isinstance(experiment, FairseqExperiment)
    return experiment


@pytest.mark.parametrize("name", harness.names())
def test_every_experiment_says_what_it_asks_and_what_was_expected(name: str) -> None:
    experiment = harness.find(name)
    assert experiment.question.endswith("?") and experiment.title and experiment.expected
    stems = [harness.stem(row.name) for row in experiment.rows]
    assert len(set(stems)) == len(stems), "rows have folders of their own"


@pytest.mark.parametrize("name", ["table3", "equal_updates", "since2017", "learning"])
def test_every_row_is_an_experiment_that_can_be_trained(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of options, values, and the learning rates' trainings; others are built below."""
    monkeypatch.chdir(ROOT)
    for row in shipped(name).plans.values():
        assert name != "table3" or row.paper in PAPER
        config = read_configuration(find_config(row.base), row.change)
        assert row.rate_updates < config.optimization.max_update


@pytest.mark.parametrize("name", ["table2/captions", "table2/demo"])
def test_systems_have_as_many_parameters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside embeddings and softmax, within 5 %; each can be built, also fairseq's older ones."""
    monkeypatch.chdir(ROOT)
    counts = []
    for row in shipped(name).plans.values():
        config = fairseq_form(read_configuration(find_config(row.base), row.change))
        model = build_model(config.model, task())
        left_out = set()
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if isinstance(module, torch.nn.Embedding) or name.endswith(COPIES):
                    left_out.add(parameter)
        counts.append(sum(p.numel() for p in model.parameters() if p not in left_out))
    assert max(abs(count / counts[0] - 1) for count in counts) < 0.05


def test_systems_on_everyday_sentences_have_as_many_parameters_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within 3 %, less the positions of fconv that no sentence of 128 subwords reaches.

    Of the wide fconv those outside embeddings are equal instead.
    """
    monkeypatch.chdir(ROOT)
    words = task(dictionary(4184))  # as many types as data/tatoeba_en_de has
    counts = []
    plans = shipped("table2/everyday").plans
    for row in [row for name, row in plans.items() if name != "fconv, wide"]:
        config = fairseq_form(read_configuration(find_config(row.base), row.change))
        model = build_model(config.model, words)
        unreached = sum(
            (module.num_embeddings - 128) * module.embedding_dim
            for module in model.modules()
            if isinstance(module, LearnedPositionalEmbedding)
        )
        named = [p for name, p in model.named_parameters() if not name.endswith(COPIES)]
        counts.append(sum(parameter.numel() for parameter in named) - unreached)
    assert max(abs(count / counts[0] - 1) for count in counts) < 0.03


def test_text_prepared_as_tokens_has_one_bleu(tmp_path: Path) -> None:
    """Multi30k: `vaswani score` leaves sacreBLEU out, which wants text as it is written."""
    bleu = {"score": 41.29, "text": "BLEU = 41.29"}
    scores = {"bleu_tokenised": bleu, "chrf": {"score": 66.01, "text": "chrF2 = 66.01"}}
    write(tmp_path / "eval" / "test.score.json", json.dumps(scores))
    write(tmp_path / "finished.json", '{"num_updates": 8000, "seconds": 1}')
    scored = result(tmp_path)
    assert (scored.bleu, scored.chrf) == (41.29, 66.01)


def train_all(experiment: Experiment) -> None:
    harness.train(experiment, experiment.rows, only_seed=None)


def test_an_experiment_goes_on_where_it_was_stopped_to_its_record(
    experiment: SystemsExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record holds all that it says; a run that is gone is taken from an earlier record."""
    commands: list[str] = []

    def run_command(command: list[str]) -> int:
        commands.append(command[3])
        return 3 if len(commands) == 8 else stock.vaswani(*command[3:])  # as if the eighth failed

    monkeypatch.setattr(runner, "run_command", run_command)
    with pytest.raises(CommandError):
        train_all(experiment)
    assert commands == [*["train"] * 3, "average", "generate", "score", "train", "average"]
    train_all(experiment)
    assert commands[8:] == ["average", "generate", "score"]
    train_all(experiment)
    assert len(commands) == 11, "all is done"

    record = records.collect_record(experiment)
    ours, other = (row["runs"][0] for row in record["rows"].values())
    assert (ours["updates"], other["updates"]) == (8, 8)
    assert [short["rate"] for short in record["rows"]["ours"]["rates"]] == [0.001, 0.01]
    assert {"bleu_interval", "chrf_interval"} <= ours.keys() and "bleu_p" not in ours
    assert 0 < other["bleu_p"] <= 1 and record["significance"].startswith("two-sided")
    assert record["rows"]["ours"]["rate"] in (0.001, 0.01)

    folder = records.write_record(experiment, record, tmp_path / "records", None)
    assert records.page(experiment, folder) == (folder / "page.md").read_text(encoding="utf-8")
    assert (folder / "picture.png").is_file()
    assert read_counts(folder).keys() == {Path(ours["run"]).name, Path(other["run"]).name}
    Path(ours["run"]).rename("elsewhere")
    assert comparisons(record) == {}
    again = records.collect_record(experiment, folder)
    for key in ("bleu", "perplexity", "bleu_interval"):
        assert again["rows"]["ours"]["runs"][0][key] == ours[key]
    assert again["rows"]["A cell, alone"]["runs"][0]["bleu_p"] == other["bleu_p"]

    Path("elsewhere").rename(ours["run"])
    Path(other["run"]).rename("elsewhere")
    text = (folder / "record.json").read_text(encoding="utf-8")
    compared_with_another = text.replace(f'"bleu_p": {other["bleu_p"]}', '"bleu_p": -1')
    assert compared_with_another != text
    write(folder / "record.json", compared_with_another)
    again = records.collect_record(experiment, folder)
    assert again["rows"]["A cell, alone"]["runs"][0]["bleu_p"] == other["bleu_p"]


def test_curves_are_compared_without_translations(
    experiment: SystemsExperiment, tmp_path: Path
) -> None:
    """A seed is trained once; its curve and the speed in another record make the page."""
    rows = [{"work": "tiny", "system": "ours", "tokens/s": {"median": 1000.0}}]
    speeds = write(tmp_path / "train.json", json.dumps({"results": {"train": {"rows": rows}}}))
    table = {**experiment.table, "speeds": str(speeds), "work": "tiny"}
    table["rows"] = {"ours": {"change": SIZES, "system": "ours"}}
    write(experiment.folder / "rows.yaml", yaml.safe_dump(table))
    learning = LearningExperiment(experiment.folder)
    train_all(learning)
    (run,) = learning.runs(Row("ours", 1))
    logged = (run / "train.jsonl").stat().st_mtime_ns
    train_all(learning)
    assert (run / "train.jsonl").stat().st_mtime_ns == logged, "it is done"

    folder = records.write_record(
        learning, records.collect_record(learning), tmp_path / "records", None
    )
    assert recorded_log(folder, {"run": str(run)}) == read_log(run)
    assert "| 1,000 |" in (folder / "page.md").read_text(encoding="utf-8")
    assert (folder / "picture.png").is_file()


@pytest.mark.slow
@pytest.mark.paper("6.3")
def test_a_small_parser_is_trained_from_trees_to_f1(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "run_command", lambda command: stock.vaswani(*command[3:]))
    few = write(tmp_path / "few.ptb", *TREES.read_text(encoding="utf-8").splitlines()[:3])
    trees = ["--train", TREES, "--valid", few, "--test", few, "--workers", 1]
    assert cli("prepare", "parsing_wsj", *trees, "--out", "data/table4_small").code == 0
    experiment = shipped("table4")
    short = ["optimization.max_update=9", "checkpoint.save_interval_updates=1", *SIZES]
    plan = experiment.plans["ours"]
    experiment.plans["ours"] = plan._replace(change=[*plan.change, *short])
    train_all(experiment)
    (run,) = experiment.runs(Row("ours", 1))
    assert 0 <= experiment.measure(run)["f1"] <= 100
