"""Converts fairseq's own ``transformer``, from any version, to this plugin's model.

The converted model computes the same; what it cannot express is refused, with the reason. The
models that fairseq's authors published have older parameter names, and their options in ``args``.
"""

import argparse
import re
from collections.abc import Mapping
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY
from torch import Tensor

from transformer_plugin.config import VaswaniTransformerConfig
from vaswani.common.errors import UserError
from vaswani.packing.convert import from_fairseq
from vaswani.packing.networks import packed_options
from vaswani_transformer.config import ACTIVATION_NAMES
from vaswani_transformer.io.packed import MATRICES

#: options that change the function: the value our model has, and what other values mean
FIXED_OPTIONS: dict[str, tuple[object, str]] = {
    "no_decoder_final_norm": (False, "no norm after the decoder's last layer"),
    "encoder_learned_pos": (False, "learned positions"),
    "decoder_learned_pos": (False, "learned positions"),
    "no_token_positional_embeddings": (False, "no positions"),
    "no_scale_embedding": (False, "embeddings that are not scaled"),
    "layernorm_embedding": (False, "a norm of the embeddings"),
    "adaptive_input": (False, "adaptive embeddings"),
    "adaptive_softmax_cutoff": (None, "an adaptive softmax"),
    "no_cross_attention": (False, "no cross-attention"),
    "cross_self_attention": (False, "one attention for source and target"),
    "character_embeddings": (False, "embeddings of characters"),
    "encoder_layers_to_keep": (None, "layers that were left out"),
    "decoder_layers_to_keep": (None, "layers that were left out"),
    "base_layers": (0, "layers of experts"),
}
#: former names of a layer's parameters, by side → present names
OLD_NORMS = {
    ("encoder", "0"): "self_attn_layer_norm",
    ("encoder", "1"): "final_layer_norm",
    ("decoder", "0"): "self_attn_layer_norm",
    ("decoder", "1"): "encoder_attn_layer_norm",
    ("decoder", "2"): "final_layer_norm",
}
#: what states contain besides parameters: versions, sinusoid tables, and second copies of encoder
#: layers' parameters for torch's fused layers (fairseq 0.12.2)
NOT_LEARNED = re.compile(
    r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights))"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)


def model_from_fairseq(
    options: Mapping[str, object], state: Mapping[str, Tensor], where: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert fairseq's transformer to our model's options and parameters, with equal results.

    Args:
        options: its training options, from any version of fairseq
        state: its parameters
        where: names it in errors

    Raises:
        UserError: it is another kind of model, or has a part that this plugin lacks.
    """
    completed = with_defaults(options, where)
    check_expressible(completed, where)
    parameters = rename_parameters(state, where)
    check_final_norms(completed, parameters, where)
    source, target, output = MATRICES
    defaults = VaswaniTransformerConfig()
    architecture = {name: completed.get(name, getattr(defaults, name)) for name in packed_options()}
    architecture.update(
        sinusoid_layout="fairseq",
        layer_norm_eps=1e-5,
        head_key_dim=None,
        head_value_dim=None,
        untie_embeddings=not are_equal(parameters, output, target),
        share_decoder_input_output_embed=are_equal(parameters, output, target)
        and not are_equal(parameters, target, source),
        attention_dropout=completed.get("attention_dropout") or 0.0,
        activation_dropout=completed.get("activation_dropout") or 0.0,
    )
    return architecture, parameters


def with_defaults(options: Mapping[str, object], where: str) -> dict[str, Any]:
    """Add the architecture's defaults to options; UserError if it is not a transformer."""
    name = options.get("_name") or options.get("arch")
    if ARCH_MODEL_NAME_REGISTRY.get(name, name) != "transformer":
        raise UserError(
            f"{where} has the architecture {name}: only this plugin's models and fairseq's "
            "'transformer' can be packed"
        )
    completed = argparse.Namespace(**options)
    ARCH_CONFIG_REGISTRY[name](completed)
    return vars(completed)


def check_expressible(options: Mapping[str, object], where: str) -> None:
    """Raise UserError for an option with which our model would compute something else."""
    if options.get("activation_fn", "relu") not in ACTIVATION_NAMES:
        raise UserError(
            f"{where} cannot be packed, because it has the activation function "
            f"{options['activation_fn']}, and this plugin's model has only "
            f"{', '.join(ACTIVATION_NAMES)}"
        )
    for name, (fixed, meaning) in FIXED_OPTIONS.items():
        if (options.get(name) or fixed) != fixed:
            raise UserError(
                f"{where} cannot be packed, because it has {meaning} ({name} {options[name]}), "
                "which this plugin's model lacks"
            )


def check_final_norms(
    options: Mapping[str, object], parameters: Mapping[str, Tensor], where: str
) -> None:
    """Raise UserError for norms before the sub-layers and none after the last layer."""
    for side in ("encoder", "decoder"):
        if (
            options.get(f"{side}_normalize_before")
            and f"{side}.final_norm.weight" not in parameters
        ):
            raise UserError(
                f"{where} cannot be packed, because its {side} has norms before the sub-layers and "
                "none after its last layer, as in early versions of fairseq"
            )


def rename_parameters(state: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Return the parameters under our names; UserError if one has no place in our model."""
    present = to_present_names(state)
    if "decoder.output_projection.weight" not in present:  # it shares the embedding's
        present["decoder.output_projection.weight"] = present.get("decoder.embed_tokens.weight")
    requested = Reading(present)
    parameters = from_fairseq(requested)
    unused = sorted(set(present) - requested.names)
    if unused:
        raise UserError(
            f"{where} cannot be packed, because it has the parameter {unused[0]}, which this "
            "plugin's model does not have"
        )
    return parameters


class Reading(dict[str, Tensor]):
    """A state dict that remembers which parameters were asked for."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__(state)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.names.add(name)
        return super().__getitem__(name)


def to_present_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the learned parameters by the names that fairseq has for them since 0.9."""
    parameters = {}
    for name, value in state.items():
        if NOT_LEARNED.fullmatch(name):
            continue
        if name == "decoder.embed_out":
            name = "decoder.output_projection.weight"
        norm = re.fullmatch(r"((en|de)coder)\.layers\.(\d+)\.layer_norms\.(\d)\.(\w+)", name)
        if norm:
            side, _, layer, number, kind = norm.groups()
            name = f"{side}.layers.{layer}.{OLD_NORMS[side, number]}.{kind}"
        fused = re.fullmatch(r"(.*_attn\.)in_proj_(weight|bias)", name)
        if fused:
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                parameters[f"{fused[1]}{letter}_proj.{fused[2]}"] = part
        else:
            parameters[name] = value
    return parameters


def are_equal(parameters: Mapping[str, Tensor], name: str, shared: str) -> bool:
    """Return whether two parameters have the same numbers, as if they were shared."""
    first, second = parameters[name], parameters[shared]
    return bool(first.shape == second.shape and torch.equal(first, second))
