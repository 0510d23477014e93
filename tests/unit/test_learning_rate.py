"""A learning rate that rises far above the paper's is named before the training begins."""

import pytest

from vaswani.experiment.fairseq_config import experiment_config, warn_of_high_rate
from vaswani.experiment.find import find_config, known_configs


@pytest.mark.parametrize(
    ("experiment", "changes", "named"),
    [
        ("demo_en_de", ["lr_scheduler.warmup_updates=100"], "0.0088"),  # 128^-0.5 × 100^-0.5
        ("wmt14_en_de_base", ["lr_scheduler.lr_factor=6"], "lr_scheduler.lr_factor"),
    ],
)
def test_a_high_peak_is_named(experiment, changes, named):
    (sentence,) = warn_of_high_rate(experiment_config(find_config(experiment), changes))
    assert named in sentence and "\n" not in sentence


def test_no_shipped_experiment_is_warned_of():
    for experiment in known_configs():
        assert warn_of_high_rate(experiment_config(find_config(experiment))) == []
