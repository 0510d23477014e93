"""``vaswani reproduce table2 --small`` and ``table3 --small``: the paper's comparisons, smaller."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fairseq.modules import LearnedPositionalEmbedding

from benchmarks import small_table
from benchmarks.small_table import TABLE_3
from tests import stock
from tests.models import dictionary, task
from tests.processes import ROOT
from vaswani.common.errors import UserError
from vaswani.common.files import read_json
from vaswani.experiment.fairseq_config import experiment_config, fairseq_form
from vaswani.experiment.find import find_config
from vaswani.paper import runner, small_tables
from vaswani.paper.small_tables import read_table

SIZES = [
    *(f"model.{side}_{size}" for side in ("encoder", "decoder") for size in ("layers=1",)),
    *(f"model.{side}_embed_dim=16" for side in ("encoder", "decoder")),
    *(f"model.{side}_ffn_embed_dim=16" for side in ("encoder", "decoder")),
    *(f"model.{side}_attention_heads=2" for side in ("encoder", "decoder")),
]


@pytest.fixture
def place(workplace: Path, monkeypatch: Any) -> Path:
    """A folder with a table of two small rows, one of which has to find its learning rate."""
    experiment = yaml.safe_load(find_config("multi30k_en_de").read_text(encoding="utf-8"))
    experiment["task"]["data"] = "data/digits/data-bin"
    (workplace / "configs" / "small.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
    table = {
        "base": "small",
        "change": [
            "common.cpu=true",
            "dataset.max_tokens=500",
            "optimization.update_freq=[1]",
            "generation.max_len_a=0",
            "generation.max_len_b=5",
            "task.eval_bleu=false",
        ],
        "average": 2,
        "rate_updates": 2,
        "table2": {
            "expected": "nothing",
            "rows": {
                "ours": {"change": [*SIZES, "optimization.max_update=8"], "rates": [0.001, 0.01]},
                "A cell, alone": {
                    "change": [
                        f"common.user_dir={ROOT / 'examples' / 'recurrent'}",
                        *("model._name=recurrent_translation", "model.hidden_size=8"),
                        *("model.layers=1", "optimization.max_update=8"),
                    ],
                },
            },
        },
    }
    (workplace / "configs" / "small_tables.yaml").write_text(
        yaml.safe_dump(table, sort_keys=False), encoding="utf-8"
    )
    monkeypatch.setattr(runner, "run_command", lambda command: stock.vaswani(*command[3:]))
    return workplace


def test_every_row_is_an_experiment_that_can_be_trained(monkeypatch: Any) -> None:
    """The shipped tables: names of options, values, and the learning rates' trainings."""
    monkeypatch.chdir(ROOT)
    for name in ("table3", "equal-updates"):  # the others' models are built below
        table = read_table(name)
        assert len({small_tables.stem(row.name) for row in table.rows}) == len(table.rows)
        for row in table.rows:
            assert name != "table3" or row.paper in TABLE_3
            config = experiment_config(find_config(row.base), row.change)
            assert table.rate_updates < config.optimization.max_update


@pytest.mark.parametrize("name", ["table2", "table2-demo"])
def test_systems_have_as_many_parameters(name: str, monkeypatch: Any) -> None:
    """Outside embeddings and softmax, within 5 %; each can be built, also fairseq's older ones."""
    from fairseq.models import build_model

    monkeypatch.chdir(ROOT)
    counts = []
    for row in read_table(name).rows:
        config = fairseq_form(experiment_config(find_config(row.base), row.change))
        built = build_model(config.model, task())
        left_out = {
            parameter
            for module in built.modules()
            for name, parameter in module.named_parameters(recurse=False)
            # embeddings, of positions too; fairseq 0.12.2 keeps copies for a faster encoder
            if isinstance(module, torch.nn.Embedding) or name.endswith(("_weight", "_bias"))
        }
        counts.append(sum(p.numel() for p in built.parameters() if p not in left_out))
    assert max(abs(count / counts[0] - 1) for count in counts) < 0.05


def test_systems_on_everyday_sentences_have_as_many_parameters_in_all(monkeypatch: Any) -> None:
    """Within 3 %, less the positions of fconv that no sentence of 128 subwords reaches.

    Of the wide fconv those outside embeddings are equal instead.
    """
    from fairseq.models import build_model

    monkeypatch.chdir(ROOT)
    words = task(dictionary(4184))  # as many types as data/tatoeba_en_de has
    counts = []
    rows = [row for row in read_table("table2-tatoeba").rows if row.name != "fconv, wide"]
    for row in rows:
        config = fairseq_form(experiment_config(find_config(row.base), row.change))
        built = build_model(config.model, words)
        unreached = sum(
            (module.num_embeddings - 128) * module.embedding_dim
            for module in built.modules()
            if isinstance(module, LearnedPositionalEmbedding)
        )
        copies = ("_weight", "_bias")  # of fairseq 0.12.2's, for a faster encoder
        named = [(name, p) for name, p in built.named_parameters() if not name.endswith(copies)]
        counts.append(sum(parameter.numel() for _, parameter in named) - unreached)
    assert max(abs(count / counts[0] - 1) for count in counts) < 0.03


