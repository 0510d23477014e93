"""What a model folder's config.json (an export's vaswani.json) may hold, and nothing else.

Each section's keys and types are the fields of a dataclass: ``architecture`` is declared here,
``text`` in ``text_recipe.py``, ``generation`` in ``search_options.py``.
"""

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Dict, Literal, Mapping, Optional, Sequence, Type, TypeVar, get_type_hints

from vaswani.common.errors import UserError, nearest
from vaswani.experiment.check_config import check_types, check_values
from vaswani.experiment.option_rules import COUNT, MODEL_SIZES, POSITIVE, SHARE, Rule, between

T = TypeVar("T")
#: a sentence cannot be longer; positions need no parameters, so nothing else limits them
LENGTH = between(1, 2**31 - 1)


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


@dataclass(frozen=True)
class Limits:
    """The most tokens of a sentence that an export can read and write."""

    source: int
    target: int


#: for the section ``architecture``
SIZES: Dict[str, Rule] = {
    **MODEL_SIZES,
    "head_key_dim": between(1, 2**17),
    "head_value_dim": between(1, 2**17),
    "layer_norm_eps": POSITIVE,
    "max_source_positions": LENGTH,
    "max_target_positions": LENGTH,
}
#: what fine-tuning reads of the section ``origin``; the rest of it is only shown
ORIGIN_TYPES = {"updates": int, "label_smoothing": float}
ORIGIN_RULES = {"updates": COUNT, "label_smoothing": SHARE}


def read_section(
    kind: Type[T], table: Mapping[str, Any], where: str, rules: Optional[Mapping[str, Rule]] = None
) -> T:
    """A section as its dataclass.

    Args:
        kind: the dataclass; a field without a default has to be there
        table: the section
        where: the file and the section's name, for messages: ``model/config.json: text``
        rules: the values that are valid, beyond their types

    Raises:
        UserError: a key is unknown or missing, or a value has another type or breaks its rule.
    """
    declared = get_type_hints(kind)
    file, _, section = where.rpartition(": ")
    altered = f"{file}: section '{section}' was altered"
    for name in table:
        if name not in declared:
            raise UserError(f"{altered}: it has '{name}'{nearest(name, list(declared))}")
    needed = [item.name for item in fields(kind) if item.default is MISSING]  # type: ignore[arg-type]
    for name in needed:
        if name not in table:
            raise UserError(f"{altered}: '{name}' is missing")
    check_types(table, declared, f"{where}.")
    check_values(table, rules or {}, f"{where}.")
    return kind(**table)


def check_sections(
    table: Mapping[str, Any], sections: Sequence[str], others: Sequence[str], path: Path
) -> None:
    """Check what stands at the top of a file.

    Raises:
        UserError: a section is missing or is no table, or there is something besides them and
            ``others``; or ``origin`` has what cannot be.
    """
    known = ["format", "format_version", *sections, *others]
    for name in sections:
        if not isinstance(table.get(name), dict):
            raise UserError(f"{path} was altered: it has no section '{name}'")
    for name in table:
        if name not in known:
            raise UserError(f"{path} was altered: it has '{name}'{nearest(name, known)}")
    check_types(table["origin"], ORIGIN_TYPES, f"{path}: origin.")
    check_values(table["origin"], ORIGIN_RULES, f"{path}: origin.")
