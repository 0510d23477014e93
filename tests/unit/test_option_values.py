"""Values that fairseq fails on later, hangs at, or takes for others: one sentence each."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf

from tests import models
from transformer_plugin.compat.translation_task import CheckedTranslationTask
from transformer_plugin.config import ConfigError
from vaswani import cli
from vaswani.common.errors import UserError
from vaswani.experiment.check_config import check_config, check_here, named_by_section
from vaswani.experiment.fairseq_config import experiment_config
from vaswani.experiment.strict_yaml import parse

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> Path:
    """An experiment with fairseq's own model, loss, optimizer and schedule."""
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["model"] = {"_name": "transformer", "share_all_embeddings": True}
    table["criterion"] = {"_name": "label_smoothed_cross_entropy"}
    table["optimizer"] = {"_name": "adam"}
    table["lr_scheduler"] = {"_name": "inverse_sqrt"}
    table["optimization"]["lr"] = [0.001]
    path = tmp_path_factory.mktemp("theirs") / "theirs.yaml"
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    return path


def refused(*overrides: str, path: Path = ROOT / "configs" / "demo_en_de.yaml") -> str:
    """The sentence with which an experiment and these changes are refused."""
    with pytest.raises((UserError, ConfigError)) as stopped:
        experiment_config(path, overrides)
    assert "\n" not in str(stopped.value)
    return str(stopped.value)


@pytest.fixture(scope="module")
def demo() -> Any:
    """The demo's complete configuration, in which a test changes one value and changes it back."""
    return experiment_config(ROOT / "configs" / "demo_en_de.yaml")


VALUES = """
dataset.max_tokens=0 dataset.max_tokens=-1 dataset.num_workers=-1 dataset.num_workers=30000
dataset.batch_size=0 dataset.required_batch_size_multiple=0 dataset.validate_interval=0
dataset.dataset_impl=cached dataset.dataset_impl=raw dataset.curriculum=-1
common.seed=-1 common.seed=100000000000000000000 common.log_interval=0 common.tpu=true
common.model_parallel_size=2 common.bf16=true common.memory_efficient_bf16=true
common.profile=true common.memory_efficient_fp16=true common.wandb_project=x
common.log_file=/nowhere/x common.log_file=/ common.quantization_config_path=nowhere
optimization.lr=[.nan] optimization.lr=[] optimization.lr=[-0.1] optimization.lr=[.inf]
optimization.lr=[0] optimization.max_update=-1 optimization.max_epoch=-1
optimization.clip_norm=.nan optimization.clip_norm=-1 optimization.stop_min_lr=.nan
optimization.update_freq=[] optimization.update_freq=[0] optimization.stop_time_hours=-1
model.dropout=.nan model.dropout=1
criterion.label_smoothing=.nan
criterion.label_smoothing=1 task.max_source_positions=0
lr_scheduler.warmup_updates=-1 checkpoint.save_interval=0 checkpoint.patience=-2
checkpoint.finetune_from_model=no.pt checkpoint.continue_once=no.pt
checkpoint.best_checkpoint_metric=bleu checkpoint.optimizer_overrides=abc
checkpoint.checkpoint_suffix=_x checkpoint.checkpoint_shard_count=2
distributed_training.distributed_world_size=0 distributed_training.pipeline_model_parallel=true
"""


@pytest.mark.parametrize("override", VALUES.split())
def test_a_value_is_refused_by_its_option(override, demo, monkeypatch):
    monkeypatch.setitem(demo.common, "cpu", True)
    key, _, text = override.partition("=")
    section, _, name = key.partition(".")
    monkeypatch.setitem(demo[section], name, parse(text, override))
    with pytest.raises((UserError, ConfigError)) as stopped:
        check_config(demo)
        check_here(demo)
    assert str(stopped.value).startswith((key, f"--{name.replace('_', '-')} "))
    assert "\n" not in str(stopped.value)


TYPES = """
common.seed=yes common.log_format=xml optimization.lr=[abc] optimization.lr=0.001
optimization.max_update=abc optimization.max_update= optimization.max_update=1.5
optimization.update_freq=2 optimization.update_freq=[1.5] model.encoder_layers=true
model.precision=fp64 model.compile=maybe task.source_lang=no task.data=[a]
lr_scheduler.lr= lr_scheduler.lr=null generation.beam=many checkpoint.save_dir=
distributed_training.ddp_backend=x model._name=[x] model._name=5 generation.lenpen=nan
optimization.lr.0=0.1
"""


