"""Values that fairseq fails on later, hangs at, or takes for others: one sentence each."""

from pathlib import Path
from typing import Any

import pytest
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf

from tests import models
from transformer_plugin.compat.translation_task import CheckedTranslationTask
from transformer_plugin.config import ConfigError
from vaswani.common.errors import UserError
from vaswani.configuration.fairseq_config import read_configuration
from vaswani.configuration.plugin import load_user_dir
from vaswani.training.launch import check_machine

ROOT = Path(__file__).resolve().parents[2]


def refused(*overrides: str, path: Path = ROOT / "configs" / "demo_en_de.yaml") -> str:
    """Return the sentence with which an experiment and these changes are refused."""
    with pytest.raises((UserError, ConfigError)) as stopped:
        read_configuration(path, overrides)
    assert "\n" not in str(stopped.value)
    return str(stopped.value)


VALUES = """
optimization.lr=[] optimization.update_freq=[]
optimization.lr=[.nan] optimization.stop_time_hours=.nan optimization.lr=[-1]
optimization.update_freq=[0] optimization.update_freq=[4,-1] checkpoint.save_interval=0
checkpoint.checkpoint_suffix=-x common.seed=-1 dataset.num_workers=-1 task.target_lang=no
criterion.label_smoothing=1 lr_scheduler.lr_factor=0 lr_scheduler.lr_factor=-1
lr_scheduler.lr_factor=.inf lr_scheduler.warmup_updates=0 lr_scheduler.d_model=-5
optimizer.adam_betas=abc optimizer.adam_betas=[0.9] optimizer.adam_betas=[0.9,1]
optimizer.adam_eps=-1 optimizer.weight_decay=-1
model.dropout=1 model.dropout=-0.1 model.encoder_layers=-1 model.decoder_layers=0
model.encoder_attention_heads=0 model.decoder_ffn_embed_dim=-1 model.head_key_dim=0
model.layer_norm_eps=-1
"""


@pytest.mark.parametrize("override", VALUES.split())
def test_a_value_is_refused_by_its_option(override):
    key = override.partition("=")[0]
    flag = f"--{key.partition('.')[2].replace('_', '-')} "
    assert key in refused(override) or refused(override).startswith(flag)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("optimization.max_update=0", "optimization.max_update"),
        ("dataset.max_tokens=null", "dataset.max_tokens"),
        ("common.bf16=true", "model.precision"),
        ("optimization.max_update: 3", "section.key=value"),
        ("optimization.update_freq=8", "write [8]"),
        ("optimization.lr=5e-4", "write [0.0005]"),
        ("model: vaswani_transformer", "section.key=value"),
    ],
)
def test_a_refused_value_names_what_to_write_instead(override, named):
    assert named in refused(override)


def test_a_section_without_keys_is_named(tmp_path):
    text = (ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(f"{text[: text.index('model:')]}model: vaswani_transformer\n")
    assert "section 'model'" in refused(path=path)


# ---- what this machine lacks --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("common.fp16=true", "common.fp16 needs a GPU"),
        ("common.tpu=true", "common.tpu"),
        ("common.wandb_project=mine", "pip install wandb"),
        ("common.aim_repo=mine", "pip install aim"),
        ("checkpoint.write_checkpoints_asynchronously=true", "pip install iopath"),
    ],
)
def test_an_option_that_needs_more_than_there_is_is_refused(override, named, monkeypatch):
    """fairseq says this in its log alone; without iopath it ends there, with nothing trained."""
    config = read_configuration(ROOT / "configs" / "demo_en_de.yaml", ["common.cpu=true", override])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=named):
        check_machine(config)


def test_one_of_two_packages_is_enough(monkeypatch):
    changes = ["common.cpu=true", "common.tensorboard_logdir=here"]
    config = read_configuration(ROOT / "configs" / "demo_en_de.yaml", changes)
    installed = {"tensorboardX": True}
    monkeypatch.setattr("importlib.util.find_spec", installed.get)
    check_machine(config)
    installed.clear()
    with pytest.raises(UserError, match="pip install tensorboard,"):
        check_machine(config)


# ---- 16 bits -----------------------------------------------------------------------------------


def train_with(precision: str = "fp32", **common: bool) -> Any:
    """Begin a training of our model by our task, with 16-bit options of fairseq's."""
    names = ("bf16", "memory_efficient_bf16", "fp16", "memory_efficient_fp16")
    values = dict.fromkeys((*names, "fp16_no_flatten_grads"), False)
    model = {"_name": "vaswani_transformer", "precision": precision}
    cfg = OmegaConf.create({"common": {**values, "cpu": True, **common}, "model": model})
    task = CheckedTranslationTask(TranslationConfig(), models.dictionary(), models.dictionary())
    return task.build_model(cfg.model)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["bf16"], r"common\.bf16\) is fairseq's option for TPUs"),
        (["memory_efficient_bf16", "bf16"], "efficient_bf16.*weights themselves in bfloat16"),
    ],
)
def test_fairseqs_bf16_of_our_models_is_refused(options, reason):
    """fairseq turns TPU mode on for the first; the second sets the first, and has no fp32 copy."""
    with pytest.raises(ConfigError, match=f"{reason}.*--precision bf16"):
        train_with(**dict.fromkeys(options, True))


@pytest.mark.parametrize(
    ("common", "precision", "named"),
    [({"amp": True}, "fp32", "--amp"), ({"fp16": True}, "bf16", "--fp16 and --precision bf16")],
)
def test_16_bits_that_lose_small_gradients_are_refused(common, precision, named):
    """fairseq's AMP unscales them twice; with bf16's products float16 gets them unscaled."""
    with pytest.raises(ConfigError, match=named):
        train_with(precision, **common)
    changes = [f"common.{key}={value}" for key, value in common.items()]
    assert named in refused(f"model.precision={precision}", *changes)


@pytest.mark.parametrize(
    ("name", "named"), [("/", "without a dot"), ("v1.2", "without a dot"), ("json", "unique")]
)
def test_a_user_dir_that_cannot_be_a_package_is_refused(name, named, tmp_path):
    """An empty name, a folder inside another package, and a module of Python's."""
    (tmp_path / name).mkdir(exist_ok=True)
    with pytest.raises(UserError, match=f"common.user_dir: .*{named}"):
        load_user_dir(str(tmp_path / name))
