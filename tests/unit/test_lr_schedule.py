"""Section 5.3: equation 3 as decimals, and the rate that fairseq's trainer really steps with."""

import logging
from argparse import Namespace
from decimal import Decimal, getcontext
from typing import Any, Dict, List, Optional

import pytest
from fairseq import options
from fairseq.dataclass.configs import FairseqConfig
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
from transformer_plugin.lr_schedule import (
    VaswaniInverseSqrt,
    learning_rate,
)

SCHEDULE = ["--lr-scheduler", "vaswani_inverse_sqrt"]
OURS = ["--arch", "vaswani_transformer_tiny"]  # d_model 128
FAIRSEQS = ["--arch", "transformer_tiny"]  # d_model 64
# in full: the official fairseq gives an architecture named in YAML base sizes
FAIRSEQS_IN_YAML = {
    "_name": "transformer",
    **{f"{side}_embed_dim": 64 for side in ("encoder", "decoder")},
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
}
LSTM = ["--arch", "lstm", "--encoder-embed-dim", "32", "--decoder-embed-dim", "48"]


def equation_3(n: int, d_model: int, warmup: int) -> float:
    """The paper's formula in 50 digits."""
    getcontext().prec = 50
    root = Decimal(n).sqrt()
    growing = Decimal(n) / (Decimal(warmup) * Decimal(warmup).sqrt())
    return float(min(1 / root, growing) / Decimal(d_model).sqrt())


@pytest.mark.paper("5.3")
@pytest.mark.parametrize("d_model", [512, 1024])
@pytest.mark.parametrize("n", [1, 2, 3999, 4000, 4001, 100_000, 300_000])
def test_equation_3(n: int, d_model: int) -> None:
    assert learning_rate(n, d_model, 4000) == pytest.approx(equation_3(n, d_model, 4000), rel=1e-13)


def test_known_values() -> None:
    """Worked out by hand for the base model: n = 1, the peak, 100,000; and the big one's peak."""
    assert learning_rate(1, 512, 4000) == pytest.approx(1.746928e-7, rel=1e-6)
    assert learning_rate(2, 512, 4000) == pytest.approx(3.493856e-7, rel=1e-6)
    assert learning_rate(4000, 512, 4000) == pytest.approx(6.988e-4, abs=5e-8)
    assert learning_rate(100_000, 512, 4000) == pytest.approx(1.397542e-4, rel=1e-6)
    assert learning_rate(4000, 1024, 4000) == pytest.approx(4.941e-4, abs=5e-8)
    assert learning_rate(4000, 1024, 4000, factor=2.0) == pytest.approx(9.882e-4, abs=1e-7)


def command_line(arguments: List[str]) -> DictConfig:
    """The configuration that ``fairseq-train data ARGUMENTS`` makes."""
    parser = options.get_training_parser()
    fixed = ["data", "-s", "en", "-t", "de", "--cpu", "--max-tokens", "100", "--optimizer", "adam"]
    args = options.parse_args_and_arch(parser, [*fixed, "--stop-min-lr", "-1", *arguments])
    return convert_namespace_to_omegaconf(args)


def yaml_file(model: Dict[str, Any]) -> DictConfig:
    """The configuration that ``fairseq-hydra-train`` makes of a file with this model section."""
    given = {
        "common": {"cpu": True},
        "task": {"_name": "translation", "data": "data", "source_lang": "en", "target_lang": "de"},
        "model": model,
        "criterion": {"_name": "cross_entropy"},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "vaswani_inverse_sqrt"},
    }
    cfg = OmegaConf.merge(OmegaConf.structured(FairseqConfig), given)
    add_defaults(cfg)
    with omegaconf_no_object_check():
        return OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))


def trainer(cfg: DictConfig) -> Trainer:
    """fairseq's trainer, built in the order of fairseq-train."""
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
        (lambda: yaml_file({"_name": "vaswani_transformer_tiny"}), 128),
        (lambda: yaml_file(FAIRSEQS_IN_YAML), 64),
    ],
    ids=["ours", "fairseq", "lstm given", "yaml", "yaml fairseq"],
)
def test_first_updates_in_fairseqs_trainer(cfg: Any, d_model: int) -> None:
    """n = 1 at the first step of the optimizer, n = 2 at the second; d_model from the model."""
    training = trainer(cfg())
    training.lr_step_begin_epoch(1)
    rates = []
    adam = training.optimizer.optimizer
    step = adam.step
    adam.step = lambda *a, **k: (rates.append(adam.param_groups[0]["lr"]), step(*a, **k))[1]
    for _ in range(3):
        training.train_step([sample([0, 2, 1])])
    expected = [equation_3(n, d_model, 4000) for n in (1, 2, 3)]
    assert rates == pytest.approx(expected, rel=1e-12)


class Recorder(FairseqOptimizer):
    """An optimizer that only remembers its rate."""

    def __init__(self) -> None:
        super().__init__(None)
        self.lr: Optional[float] = None

    def set_lr(self, lr: float) -> None:
        self.lr = lr


