"""Refuses options that cannot work, by name and with what to do instead."""

from typing import Any

from .config import ConfigError, VaswaniInverseSqrtConfig, VaswaniTransformerConfig, flag


def check_model_config(cfg: VaswaniTransformerConfig) -> None:
    """Raise ConfigError, naming the option, if the model's options cannot work together."""
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        if not 0 <= getattr(cfg, name) < 1:
            raise ConfigError(f"{flag(name)} must be in [0, 1), not {getattr(cfg, name)}")
    if cfg.encoder_embed_dim != cfg.decoder_embed_dim:
        raise ConfigError(
            f"--encoder-embed-dim {cfg.encoder_embed_dim} and --decoder-embed-dim "
            f"{cfg.decoder_embed_dim} must be equal: the paper has one d_model"
        )
    for side in ("encoder", "decoder"):
        width, heads = getattr(cfg, f"{side}_embed_dim"), getattr(cfg, f"{side}_attention_heads")
        given = cfg.head_key_dim is not None and cfg.head_value_dim is not None
        if width % heads and not given:
            raise ConfigError(
                f"--{side}-embed-dim {width} is not divisible by --{side}-attention-heads {heads}; "
                "change one, or give --head-key-dim and --head-value-dim"
            )
    for name in ("share_all_embeddings", "share_decoder_input_output_embed"):
        if getattr(cfg, name) and cfg.untie_embeddings:
            raise ConfigError(f"{flag(name)} and --untie-embeddings exclude each other")


def check_label_smoothing(label_smoothing: float) -> None:
    """Raise ConfigError unless it is a share of the probability (5.4)."""
    if not 0.0 <= label_smoothing < 1.0:
        raise ConfigError(
            f"--label-smoothing must be in [0, 1), not {label_smoothing}: it is the probability "
            "that the wrong classes share (0.1 in the paper)"
        )


def check_schedule_config(cfg: VaswaniInverseSqrtConfig) -> None:
    """Raise ConfigError if equation 3 gives no rate."""
    if cfg.warmup_updates < 1:
        raise ConfigError(f"--warmup-updates must be at least 1, not {cfg.warmup_updates}")


def check_precision(common: Any, precision: Any) -> None:
    """Raise ConfigError for 16-bit training of our model that is not what it seems to be.

    ``common.bf16`` trains the weights themselves in bfloat16, worse than ``--precision bf16`` and
    unlike what the paper's model needs. ``--amp`` divides gradients by the loss scale when they are
    clipped and again when the optimizer steps: Adam hides it until they are as small as its ε.
    ``--fp16`` with ``--precision bf16`` loses small gradients of the loss, which are rounded to
    float16 before they are scaled.

    Args:
        common: fairseq's section
        precision: the model's option
    """
    for name in ("memory_efficient_bf16", "bf16"):  # the first sets the second, too
        if getattr(common, name, False):
            raise ConfigError(
                f"{flag(name)} (common.{name}) trains the weights themselves in bfloat16: leave it "
                "out, and give --precision bf16 (in YAML: model.precision), which keeps them in "
                "float32"
            )
    if getattr(common, "amp", False):
        raise ConfigError(
            "--amp lets fairseq divide the gradients by the loss scale twice: leave it out, "
            "and give --precision bf16 (in YAML: model.precision) or --fp16"
        )
    if common.fp16 and str(precision) == "bf16":
        raise ConfigError("--fp16 and --precision bf16 exclude each other: give one of them")
