"""Which commands a small table still has to run, and which runs are a row's."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from vaswani.common.errors import UserError
from vaswani.data.data_bin import fingerprint
from vaswani.decoding.translations import decoding
from vaswani.experiment.find import find_config
from vaswani.paper import runner, small_tables
from vaswani.paper.small_tables import Options, Table, Training, read_table

Scores = dict[str, Any]


@pytest.fixture
def row(tmp_path: Path, monkeypatch: Any) -> Training:
    """The only training of a table, done and scored."""
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    Path("data").mkdir()
    Path("data/dict.en.txt").write_text("a 1\n", encoding="utf-8")
    experiment = yaml.safe_load(find_config("multi30k_en_de").read_text(encoding="utf-8"))
    experiment["task"]["data"] = "data"
    write_yaml("small", experiment)
    section = {"expected": "nothing", "rows": {"ours": {}, "not trained": {}}}
    changes = ["optimization.max_update=12"]
    table = {"base": "small", "change": changes, "average": 2, "rate_updates": 4}
    write_yaml("small_tables", {**table, "table2": section})

    (training,) = small_tables.trainings(table2(), table2().rows[0])
    run, config = training.run, training.config
    average = training.average(2)
    average.parent.mkdir(parents=True)
    average.touch()
    (run / "eval").mkdir()
    (run / "config.yaml").write_text(OmegaConf.to_yaml(config), encoding="utf-8")
    for name, content in (
        ("env.json", {"data": fingerprint(config)}),
        ("finished.json", {"num_updates": 12, "seconds": 1}),
    ):
        (run / name).write_text(json.dumps(content), encoding="utf-8")
    options = decoding(config)
    report = {"checkpoint": str(average), "data": options.pop("data"), "options": options}
    report["precision"] = "fp32"
    scored(run, report)
    return training


def write_yaml(name: str, content: Any) -> None:
    text = yaml.safe_dump(content, sort_keys=False)
    Path("configs", f"{name}.yaml").write_text(text, encoding="utf-8")


def change_yaml(name: str, section: str, changed: Any) -> None:
    content = yaml.safe_load(Path("configs", f"{name}.yaml").read_text(encoding="utf-8"))
    content[section] = {**content[section], **changed}
    write_yaml(name, content)
    small_tables.config_of.cache_clear()  # a command reads it once


def scored(run: Path, translation: Scores) -> None:
    """Leave what 'vaswani generate' and 'vaswani score' say of a translation."""
    score = {"score": 30.0, "text": ""}
    scores = {"bleu": score, "chrf": score, "translation": translation}
    (run / "eval" / "test.json").write_text(json.dumps(translation), encoding="utf-8")
    (run / "eval" / "test.score.json").write_text(json.dumps(scores), encoding="utf-8")


def table2() -> Table:
    return read_table("table2")


def commands(row: Training) -> list[list[str]]:
    return list(small_tables.seed_commands(table2(), table2().rows[0]))


def test_a_run_that_was_scored_as_asked_is_the_rows(row: Training) -> None:
    assert commands(row) == []
    assert len(small_tables.results(table2(), table2().rows[0])) == 1
    assert small_tables.results(table2(), table2().rows[1]) == []


@pytest.mark.parametrize(
    "other",
    [
        {"options": {"beam": 3}},
        {"options": {"length_penalty": "gnmt"}},
        {"checkpoint": "checkpoint_best.pt"},
        {"data": "elsewhere"},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_another_decoding_is_not_the_rows(row: Training, other: dict[str, Any]) -> None:
    """``vaswani generate RUN --beam 3; vaswani score RUN``: the table printed that score."""
    report = json.loads((row.run / "eval" / "test.json").read_text(encoding="utf-8"))
    options = {**report["options"], **other.get("options", {})}
    scored(row.run, {**report, **other, "options": options})
    assert commands(row) == [["generate", str(row.average(2))], ["score", str(row.run)]]
    assert small_tables.results(table2(), table2().rows[0]) == []


@pytest.mark.parametrize(
    ("section", "changed", "key"),
    [
        ("model", {"dropout": 0.45}, "model.dropout=0.3, not 0.45"),
        ("criterion", {"label_smoothing": 0.2}, "criterion.label_smoothing"),
        ("optimization", {"update_freq": [3]}, "optimization.update_freq"),
        ("model", {"_name": "vaswani_transformer"}, "model._name"),
    ],
    ids=str,
)
def test_a_run_of_another_recipe_is_refused(
    row: Training, section: str, changed: Any, key: str, capsys: Any, monkeypatch: Any
) -> None:
    """Nothing ran, and the old row was printed."""
    change_yaml("small", section, changed)
    ran: list[list[str]] = []

    def run_command(command: list[str]) -> int:
        ran.append(command[3:])
        return 0

    monkeypatch.setattr(runner, "run_command", run_command)
    with pytest.raises(UserError, match=key.replace(".", r"\.")):
        small_tables.run(Options(name="table2", small=True))
    assert ran == []
    # another row is trained and shown, this one left out
    options = Options(name="table2", small=True, row="not trained")
    assert small_tables.run(options) == 0
    assert [words[0] for words in ran] == ["train", "average", "generate", "score"]
    out, err = capsys.readouterr()
    assert "| ours | 0 of 1 | –" in out
    assert key in err


def test_a_run_of_another_text_or_seed_is_refused(row: Training) -> None:
    other = row._replace(change=[*row.change, "common.seed=5"])
    assert other.difference == "common.seed=1, not 5"
    Path("data/dict.en.txt").write_text("b 1\n", encoding="utf-8")
    assert "dict.en.txt" in row.difference


def test_a_rate_may_have_its_own_warm_up(row: Training, monkeypatch: Any) -> None:
    whole = {"base": "small", "change": [], "average": 2, "rate_updates": 4}
    rows = {"ours": {"rates": [[0.002, 20], [0.004, 40]]}}
    write_yaml("pairs", {**whole, "table2": {"expected": "", "rows": rows}})
    table = read_table("table2", path=Path("configs/pairs.yaml"))
    short = small_tables.rate_trainings(table, table.rows[0])[0.004]
    assert short.change[:2] == ["optimization.lr=[0.004]", "lr_scheduler.warmup_updates=40"]
    monkeypatch.setattr(Training, "done", True)
    monkeypatch.setattr(small_tables, "best_rate", lambda rated: 0.004)
    (chosen,) = small_tables.trainings(table, table.rows[0])
    assert chosen.change[:2] == short.change[:2]