def schedule(
    model: Any = None, lr: Optional[List[float]] = None, **options: Any
) -> VaswaniInverseSqrt:
    """The schedule built by its registered name beside a model section, as in the trainer."""
    with omegaconf_no_object_check():
        cfg = OmegaConf.create(
            {
                "model": model or {"encoder_embed_dim": 512, "decoder_embed_dim": 512},
                "optimization": {"lr": lr or [0.25]},
                "lr_scheduler": {"_name": "vaswani_inverse_sqrt", **options},
            }
        )
    return build_lr_scheduler(cfg.lr_scheduler, Recorder())


def test_right_before_the_trainer_asks() -> None:
    """The optimizer has the rate of the first update as soon as the schedule exists."""
    assert schedule().optimizer.lr == pytest.approx(equation_3(1, 512, 4000), rel=1e-12)


def test_factor_and_warmup() -> None:
    own = schedule(warmup_updates=100, lr_factor=2.0)
    assert own.step_update(99) == pytest.approx(2 * (512 * 100) ** -0.5, rel=1e-12)
    assert own.optimizer.lr == own.step_update(99)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"warmup_updates": 0}, "--warmup-updates must be at least 1, not 0"),
        ({"model": {"_name": "x"}}, "has neither encoder_embed_dim nor .*: give --d-model"),
        (
            {"model": {"encoder_embed_dim": 8, "decoder_embed_dim": 6}},
            "has encoder_embed_dim 8 and decoder_embed_dim 6: give --d-model",
        ),
    ],
)
def test_bad_options(options: Dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        schedule(**options)


def test_one_sided_model() -> None:
    """A language model has a decoder's width only."""
    lr = schedule(model={"decoder_embed_dim": 64}).optimizer.lr
    assert lr == pytest.approx(equation_3(1, 64, 4000), rel=1e-12)


def test_model_given_as_a_namespace() -> None:
    """What fairseq makes of its own architectures on the command line."""
    lr = schedule(model=Namespace(encoder_embed_dim=64, decoder_embed_dim=64)).optimizer.lr
    assert lr == pytest.approx(equation_3(1, 64, 4000), rel=1e-12)


def test_lr_is_refused_with_the_factor_of_the_same_peak() -> None:
    with pytest.raises(ConfigError, match="--lr 0.0007 would be ignored") as refused:
        schedule(lr=[0.0007], warmup_updates=1000)
    factor = float(str(refused.value).split("--lr-factor ")[1].split()[0])
    peak = schedule(warmup_updates=1000, lr_factor=factor).step_update(999)
    assert peak == pytest.approx(0.0007, rel=1e-5)


def test_resumption(caplog) -> None:
    """A new schedule with the saved state goes on with the same rates and the best loss."""
    first = schedule(warmup_updates=50)
    first.step(1, val_loss=3.5)
    saved = first.state_dict()
    assert saved == {"best": 3.5, "d_model": 512, "warmup_updates": 50, "lr_factor": 1.0}
    second = schedule(warmup_updates=50)
    with caplog.at_level(logging.WARNING):
        second.load_state_dict(saved)
    assert not caplog.records
    assert second.best == 3.5
    assert [second.step_update(k) for k in (70, 71)] == [first.step_update(k) for k in (70, 71)]


def test_resumption_with_other_options_warns(caplog) -> None:
    """The new value holds, as with fairseq's schedules, and one sentence says so."""
    saved = schedule(warmup_updates=50).state_dict()
    own = schedule(warmup_updates=100)
    with caplog.at_level(logging.WARNING):
        own.load_state_dict(saved)
    assert [record.getMessage() for record in caplog.records] == [
        "resuming with --warmup-updates 100, where the run so far had 50: "
        "give --warmup-updates 50 to continue it unchanged"
    ]
    assert own.step_update(99) == pytest.approx(equation_3(100, 512, 100), rel=1e-12)


def test_resumption_from_fairseqs_inverse_sqrt() -> None:
    """Its state has no settings of ours; that is no error."""
    own = schedule()
    own.load_state_dict({"best": 4.0})
    assert own.best == 4.0


def test_resumption_in_fairseqs_trainer(tmp_path) -> None:
    """Saved after two updates, loaded in a new trainer: the third update has n = 3."""
    first = trainer(command_line([*OURS, *SCHEDULE]))
    first.lr_step_begin_epoch(1)
    for _ in range(2):
        first.train_step([sample([0, 2, 1])])
    iterator = {"epoch": 1, "iterations_in_epoch": 2, "version": 2, "shuffle": True}
    first.consolidate_optimizer()  # as fairseq does before it saves
    first.save_checkpoint(str(tmp_path / "two.pt"), {"train_iterator": iterator})
    second = trainer(command_line([*OURS, *SCHEDULE]))
    second.load_checkpoint(str(tmp_path / "two.pt"))
    assert second.get_num_updates() == 2
    assert second.get_lr() == pytest.approx(equation_3(3, 128, 4000), rel=1e-12)
