"""Which commands an experiment still has to run, and which runs are a row's."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from experiments import fairseq_runs, harness
from experiments.curves import updates_to
from experiments.demo_measures import has_number, numbers_right, share
from experiments.fairseq_runs import Training, score_commands, seed_trainings
from experiments.harness import Row
from experiments.intervals import Difference
from experiments.learning.experiment import learning_table
from experiments.since2017.experiment import cell
from experiments.system_tables import SystemsExperiment
from tests.files import write
from vaswani.common.errors import UserError
from vaswani.common.find import find_config
from vaswani.data.read_data_bin import data_fingerprint
from vaswani.decoding.earlier_translations import decoding
from vaswani.reproduction import runner

Scores = dict[str, Any]
ROWS = {"ours": {}, "not trained": {}}


def write_rows(rows: dict[str, Any]) -> SystemsExperiment:
    """Write an experiment with these rows, of the YAML file ``small``."""
    table = {"title": "Small", "question": "Which?", "expected": "nothing", "base": "small"}
    sizes = {"change": ["optimization.max_update=12"], "average": 2, "rate_updates": 4}
    folder = Path("table").resolve()
    write(folder / "rows.yaml", yaml.safe_dump({**table, **sizes, "rows": rows}, sort_keys=False))
    return SystemsExperiment(folder)


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    """Make the only training of an experiment, done and scored."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data" / "dict.en.txt", "a 1")
    recipe = yaml.safe_load(find_config("multi30k_en_de").read_text(encoding="utf-8"))
    recipe["task"]["data"] = "data"
    write_config(recipe)
    only = seed_trainings(write_rows(ROWS).plans["ours"])[1]
    average = only.average(2)
    average.parent.mkdir(parents=True)
    average.touch()
    write(only.run / "config.yaml", OmegaConf.to_yaml(only.config))
    write(only.run / "env.json", json.dumps({"data": data_fingerprint(only.config).to_json()}))
    write(only.run / "finished.json", json.dumps({"num_updates": 12, "seconds": 1}))
    options = decoding(only.config)
    report = {"checkpoint": str(average), "data": options.pop("data"), "options": options}
    score(only.run, {**report, "precision": "fp32"})
    return only


def write_config(recipe: dict[str, Any]) -> None:
    """Write the YAML file ``small``, which a command reads once."""
    write(Path("configs") / "small.yaml", yaml.safe_dump(recipe, sort_keys=False))
    fairseq_runs.config_of.cache_clear()


def score(run: Path, translation: Scores) -> None:
    """Leave what 'vaswani generate' and 'vaswani score' say of a translation."""
    result = {"score": 30.0, "text": ""}
    scores = {"bleu": result, "chrf": result, "translation": translation}
    write(run / "eval" / "test.json", json.dumps(translation))
    write(run / "eval" / "test.score.json", json.dumps(scores))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the commands instead of running them."""
    started: list[list[str]] = []

    def run_command(command: list[str]) -> int:
        started.append(command[3:])
        return 0

    monkeypatch.setattr(runner, "run_command", run_command)
    return started


def test_a_run_that_was_scored_as_asked_is_the_rows(training: Training) -> None:
    experiment = write_rows(ROWS)
    assert score_commands(experiment.plans["ours"], training) == []
    assert experiment.runs(Row("ours", 1)) == [training.run]
    assert experiment.runs(Row("not trained", 1)) == []


@pytest.mark.parametrize(
    "other",
    [
        {"options": {"beam": 3}},
        {"options": {"length_penalty": "gnmt"}},
        {"checkpoint": "checkpoint_best.pt"},
        {"sha256": {"checkpoint_average_last2.pt": "of the average before"}},
        {"data": "elsewhere"},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_another_decoding_is_not_the_rows(training: Training, other: dict[str, Any]) -> None:
    """``vaswani generate RUN --beam 3; vaswani score RUN``: the table printed that score."""
    report = json.loads((training.run / "eval" / "test.json").read_text(encoding="utf-8"))
    options = {**report["options"], **other.get("options", {})}
    score(training.run, {**report, **other, "options": options})
    experiment = write_rows(ROWS)
    again = [["generate", str(training.average(2))], ["score", str(training.run)]]
    assert score_commands(experiment.plans["ours"], training) == again
    assert experiment.runs(Row("ours", 1)) == []


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
    training: Training,
    commands: list[list[str]],
    section: str,
    changed: dict[str, Any],
    key: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing ran, and the old row was printed."""
    recipe = yaml.safe_load(Path("configs/small.yaml").read_text(encoding="utf-8"))
    recipe[section] = {**recipe[section], **changed}
    write_config(recipe)
    experiment = write_rows(ROWS)
    with pytest.raises(UserError, match=key.replace(".", r"\.")):
        experiment.train(Row("ours", 1), 1)
    assert commands == []
    # another row is trained, this one left out
    experiment.train(Row("not trained", 1), 1)
    assert [words[0] for words in commands] == ["train", "average", "generate", "score"]
    assert experiment.runs(Row("ours", 1)) == []
    assert key in capsys.readouterr().err


def test_a_run_of_another_text_or_seed_is_refused(training: Training) -> None:
    other = training._replace(change=[*training.change, "common.seed=5"])
    assert other.difference == "common.seed=1, not 5"
    write(Path("data") / "dict.en.txt", "b 1")
    assert "dict.en.txt" in training.difference


