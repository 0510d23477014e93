"""The best checkpoint chosen by BLEU: ``best_checkpoint_metric``, in both entry points."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests import stock
from tests.integration.test_stopping import tell
from tests.integration.test_training_options import SHOWN
from tests.integration.test_trainings_end import RUN, statistics, updates
from transformer_plugin.config import ConfigError
from transformer_plugin.valid_bleu import ValidBleu

HIGHEST = "checkpoint.maximize_best_checkpoint_metric=true"
#: of the plugin's task, which the experiment does not name
LINES = ("task._name=vaswani_translation", "task.eval_bleu_lines=20")
#: of digits, which are sacreBLEU's tokens 13a as they are
TEXT = "task.eval_bleu_tokens=13a"


def by(metric: str) -> str:
    return f"checkpoint.best_checkpoint_metric={metric}"


@pytest.mark.parametrize(("metric", "options"), [("tokenised_bleu", ()), ("valid_bleu", (TEXT,))])
def test_the_best_checkpoint_is_the_one_with_the_highest_bleu(
    workplace: Path, cli: Any, monkeypatch: Any, metric: str, options: tuple[str, ...]
) -> None:
    """It ended in a KeyError after the first validation, or the second.

    So small a model has a BLEU of 0.1 at most: here it is computed, and then replaced by scores
    that are highest at update 4. One metric is named as fairseq names it, one as the log does.
    """
    computed = ValidBleu.score_of_all
    replaced = [10.0, 30.0, 20.0]

    def score(valid_bleu: ValidBleu) -> float:
        if valid_bleu.score is None:
            assert 0 <= computed(valid_bleu) <= 100
            valid_bleu.score = replaced.pop(0)
        return valid_bleu.score

    monkeypatch.setattr(ValidBleu, "score_of_all", score)
    ended = cli("train", "small", by(metric), HIGHEST, *LINES, *options)
    assert ended.code == 0, ended.err
    name = metric if metric.startswith("valid_") else f"valid_{metric}"
    scores = {line["valid_num_updates"]: line[name] for line in statistics() if name in line}
    assert scores == {2: 10.0, 4: 30.0, 6: 20.0}
    assert updates(RUN / "checkpoints" / "checkpoint_best.pt") == 4


def test_a_validation_made_up_after_a_stop_has_bleu(workplace: Path, cli: Any) -> None:
    """The stop came after update 4, with its validation still to be made."""
    command = ("train", "small", by("bleu"), HIGHEST, *LINES, TEXT)
    with pytest.MonkeyPatch.context() as patch:
        tell(patch, "train_step", 3, signal.SIGINT)
        assert cli(*command).code == 130
    ended = cli(*command)
    assert ended.code == 0, ended.err
    validated = [line["valid_num_updates"] for line in statistics() if "valid_bleu" in line]
    assert 4 in validated and validated[-1] == 6


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([by("bleu"), HIGHEST], "computes no BLEU"),
        ([by("bleu"), HIGHEST, *LINES], "give tokenised_bleu, or --eval-bleu-tokens 13a"),
        ([by("tokenised_bleu"), HIGHEST, *LINES, TEXT], "computes bleu: give bleu"),
        ([by("bleu"), *LINES, TEXT], "checkpoint.maximize_best_checkpoint_metric: true"),
    ],
)
def test_a_bleu_that_cannot_be_the_measure_is_refused_at_once(
    workplace: Path, cli: Any, options: list[str], named: str
) -> None:
    ended = cli("train", "small", *options)
    assert ended.code == 1 and named in ended.err and len(ended.err.splitlines()) == 1
    assert not RUN.exists()


def test_fairseq_train_chooses_by_it_too_or_refuses(tiny_data_bin: Path, tmp_path: Path) -> None:
    """With fairseq's name for it: fairseq has no other for a validation set's."""
    few = ["--max-update", "6", "--validate-interval-updates", "2"]
    highest = ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    lines = stock.train(tiny_data_bin, tmp_path / "run", *SHOWN, *highest, *few)
    assert sum('"valid_best_bleu"' in line or "| best_bleu " in line for line in lines) >= 1
    assert (tmp_path / "run" / "checkpoint_best.pt").is_file()
    highest[1] = "valid_bleu"
    with pytest.raises(ConfigError, match="computes bleu: give bleu"):
        stock.train(tiny_data_bin, tmp_path / "refused", *SHOWN, *highest, *few)
    assert not list((tmp_path / "refused").glob("*.pt"))
