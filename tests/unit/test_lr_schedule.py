"""Section 5.3: the rate that fairseq's trainer really steps with, and where d_model comes from."""

from argparse import Namespace
from typing import Any

import pytest
from fairseq import options
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, omegaconf_no_object_check
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import build_lr_scheduler
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig, OmegaConf

import transformer_plugin  # noqa: F401  (registers the schedule)
from tests.models import dictionary, sample
from transformer_plugin.config import ConfigError
from transformer_plugin.lr_schedule import VaswaniInverseSqrt
from vaswani_transformer.schedule import learning_rate

SCHEDULE = ["--lr-scheduler", "vaswani_inverse_sqrt"]
OURS = ["--arch", "vaswani_transformer_tiny"]  # d_model 128
FAIRSEQS = ["--arch", "transformer_tiny"]  # d_model 64
LSTM = ["--arch", "lstm", "--encoder-embed-dim", "32", "--decoder-embed-dim", "48"]


def command_line(arguments: list[str]) -> DictConfig:
    """Return the configuration that ``fairseq-train data ARGUMENTS`` makes."""
    parser = options.get_training_parser()
    fixed = ["data", "-s", "en", "-t", "de", "--cpu", "--max-tokens", "100", "--optimizer", "adam"]
    args = options.parse_args_and_arch(parser, [*fixed, "--stop-min-lr", "-1", *arguments])
    return convert_namespace_to_omegaconf(args)


def trainer(cfg: DictConfig) -> Trainer:
    """Build fairseq's trainer in the order of fairseq-train."""
    add_defaults(cfg)
    words = dictionary()
    task = TranslationTask(cfg.task, words, words)
    model = task.build_model(cfg.model)
    return Trainer(cfg, task, model, task.build_criterion(cfg.criterion))


@pytest.mark.parametrize(
    "cfg, d_model",
    [
        (lambda: command_line([*OURS, *SCHEDULE]), 128),
        (lambda: command_line([*FAIRSEQS, *SCHEDULE]), 64),
        (lambda: command_line([*LSTM, *SCHEDULE, "--d-model", "40"]), 40),
    ],
    ids=["ours", "fairseq", "lstm given"],
)
def test_the_trainers_first_updates_have_the_rates_of_equation_3(cfg: Any, d_model: int) -> None:
    """n = 1 at the first step of the optimizer, n = 2 at the second; d_model from the model."""
    training = trainer(cfg())
    training.lr_step_begin_epoch(1)
    rates = []
    adam = training.optimizer.optimizer
    step = adam.step
    adam.step = lambda *a, **k: (rates.append(adam.param_groups[0]["lr"]), step(*a, **k))[1]
    for _ in range(3):
        training.train_step([sample([0, 2, 1])])
    expected = [learning_rate(n, d_model, 4000) for n in (1, 2, 3)]
    assert rates == pytest.approx(expected, rel=1e-12)


class Recorder(FairseqOptimizer):
    """An optimizer that only remembers its rate."""

    def __init__(self) -> None:
        super().__init__(None)
        self.lr: float | None = None

    def set_lr(self, lr: float) -> None:
        self.lr = lr


def schedule(
    model: Any = None, lr: list[float] | None = None, **options: Any
) -> VaswaniInverseSqrt:
    """Build the schedule by its registered name beside a model section, as in the trainer."""
    with omegaconf_no_object_check():
        cfg = OmegaConf.create(
            {
                "model": model or {"encoder_embed_dim": 512, "decoder_embed_dim": 512},
                "optimization": {"lr": lr or [0.25]},
                "lr_scheduler": {"_name": "vaswani_inverse_sqrt", **options},
            }
        )
    return build_lr_scheduler(cfg.lr_scheduler, Recorder())


@pytest.mark.parametrize(
    "model",
    [{"decoder_embed_dim": 64}, Namespace(encoder_embed_dim=64, decoder_embed_dim=64)],
    ids=["language model", "namespace"],
)
def test_the_width_is_the_models(model: Any) -> None:
    """fairseq makes a Namespace of its own architectures on the command line."""
    assert schedule(model=model).optimizer.lr == learning_rate(1, 64, 4000)


@pytest.mark.parametrize(
    "options, named",
    [
        ({"warmup_updates": 0}, "--warmup-updates"),
        ({"model": {"_name": "x"}}, "--d-model"),
        ({"model": {"encoder_embed_dim": 8, "decoder_embed_dim": 6}}, "--d-model"),
    ],
)
def test_a_schedule_without_a_rate_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        schedule(**options)


def test_lr_is_refused_with_the_factor_of_the_same_peak() -> None:
    with pytest.raises(ConfigError, match="--lr 0.0007") as refused:
        schedule(lr=[0.0007], warmup_updates=1000)
    factor = float(str(refused.value).split("--lr-factor ")[1].split()[0])
    peak = schedule(warmup_updates=1000, lr_factor=factor).step_update(999)
    assert peak == pytest.approx(0.0007, rel=1e-5)