def test_a_rate_may_have_its_own_warm_up(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write_rows({"ours": {"rates": [[0.002, 20], [0.004, 40]]}}).plans["ours"]
    pair = ["optimization.lr=[0.004]", "lr_scheduler.warmup_updates=40"]
    short = fairseq_runs.rate_trainings(plan)[0.004]
    assert short.change[1:3] == pair
    assert seed_trainings(plan) == {}, "not chosen yet"
    monkeypatch.setattr(Training, "done", True)
    monkeypatch.setattr(fairseq_runs, "best_rate", lambda rated: 0.004)
    assert seed_trainings(plan)[1].change[1:3] == pair


def test_a_rate_without_its_log_is_not_passed_over(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked like the worst, and another rate was chosen in silence."""
    plan = write_rows({"ours": {"rates": [0.1, 0.2]}}).plans["ours"]
    monkeypatch.setattr(Training, "done", True)
    with pytest.raises(UserError, match="has no validation in its log"):
        seed_trainings(plan)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tables"], "no experiment 'tables'"),
        (["table3", "--row", "A-h2"], "no row 'A-h2' (did you mean 'A-h1'?)"),
        (["table3", "--seed", "4"], "seeds are 1 to 3"),
        (["table4", "--record"], "nothing of table4 is trained"),
        (["table3", "--record", "--row", "A-h1"], "leave out --row and --seed"),
        (["table3", "--record", "--seed", "0"], "leave out --row and --seed"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert harness.main(words) == 1
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_command_that_failed_ends_the_experiment(
    training: Training, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its exit code; finished trainings are taken when it is started again."""
    experiment = write_rows(ROWS)
    monkeypatch.setattr(harness, "find", lambda name: experiment)
    monkeypatch.setattr(runner, "run_command", lambda command: 3 * (command[3] == "average"))
    assert harness.main(["small"]) == 3


CURVE = {100: 4.0, 200: 3.5, 300: 2.5}


@pytest.mark.parametrize("flag", ["--page", "--with"])
@pytest.mark.parametrize("kind", ["nothing", "another experiment", "damaged"])
def test_a_folder_without_a_record_of_the_experiment_is_refused(
    flag: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They ended in tracebacks."""
    monkeypatch.chdir(tmp_path)
    files = {"another experiment": '{"table": "heads", "rows": {}}', "damaged": '{"table"'}
    if kind in files:
        write(tmp_path / "record.json", files[kind])
    recorded = ["--record"] if flag == "--with" else []
    assert harness.main(["since2017", *recorded, flag, "."]) == 1
    assert "no record.json of since2017" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("name", harness.names())
def test_a_record_of_nothing_is_refused(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "records"
    assert harness.main([name, "--record", "--out", str(out)]) == 1
    assert f"nothing of {name} is trained" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("target", "updates"), [(4.5, 100), (3.75, 150), (3.0, 250), (2.5, 300), (2.4, None)]
)
def test_updates_to_a_loss_are_linear_between_validations(target: float, updates: float) -> None:
    assert updates_to(target, CURVE) == updates
    assert updates_to(3.0, {1: 4.0, 3: 2.0, 4: 5.0, 5: 1.0}) == 2  # though it rises again


@pytest.mark.parametrize(
    ("difference", "better", "expected"),
    [
        (Difference(3.331, 1.43, 18, 0.001, 3), 1, "+3.33 ± 1.43 (p 0.001): better"),
        (Difference(3.331, 1.43, 18, 0.001, 3), -1, "+3.33 ± 1.43 (p 0.001): worse"),
        (Difference(-2.0, 1.9, 18, 0.06, 3), 1, "-2.00 ± 1.90 (p 0.06): not significant"),
        (Difference(3.0, 0.5, 18, 0.001, 2), 1, "+3.00 ± 0.50 (p 0.001): too few seeds"),
        (Difference(3.0, None, 0, None, 1), 1, "+3.00: too few seeds"),
        (None, 1, "–"),
    ],
)
def test_a_change_is_better_or_worse_if_its_difference_is_significant(
    difference: Difference | None, better: int, expected: str
) -> None:
    """On its side of zero, by a p that is corrected, over three seeds at least."""
    assert cell(difference, better) == expected


def test_a_row_of_learning_tells_updates_and_seconds_over_the_seeds() -> None:
    """Two seeds: 250 and 350 updates of 700 tokens, at 1,400 tokens a second; one reaches 2.6."""
    later = {update + 100: nll for update, nll in CURVE.items() if update < 300}
    curves = [CURVE, {**later, 400: 2.7}]
    runs = [{"run": "a", "curve": curve, "tokens_per_update": 700} for curve in curves]
    record = {"rows": {"ours": {"tokens_per_second": 1400.0, "runs": runs}}}
    (cells,) = learning_table(record).rows
    assert cells[:3] == ["ours", "–", "2"]
    assert cells[4:6] == ["306 (250, 362)", "153 (125, 181)"]
    assert cells[6:8] == ["by 1 of 2", "–"]


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        ("47", "Es sind 47 Äpfel.", True),
        ("47", "Es sind 147 Äpfel.", False),
        ("47", "47,5 Grad", False),
        ("47", "1 047 Grad", False),
        ("47", "um 47.", True),
        ("deux cent trois", "deux cent trois pommes", True),
        ("deux cent trois", "mille deux cent trois pommes", False),
        ("vingt", "vingt et un jours", False),
    ],
)
def test_a_number_counts_where_it_is_complete(number, text, expected):
    assert has_number(number, text) is expected


def test_shares_are_in_per_cent():
    assert share([True, False, False]) == 33.3
    assert numbers_right([(0, "3"), (1, "4")], ["3 Tage", "40 Tage"]) == 50.0