@pytest.mark.parametrize("override", TYPES.split())
def test_a_value_of_another_kind_is_refused(override):
    section, name = override.partition("=")[0].split(".")[:2]
    sentence = refused(override)
    assert f"{section}.{name}" in sentence or (name == "_name" and f"no {section} " in sentence)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimization.max_update=1:15", "base-60"),
        ("common.seed=010", "base 8"),
        ("optimization.max_update=1e4", "must be a whole number: write 10000"),
        ("optimization.lr=0.001", "a list, such as [0.001]"),
        ("lr_scheduler.lr=", "has no value: write lr_scheduler.lr=VALUE"),
        ("optimization.max_update=abc", "is 'abc', but must be a whole number"),
        ("task.source_lang=no", "is False, but must be text or null (YAML reads words such as no"),
        ("optimization.max_update=0", "would never end: give optimization.max_update"),
        ("dataset.max_tokens=null", "how large a batch is: give dataset.max_tokens"),
        ("common.bf16=true", "--precision bf16 (in YAML: model.precision)"),
        ("=3", "section.key=value"),
        ("optimization.=3", "section.key=value"),
        ("optimization.max_update: 3", "section.key=value"),
    ],
)
def test_the_sentence_says_what_to_write(override, message):
    assert message in refused(override)


def test_numbers_may_be_written_as_in_yaml():
    """``1e-4`` is a number, in a file as in an override; the last of two overrides counts."""
    path = ROOT / "configs" / "multi30k_en_de.yaml"
    config = experiment_config(
        path, ["optimization.lr=[1e-4]", "common.seed=3", "common.seed=7", "task.source_lang='no'"]
    )
    assert config.optimization.lr == [1e-4] and config.common.seed == 7
    assert config.task.source_lang == "no"


@pytest.mark.parametrize("verb", [["train"], ["plan", "--gpus", "1"]])
def test_a_table_of_rows_is_no_experiment(verb, capsys):
    assert cli.main([verb[0], "table3", *verb[1:]]) == 1
    sentence = capsys.readouterr().err
    assert "configs/table3.yaml is not an experiment, but a table" in sentence
    assert "vaswani reproduce" in sentence


def test_a_recipe_is_no_experiment(capsys):
    assert cli.main(["train", str(ROOT / "configs" / "data" / "demo_en_de.yaml")]) == 1
    assert "use it with 'vaswani prepare'" in capsys.readouterr().err


def test_a_training_on_gpus_can_be_planned_without_one(demo, monkeypatch):
    for key, value in (("cpu", True), ("fp16", True)):
        monkeypatch.setitem(demo.common, key, value)
    check_config(demo)


def test_fairseqs_own_model_keeps_fairseqs_bf16(theirs):
    assert experiment_config(theirs, ["common.bf16=true"]).common.bf16 is True


# ---- what fairseq's components refuse ------------------------------------------------------------


def test_what_fairseq_cannot_build_is_named_by_its_section(theirs):
    from fairseq import optim

    config = experiment_config(theirs, ["optimizer.adam_betas=abc"])
    message = "optimizer: fairseq cannot build 'adam'.*'abc'"
    with pytest.raises(ConfigError, match=message), named_by_section(config):
        optim.build_optimizer(config.optimizer, [torch.nn.Parameter(torch.zeros(2))])


def test_other_errors_stay_as_they_are():
    """A bug of ours inside fairseq's building, and any error outside of it."""

    def build_model() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError), named_by_section({}):
        build_model()


# ---- 16 bits -----------------------------------------------------------------------------------


def train_with(precision: str = "fp32", **common: bool) -> Any:
    """Begin a training of our model by our task, with 16-bit options of fairseq's."""
    names = ("bf16", "memory_efficient_bf16", "fp16", "memory_efficient_fp16")
    values = dict.fromkeys((*names, "fp16_no_flatten_grads"), False)
    model = {"_name": "vaswani_transformer", "precision": precision}
    cfg = OmegaConf.create({"common": {**values, "cpu": True, **common}, "model": model})
    task = CheckedTranslationTask(TranslationConfig(), models.dictionary(), models.dictionary())
    return task.build_model(cfg.model)


@pytest.mark.parametrize("name", ["bf16", "memory_efficient_bf16"])
def test_fairseqs_bf16_of_our_models_is_refused(name):
    """``--bf16``, which also switches to TPU mode, and ``common.bf16`` of fairseq-hydra-train."""
    with pytest.raises(ConfigError, match=f"common.{name}.*--precision bf16"):
        train_with(**{name: True})


def test_16_bits_that_lose_small_gradients_are_refused(demo, monkeypatch):
    """fairseq's AMP unscales them twice; with bf16's products float16 gets them unscaled."""
    with pytest.raises(ConfigError, match="--amp .* by the loss scale twice"):
        train_with(amp=True)
    with pytest.raises(ConfigError, match="--fp16 and --precision bf16 exclude each other"):
        train_with(fp16=True, precision="bf16")
    monkeypatch.setitem(demo.common, "amp", True)
    with pytest.raises(ConfigError, match="--amp .* by the loss scale twice"):
        check_config(demo)
    monkeypatch.setitem(demo.common, "amp", False)
    monkeypatch.setitem(demo.common, "fp16", True)
    monkeypatch.setitem(demo.model, "precision", "bf16")
    with pytest.raises(ConfigError, match="--fp16 and --precision bf16 exclude"):
        check_config(demo)
