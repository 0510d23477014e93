"""Numbers of 16 bits that fairseq's Trainer should not be given, refused in one sentence."""

from typing import Any

import torch

from ..config import ConfigError, flag


def refuse_precisions(cfg: Any, model: Any) -> None:
    """16-bit training that fails, or is not what it seems to be, is refused.

    All versions: ``common.bf16`` (fairseq-hydra-train) trains the weights themselves in bfloat16,
    worse than ``--precision bf16`` and unlike what the paper's model needs; fairseq's own models
    keep it. ``--amp`` divides gradients by the loss scale when they are clipped and again when the
    optimizer steps: Adam hides it until they are as small as its ε. ``--fp16`` with ``--precision
    bf16`` loses small gradients of the loss, which are rounded to float16 before they are scaled.
    ``--fp16`` without a GPU fails for lack of CUDA.
    """
    common = getattr(cfg, "common", cfg)  # fairseq also takes a Namespace
    for name in ("bf16", "memory_efficient_bf16"):
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
    precision = getattr(getattr(model, "cfg", None), "precision", None)
    if common.fp16 and precision == "bf16":
        raise ConfigError("--fp16 and --precision bf16 exclude each other: give one of them")
    flat = not (common.memory_efficient_fp16 or common.fp16_no_flatten_grads)
    if common.fp16 and flat and (common.cpu or not torch.cuda.is_available()):
        raise ConfigError(
            "--fp16 needs a GPU, and none is used here: leave it out, or give this plugin's "
            "--precision bf16 (in YAML: model.precision)"
        )
