"""The weights of fairseq's own ``transformer`` under our names, and back.

A model of the same sizes with ``--sinusoid-layout fairseq --layer-norm-eps 1e-5`` then computes the
same function: fairseq's positions begin at 2, and its norms have that ε.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

#: parts of a layer, fairseq's name first; only decoder layers have cross-attention
RENAMED: list[tuple[str, str]] = [
    ("self_attn.out_proj", "self_attention.out_proj"),
    ("self_attn_layer_norm", "after_self_attention.norm"),
    ("encoder_attn.q_proj", "cross_attention.q_proj"),
    ("encoder_attn.out_proj", "cross_attention.out_proj"),
    ("encoder_attn_layer_norm", "after_cross_attention.norm"),
    ("fc1", "feed_forward.fc1"),
    ("fc2", "feed_forward.fc2"),
    ("final_layer_norm", "after_feed_forward.norm"),
]
#: at the end of a stack whose norms come first: fairseq's name, ours
FINAL_NORM = "layer_norm", "final_norm"
#: what is one matrix here and several in fairseq, in row order
FUSED: list[tuple[str, str, str]] = [
    ("self_attn", "qkv", "self_attention.qkv_proj"),
    ("encoder_attn", "kv", "cross_attention.kv_proj"),
]


def from_fairseq(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the state dict of a fairseq ``transformer`` with sinusoids to our model's.

    Raises:
        KeyError: it lacks a parameter that every such model has.
    """
    converted = {
        "encoder.embedding.tokens.weight": state["encoder.embed_tokens.weight"],
        "decoder.embedding.tokens.weight": state["decoder.embed_tokens.weight"],
        "decoder.output_projection.weight": state["decoder.output_projection.weight"],
    }
    for layer in sorted({name.split(".fc1.")[0] for name in state if ".fc1." in name}):
        in_decoder = layer.startswith("decoder")
        for kind in ("weight", "bias"):
            for fairseq_name, plugin_name in RENAMED:
                if in_decoder or not fairseq_name.startswith("encoder_attn"):
                    converted[f"{layer}.{plugin_name}.{kind}"] = state[
                        f"{layer}.{fairseq_name}.{kind}"
                    ]
            for attention, letters, plugin_name in FUSED:
                if in_decoder or attention == "self_attn":
                    parts = [state[f"{layer}.{attention}.{x}_proj.{kind}"] for x in letters]
                    converted[f"{layer}.{plugin_name}.{kind}"] = torch.cat(parts)
    fairseq_norm, plugin_norm = FINAL_NORM
    for side in ("encoder", "decoder"):
        for kind in ("weight", "bias"):
            if f"{side}.{fairseq_norm}.{kind}" in state:
                converted[f"{side}.{plugin_norm}.{kind}"] = state[f"{side}.{fairseq_norm}.{kind}"]
    return converted


def to_fairseq(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the state dict of our model to a fairseq ``transformer``'s.

    Raises:
        ValueError: d_k and d_v differ, which that model cannot have.
    """
    converted = {
        "encoder.embed_tokens.weight": state["encoder.embedding.tokens.weight"],
        "decoder.embed_tokens.weight": state["decoder.embedding.tokens.weight"],
        "decoder.output_projection.weight": state["decoder.output_projection.weight"],
    }
    fairseq_norm, plugin_norm = FINAL_NORM
    for name, value in state.items():
        if f".{plugin_norm}." in name:
            converted[name.replace(plugin_norm, fairseq_norm)] = value
        layer, _, rest = name.partition(".self_attention.qkv_proj")
        if rest and value.size(0) != 3 * state[f"{layer}.self_attention.out_proj.weight"].size(1):
            raise ValueError(
                "d_k and d_v differ, but fairseq's transformer has one width for keys and values: "
                "use a model with equal widths"
            )
        for fairseq_name, plugin_name in RENAMED:
            if f".{plugin_name}." in name:
                converted[name.replace(plugin_name, fairseq_name)] = value
        for attention, letters, plugin_name in FUSED:
            if f".{plugin_name}." in name:
                for letter, rows in zip(letters, value.chunk(len(letters)), strict=True):
                    converted[name.replace(plugin_name, f"{attention}.{letter}_proj")] = rows
    return converted
