"""Options: presets by both routes, and combinations that cannot work, refused in one sentence."""

import math
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import nn

from tests.models import config, dictionary, small_model, task
from transformer_plugin.checks import check_model_config, check_subsets
from transformer_plugin.config import (
    ConfigError,
    VaswaniAdamConfig,
    VaswaniInverseSqrtConfig,
    VaswaniTranslationConfig,
)
from transformer_plugin.lr_schedule import VaswaniInverseSqrt
from transformer_plugin.optimizer import VaswaniAdam
from transformer_plugin.task import VaswaniTranslationTask

# Table 3, section 6.1, and the small model outside the paper: layers, d_model, d_ff, heads, P_drop.
PRESETS = {
    "vaswani_transformer": (6, 512, 2048, 8, 0.1),
    "vaswani_transformer_big": (6, 1024, 4096, 16, 0.3),
    "vaswani_transformer_big_en_fr": (6, 1024, 4096, 16, 0.1),
    "vaswani_transformer_tiny": (4, 128, 256, 4, 0.3),
}


#: who reads a section
READERS = {
    VaswaniInverseSqrtConfig: lambda cfg: VaswaniInverseSqrt(cfg, None),
    VaswaniAdamConfig: lambda cfg: VaswaniAdam(cfg, [nn.Parameter(torch.ones(1))]),
    VaswaniTranslationConfig: lambda cfg: VaswaniTranslationTask(cfg, dictionary(), dictionary()),
}


def sizes(cfg: Any) -> dict[str, Any]:
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    return {
        "encoder": tuple(cfg[f"encoder_{n}"] for n in names),
        "decoder": tuple(cfg[f"decoder_{n}"] for n in names),
        "dropout": cfg["dropout"],
    }


def from_command_line(arguments: list[str]) -> Any:
    """Return the model's configuration as fairseq-train makes it of its arguments."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", *arguments])
    return convert_namespace_to_omegaconf(args).model


def from_yaml(name: str) -> Any:
    """Return the model's configuration as fairseq makes it of ``model._name`` in YAML."""
    from fairseq.dataclass.initialize import add_defaults

    cfg = OmegaConf.create({"task": {"_name": "translation"}, "model": {"_name": name}})
    add_defaults(cfg)
    return cfg.model


@pytest.mark.parametrize("name", PRESETS)
def test_presets_by_both_routes(name: str) -> None:
    *of_a_side, dropout = PRESETS[name]
    expected = {"encoder": tuple(of_a_side), "decoder": tuple(of_a_side), "dropout": dropout}
    assert sizes(from_command_line(["--arch", name])) == expected
    assert sizes(from_yaml(name)) == expected


@pytest.mark.parametrize(
    "options,named",
    [
        ({"decoder_attention_heads": 3}, "--decoder-attention-heads 3"),
        ({"encoder_embed_dim": 32}, "--encoder-embed-dim 32 and --decoder-embed-dim 16"),
        ({"dropout": 1.0}, "--dropout must be below 1"),
        ({"dropout": math.nan}, "--dropout must be a finite number"),
        ({"encoder_layers": -1}, "--encoder-layers must be at least 1, not -1"),
        ({"encoder_attention_heads": 0}, "--encoder-attention-heads must be at least 1, not 0"),
        ({"head_value_dim": 0}, "--head-value-dim"),
        ({"layer_norm_eps": math.nan}, "--layer-norm-eps"),
        (
            {"encoder_embed_dim": 15, "decoder_embed_dim": 15, "head_key_dim": 4}
            | {"head_value_dim": 4, "encoder_learned_pos": True},
            "--decoder-embed-dim 15 is odd.*--decoder-learned-pos",
        ),
        ({"share_all_embeddings": True, "untie_embeddings": True}, "--untie-embeddings"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check_model_config(config(**options))


@pytest.mark.parametrize(
    "section,options,named",
    [
        (VaswaniInverseSqrtConfig, {"lr_factor": math.nan}, "--lr-factor must be a finite number"),
        (VaswaniInverseSqrtConfig, {"lr_factor": -1.0}, "--lr-factor must be above 0"),
        (VaswaniInverseSqrtConfig, {"d_model": 0}, "--d-model"),
        (VaswaniAdamConfig, {"adam_betas": "abc"}, "--adam-betas must be two numbers"),
        (VaswaniAdamConfig, {"adam_betas": "(0.9"}, "--adam-betas must be two numbers"),
        (VaswaniAdamConfig, {"adam_betas": [0.9, math.nan]}, "--adam-betas must be a finite"),
        (VaswaniAdamConfig, {"adam_eps": -1e-9}, "--adam-eps"),
        (VaswaniTranslationConfig, {"eval_bleu_lines": -1}, "--eval-bleu-lines"),
        (VaswaniTranslationConfig, {"batch_tokens": -1}, "--batch-tokens"),
    ],
)
def test_impossible_numbers_are_refused_where_they_are_read(section, options, named) -> None:
    """By fairseq's own commands, too, which know no limits."""
    cfg = section(**options)
    with pytest.raises(ConfigError, match=named):
        READERS[section](cfg)


def test_differing_dictionaries_are_refused_unless_untied() -> None:
    two = task(dictionary(24), dictionary(30))
    with pytest.raises(ConfigError, match="--joined-dictionary"):
        small_model(for_task=two)
    model = small_model(for_task=two, untie_embeddings=True)
    assert model.decoder.output_projection.weight.size(0) == 30


def test_left_padded_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="--left-pad-target"):
        small_model(for_task=task(left_pad_target=True))


@pytest.mark.parametrize(
    ("train", "valid", "combined", "same"),
    [
        ("train", "valid", True, False),
        ("train", "valid,train", False, True),
        ("train", "train1", False, True),
        ("valid1", "valid", True, True),
        ("valid1", "valid", False, False),
        ("train", "train_valid", False, False),
    ],
)
def test_a_validation_on_the_training_text_is_refused(train, valid, combined, same):
    """fairseq reads ``train1`` with ``train``, and ``valid1`` with ``valid`` if it is told to."""
    names = {"train_subset": train, "valid_subset": valid, "combine_valid_subsets": combined}
    dataset = OmegaConf.create({**names, "disable_validation": False})
    if not same:
        return check_subsets(dataset)
    with pytest.raises(ConfigError, match="name two different subsets"):
        check_subsets(dataset)
    dataset.disable_validation = True
    check_subsets(dataset)
