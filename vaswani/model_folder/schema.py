"""What a model folder's config.json holds.

Each section's keys are the fields of a dataclass: ``architecture`` is declared here, ``text`` in
``text_recipe.py``, ``generation`` in ``search_options.py``.
"""

from dataclasses import dataclass
from typing import Any, Literal, Mapping, Optional, Type, TypeVar

from vaswani.common.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Architecture:
    """The model's options, by fairseq's names; those that say only how it computes are not here."""

    encoder_layers: int
    encoder_embed_dim: int
    encoder_ffn_embed_dim: int
    encoder_attention_heads: int
    encoder_learned_pos: bool
    decoder_layers: int
    decoder_embed_dim: int
    decoder_ffn_embed_dim: int
    decoder_attention_heads: int
    decoder_learned_pos: bool
    head_key_dim: Optional[int]
    head_value_dim: Optional[int]
    dropout: float
    attention_dropout: float
    activation_dropout: float
    untie_embeddings: bool
    sinusoid_layout: Literal["paper", "t2t", "fairseq"]
    layer_norm_eps: float
    max_source_positions: int
    max_target_positions: int
    #: folders of earlier versions do not have it
    share_decoder_input_output_embed: bool = False


def read_section(kind: Type[T], table: Mapping[str, Any], where: str) -> T:
    """A section as its dataclass.

    Args:
        kind: the dataclass; a field without a default has to be there
        table: the section
        where: the file and the section's name, for messages: ``model/config.json: text``

    Raises:
        UserError: a key is unknown or missing.
    """
    try:
        return kind(**table)
    except TypeError as error:
        raise UserError(f"{where} is of another version, or was altered ({error})") from None