def test_text_prepared_as_tokens_has_one_bleu(tmp_path: Path) -> None:
    """Multi30k: `vaswani score` leaves sacreBLEU out, which wants text as it is written."""
    (tmp_path / "eval").mkdir()
    figures = {"score": 41.29, "text": "BLEU = 41.29"}, {"score": 66.01, "text": "chrF2 = 66.01"}
    scores = dict(zip(("bleu_tokenised", "chrf"), figures, strict=True))
    (tmp_path / "eval" / "test.score.json").write_text(json.dumps(scores), encoding="utf-8")
    (tmp_path / "finished.json").write_text('{"num_updates": 8000, "seconds": 1}')
    scored = small_tables.result(tmp_path)
    assert scored and (scored.bleu, scored.chrf) == (41.29, 66.01)


def test_a_table_goes_on_where_it_was_stopped(place: Path, monkeypatch: Any, capsys: Any) -> None:
    commands: list[str] = []

    def run_command(command: list[str]) -> int:
        commands.append(command[3])
        return 3 if len(commands) == 8 else stock.vaswani(*command[3:])  # as if the eighth failed

    monkeypatch.setattr(runner, "run_command", run_command)
    table = ["reproduce", "table2", "--small"]
    assert stock.vaswani(*table) == 3
    assert commands == [*["train"] * 3, "average", "generate", "score", "train", "average"]
    assert stock.vaswani(*table, "--row", "a-cell-alone") == 0
    assert commands[8:] == ["average", "generate", "score"]
    record = read_json(place / "runs" / "table2" / "table2.json")
    updates = {name: [run["updates"] for run in runs] for name, runs in record["rows"].items()}
    assert updates == {"ours": [8], "A cell, alone": [8]}
    assert stock.vaswani(*table) == 0 and len(commands) == 11, "all is done"

    one, other = (small_tables.results(read_table("table2"), row)[0].run for row in rows())
    compared = small_table.comparisons(read_table("table2"))
    assert set(compared[one]) == {"bleu_interval", "chrf_interval"}
    assert 0 < compared[other]["bleu_p"] <= 1
    name = Path(one).name
    small_table.pack(place / one / "eval" / "test.hyp", place / f"{name}.test.hyp.gz")
    (place / one).rename(place / name)
    assert small_table.comparisons(read_table("table2")) == {}
    assert small_table.comparisons(read_table("table2"), place) == compared
    (place / name).rename(place / one)
    tried = small_table.short_trainings(read_table("table2"), rows()[0])
    assert [training["rate"] for training in tried] == [0.001, 0.01]
    assert stock.vaswani("pack", other) == 1
    assert "recurrent_translation" in capsys.readouterr().err, "which is no model of ours"

    finished = place / "runs" / "table2" / "ours_seed1" / "finished.json"
    finished.write_text(json.dumps({**read_json(finished), "num_updates": 7}), encoding="utf-8")
    assert stock.vaswani(*table, "--dry-run") == 0
    assert capsys.readouterr().out.count("vaswani train small") == 1


def rows() -> list[small_tables.Row]:
    return read_table("table2").rows


@pytest.mark.parametrize(
    ("words", "named"),
    [(["table2"], "--small"), (["table2", "--small", "--row", "our"], "'our'")],
)
def test_a_table_that_cannot_be_is_refused(own: Path, capsys: Any, words: Any, named: str) -> None:
    assert stock.vaswani("reproduce", *words) == 1
    assert named in capsys.readouterr().err
    assert not (own / "runs").exists()


def test_a_rate_without_its_log_is_not_passed_over(own: Path, monkeypatch: Any) -> None:
    """It looked like the worst, and another rate was chosen in silence."""
    rates: dict[float, list[str]] = {0.1: [], 0.2: []}
    rows = [small_tables.Row("ours", "small", [], 1, rates, "ours", 1)]
    table = small_tables.Table("table2", rows, "", 4)
    monkeypatch.setattr(small_tables.Training, "done", True)
    with pytest.raises(UserError, match="has no validation in its log"):
        small_tables.trainings(table, rows[0])
