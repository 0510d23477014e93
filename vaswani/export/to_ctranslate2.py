"""A packed model as CTranslate2's ``TransformerSpec``: parameter by parameter, without a converter.

Our attention is like CTranslate2's: queries, keys and values of all heads are the rows of one
matrix. So are the layers and the embeddings scaled by √d_model. Positions become a table.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fairseq.data import Dictionary
from torch import Tensor

from vaswani.common.errors import UserError
from vaswani.folders.model_folder import ModelFolder
from vaswani_transformer.config import TransformerConfig
from vaswani_transformer.embedding import sinusoids

if TYPE_CHECKING:  # only for this target
    from ctranslate2.specs.transformer_spec import TransformerSpec


def head_widths(config: TransformerConfig, side: str) -> tuple[int, int, int]:
    """Return d_k and d_v of a side's heads, and d_model/h, their default."""
    usual = getattr(config, f"{side}_embed_dim") // getattr(config, f"{side}_attention_heads")
    return config.head_key_dim or usual, config.head_value_dim or usual, usual


def check_expressible(folder: ModelFolder, target: str) -> None:
    """Raise UserError for attention that a target lacks.

    Args:
        folder: the packed model
        target: one of ``TARGETS``
    """
    for side in ("encoder", "decoder"):
        d_k, d_v, usual = head_widths(folder.config, side)
        allowed = {d_k} if target == "ctranslate2" else {usual}  # elsewhere it is d_model/h
        if {d_k, d_v} != allowed:
            raise UserError(
                f"{folder.path} cannot be exported to {target}, because its heads have d_k {d_k} "
                f"and d_v {d_v}, and {target} needs {allowed.pop()} (d_model/h is {usual}) for "
                "both: translate with 'vaswani translate' instead"
            )


def position_table(
    parameters: Mapping[str, Tensor], config: TransformerConfig, side: str
) -> Tensor:
    """Return a side's positions as a table, float32 [max_positions, d_model].

    Args:
        parameters: the state dict
        config: the model's sizes
        side: ``encoder`` or ``decoder``
    """
    learned = parameters.get(f"{side}.embedding.positions.weight")
    if learned is not None:
        return learned.float()
    is_source = side == "encoder"
    rows = config.max_source_positions if is_source else config.max_target_positions
    return sinusoids(rows, getattr(config, f"{side}_embed_dim"), config.sinusoid_layout).float()


def write_model(
    folder: ModelFolder, parameters: Mapping[str, Tensor], out: Path, quantization: str | None
) -> None:
    """Write the files that CTranslate2 loads: model.bin, config.json and the vocabularies.

    Args:
        folder: the packed model
        parameters: its state dict
        out: an empty folder
        quantization: ``int8``, ``float16`` or ``bfloat16``; None: float32
    """
    spec = spec_of(folder.config, parameters)
    source, target = (vocabulary(folder.dictionary(lang)) for lang in folder.langs)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.decoder_start_token = spec.config.eos_token  # as fairseq begins
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = folder.config.layer_norm_eps
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(out))


def spec_of(config: TransformerConfig, parameters: Mapping[str, Tensor]) -> "TransformerSpec":
    """Return the filled specification, except for the vocabularies and the configuration."""
    from ctranslate2.specs import common_spec
    from ctranslate2.specs import transformer_spec as specs

    activations = {
        "relu": common_spec.Activation.RELU,
        "gelu": common_spec.Activation.GELU,
        "swish": common_spec.Activation.SWISH,
    }
    activation = activations[config.activation_fn]
    norms_first = {side: norms_come_first(config, side) for side in ("encoder", "decoder")}
    widths = {side: head_widths(config, side) for side in ("encoder", "decoder")}
    #: of a side's heads, where it is not d_model/h
    head_dim = {side: d_k if d_k != usual else None for side, (d_k, _, usual) in widths.items()}
    encoder = specs.TransformerEncoderSpec(
        config.encoder_layers,
        config.encoder_attention_heads,
        pre_norm=norms_first["encoder"],
        activation=activation,
        head_dim=head_dim["encoder"],
    )
    # alignments are the mean over all heads of the last layer, as in fairseq and here
    decoder = specs.TransformerDecoderSpec(
        config.decoder_layers,
        config.decoder_attention_heads,
        pre_norm=norms_first["decoder"],
        activation=activation,
        alignment_heads=config.decoder_attention_heads,
        head_dim=head_dim["decoder"],
    )
    for side, spec in (("encoder", encoder), ("decoder", decoder)):
        tokens = spec.embeddings[0] if side == "encoder" else spec.embeddings
        tokens.weight = array(parameters[f"{side}.embedding.tokens.weight"])
        spec.position_encodings.encodings = array(position_table(parameters, config, side))
        for number, layer in enumerate(spec.layer):
            fill_layer(layer, parameters, f"{side}.layers.{number}")
        if norms_first[side]:
            spec.layer_norm.gamma = array(parameters[f"{side}.final_norm.weight"])
            spec.layer_norm.beta = array(parameters[f"{side}.final_norm.bias"])
    decoder.projection.weight = array(parameters["decoder.output_projection.weight"])
    return specs.TransformerSpec(encoder, decoder)


def norms_come_first(config: TransformerConfig, side: str) -> bool:
    """Return whether a side's norms are before its sub-layers."""
    return bool(getattr(config, f"{side}_normalize_before"))


def fill_layer(layer: Any, parameters: Mapping[str, Tensor], prefix: str) -> None:
    """Fill in a layer's parameters.

    Args:
        layer: CTranslate2's specification of an encoder or decoder layer
        parameters: the state dict
        prefix: the prefix of the layer's names in it
    """

    def fill(linear: Any, name: str) -> None:
        linear.weight = array(parameters[f"{prefix}.{name}.weight"])
        linear.bias = array(parameters[f"{prefix}.{name}.bias"])

    def fill_norm(norm: Any, name: str) -> None:
        norm.gamma = array(parameters[f"{prefix}.{name}.norm.weight"])
        norm.beta = array(parameters[f"{prefix}.{name}.norm.bias"])

    fill(layer.self_attention.linear[0], "self_attention.qkv_proj")
    fill(layer.self_attention.linear[1], "self_attention.out_proj")
    fill_norm(layer.self_attention.layer_norm, "after_self_attention")
    if prefix.startswith("decoder"):
        for place, name in enumerate(("q_proj", "kv_proj", "out_proj")):
            fill(layer.attention.linear[place], f"cross_attention.{name}")
        fill_norm(layer.attention.layer_norm, "after_cross_attention")
    fill(layer.ffn.linear_0, "feed_forward.fc1")
    fill(layer.ffn.linear_1, "feed_forward.fc2")
    fill_norm(layer.ffn.layer_norm, "after_feed_forward")


def array(tensor: Tensor) -> np.ndarray:
    """Return a parameter as a separate numpy array, float32."""
    return tensor.detach().float().contiguous().numpy().copy()


def vocabulary(dictionary: Path) -> list[str]:
    """Return the symbols of a dictionary file by their numbers, fairseq's four first."""
    return list(Dictionary.load(str(dictionary)).symbols)
