"""Options: presets by both routes, and combinations that cannot work, refused in one sentence."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

import transformer_plugin  # noqa: F401  (registers)
from tests.models import config, dictionary, small_model, task
from transformer_plugin.config import (
    ConfigError,
    VaswaniInverseSqrtConfig,
    VaswaniLabelSmoothedCrossEntropyConfig,
    VaswaniTransformerConfig,
    check_model_config,
)

# Table 3, section 6.1, and the small model outside the paper: layers, d_model, d_ff, heads, P_drop.
PRESETS = {
    "vaswani_transformer": (6, 512, 2048, 8, 0.1),
    "vaswani_transformer_big": (6, 1024, 4096, 16, 0.3),
    "vaswani_transformer_big_en_fr": (6, 1024, 4096, 16, 0.1),
    "vaswani_transformer_tiny": (4, 128, 256, 4, 0.3),
}


def sizes(cfg: Any) -> Dict[str, Any]:
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    return {
        "encoder": tuple(cfg[f"encoder_{n}"] for n in names),
        "decoder": tuple(cfg[f"decoder_{n}"] for n in names),
        "dropout": cfg["dropout"],
    }


def from_command_line(arguments: List[str]) -> Any:
    """The model's configuration as fairseq-train makes it of its arguments."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", *arguments])
    return convert_namespace_to_omegaconf(args).model


def from_yaml(name: str) -> Any:
    """The model's configuration as fairseq makes it of ``model._name`` in YAML."""
    from fairseq.dataclass.initialize import add_defaults

    cfg = OmegaConf.create({"task": {"_name": "translation"}, "model": {"_name": name}})
    add_defaults(cfg)
    return cfg.model


@pytest.mark.parametrize("name", PRESETS)
def test_presets_by_both_routes(name: str) -> None:
    layers, width, ffn, heads, dropout = PRESETS[name]
    expected = {
        "encoder": (layers, width, ffn, heads),
        "decoder": (layers, width, ffn, heads),
        "dropout": dropout,
    }
    assert sizes(from_command_line(["--arch", name])) == expected
    assert sizes(from_yaml(name)) == expected


def test_flags_change_a_preset() -> None:
    cfg = from_command_line(["--arch", "vaswani_transformer_big", "--decoder-layers", "3"])
    assert (cfg.encoder_layers, cfg.decoder_layers, cfg.encoder_embed_dim) == (6, 3, 1024)


def test_position_limits_come_from_the_task() -> None:
    """They are fairseq's flags, shared with the task on purpose, so that they are given once."""
    cfg = from_command_line(["--arch", "vaswani_transformer", "--max-source-positions", "77"])
    assert cfg.max_source_positions == 77


def test_each_preset_has_its_own_class_and_options() -> None:
    """One class under two names would overwrite its dataclass."""
    ours = {name for name in ARCH_MODEL_REGISTRY if name.startswith("vaswani_transformer")}
    assert ours == set(PRESETS)
    assert len({ARCH_MODEL_REGISTRY[name] for name in ours}) == len(ours)
    assert len({MODEL_DATACLASS_REGISTRY[name] for name in ours}) == len(ours)


def test_no_two_components_share_a_field() -> None:
    """fairseq merges fields of one name in silence, across all components of a run.

    What the model borrows from the task (``II("task…")``) is shared on purpose.
    """
    from fairseq.tasks.translation import TranslationConfig

    components = [
        VaswaniTransformerConfig,
        VaswaniLabelSmoothedCrossEntropyConfig,
        VaswaniInverseSqrtConfig,
        TranslationConfig,
    ]
    seen: Dict[str, str] = {}
    for component in components:
        for name, field in component.__dataclass_fields__.items():
            if name == "_name" or str(field.default).startswith("${"):
                continue
            assert name not in seen, f"{name} is in {seen[name]} and {component.__name__}"
            seen[name] = component.__name__


def test_no_option_is_on_by_default() -> None:
    """fairseq turns a True default into a flag that switches it off."""
    fields = VaswaniTransformerConfig.__dataclass_fields__.values()
    assert [f.name for f in fields if f.default is True] == []


def test_every_option_has_help() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    gen_parser_from_dataclass(parser, VaswaniTransformerConfig())
    without = [a.dest for a in parser._actions if not a.help and "positions" not in a.dest]
    assert without == []


@pytest.mark.parametrize(
    "options,named",
    [
        ({"encoder_embed_dim": 18, "decoder_embed_dim": 18}, "--encoder-attention-heads 4"),
        ({"decoder_attention_heads": 3}, "--decoder-attention-heads 3"),
        ({"encoder_embed_dim": 32}, "--encoder-embed-dim 32 and --decoder-embed-dim 16"),
        ({"dropout": 1.0}, "--dropout"),
        ({"attention_dropout": -0.1}, "--attention-dropout"),
        ({"activation_dropout": 1.5}, "--activation-dropout"),
        ({"share_all_embeddings": True, "untie_embeddings": True}, "--untie-embeddings"),
        (
            {"share_decoder_input_output_embed": True, "untie_embeddings": True},
            "--share-decoder-input-output-embed",
        ),
    ],
)
def test_impossible_options_are_refused(options: Dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_model_config(config(**options))
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_odd_width_is_possible_with_learned_positions() -> None:
    model = small_model(
        encoder_embed_dim=15,
        decoder_embed_dim=15,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_learned_pos=True,
        decoder_learned_pos=True,
    )
    assert model.encoder.embedding.positions.weight.shape == (64, 15)


def test_differing_dictionaries_are_refused_unless_untied() -> None:
    two = task(dictionary(24), dictionary(30))
    with pytest.raises(ConfigError, match="--joined-dictionary"):
        small_model(for_task=two)
    model = small_model(for_task=two, untie_embeddings=True)
    assert model.decoder.output_projection.weight.size(0) == 30


def test_left_padded_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="--left-pad-target"):
        small_model(for_task=task(left_pad_target=True))
    older = task()
    older.cfg, older.args = None, SimpleNamespace(left_pad_target="True")
    with pytest.raises(ConfigError, match="--left-pad-target"):
        small_model(for_task=older)
    older.args.left_pad_target = "False"
    small_model(for_task=older)


def test_refused_before_data_is_read(tmp_path: Any) -> None:
    """fairseq builds the model before it loads data: only the dictionaries are there."""
    words = dictionary()
    for language in ("en", "de"):
        words.save(str(tmp_path / f"dict.{language}.txt"))
    from fairseq import tasks

    parser = options.get_training_parser()
    args = options.parse_args_and_arch(
        parser,
        [str(tmp_path), "-s", "en", "-t", "de", "--arch", "vaswani_transformer", "--dropout", "2"],
    )
    assert isinstance(args, Namespace)
    cfg = convert_namespace_to_omegaconf(args)
    with pytest.raises(ConfigError, match="--dropout"):
        tasks.setup_task(cfg.task).build_model(cfg.model)
