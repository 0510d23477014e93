"""The Transformer: registration, shared matrices, initialisation (sections 3 and 3.4)."""

import logging
import re
from typing import Any, Mapping

import torch
from fairseq.models import FairseqEncoderDecoderModel, register_model
from torch import nn

from .attention import keep_off_cudnn
from .checkpoints import CheckpointError
from .config import (
    ConfigError,
    VaswaniTransformerBigConfig,
    VaswaniTransformerBigEnFrConfig,
    VaswaniTransformerConfig,
    VaswaniTransformerTinyConfig,
    check_model_config,
)
from .decoder import VaswaniDecoder
from .dropout import Dropout
from .embedding import InputEmbedding, LearnedPositions, SinusoidalPositions
from .encoder import VaswaniEncoder
from .initialisation import initialise
from .layers import DecoderLayer, EncoderLayer
from .linear import Linear
from .memory import keep_freed_memory
from .parameters import explain_mismatch
from .precision import has_bf16_units

logger = logging.getLogger(__name__)


@register_model("vaswani_transformer", dataclass=VaswaniTransformerConfig)
class VaswaniTransformerModel(FairseqEncoderDecoderModel):
    """The base model of "Attention Is All You Need" (Table 3, first row)."""

    def __init__(
        self, cfg: VaswaniTransformerConfig, encoder: VaswaniEncoder, decoder: VaswaniDecoder
    ) -> None:
        super().__init__(encoder, decoder)
        self.cfg = cfg

    @classmethod
    def build_model(cls, cfg: VaswaniTransformerConfig, task: Any) -> "VaswaniTransformerModel":
        """The model for a task with source and target dictionaries; called before data is read.

        Raises:
            ConfigError: options that cannot work, or dictionaries that cannot share a matrix.
        """
        check_model_config(cfg)
        check_task(cfg, task)
        keep_freed_memory()
        keep_off_cudnn()
        source, target = task.source_dictionary, task.target_dictionary
        source_tokens = embedding_table(len(source), cfg.encoder_embed_dim, source.pad())
        output_projection = Linear(cfg.decoder_embed_dim, len(target), bias=False)
        if cfg.untie_embeddings:
            target_tokens = embedding_table(len(target), cfg.decoder_embed_dim, target.pad())
        else:
            target_tokens = source_tokens
            output_projection.weight = source_tokens.weight
        encoder = VaswaniEncoder(cfg, source, input_embedding(cfg, source_tokens, "encoder"))
        decoder = VaswaniDecoder(
            cfg, target, input_embedding(cfg, target_tokens, "decoder"), output_projection
        )
        model = cls(cfg, encoder, decoder)
        initialise(model, str(cfg.init))
        if cfg.compile:
            compile_layers(model)
        return model

    def prepare_for_inference_(self, cfg: Any) -> None:
        """As fairseq's; the matrices are put once into the form that is quick to multiply by.

        With ``--precision bf16`` they become bf16. On a CPU they may be kept in a second order.

        Raises:
            CheckpointError: a parameter is not finite.
            ConfigError: ``--retain-dropout-modules`` cannot be followed.
        """
        check_finite(self)
        super().prepare_for_inference_(cfg)
        retain_dropout(self, cfg.generation)
        device = self.decoder.output_projection.weight.device
        in_bf16 = str(self.cfg.precision) == "bf16" and has_bf16_units(device.type)
        for module in self.modules():
            if isinstance(module, Linear):
                if in_bf16:
                    module.to_bf16()
                if not self.cfg.compile:  # which sees no further than torch's own products
                    module.pack()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, **kwargs: Any
    ) -> Any:
        """As torch's, but a misfit is explained by the option that differs.

        Raises:
            CheckpointError: ``strict``, and the parameters are not those of this model.
        """
        reason = explain_mismatch(state_dict, self.state_dict()) if strict else ""
        if reason:
            raise CheckpointError(reason)
        return super().load_state_dict(state_dict, strict=strict, **kwargs)


@register_model("vaswani_transformer_big", dataclass=VaswaniTransformerBigConfig)
class VaswaniTransformerBigModel(VaswaniTransformerModel):
    """The big model (Table 3, last row)."""


@register_model("vaswani_transformer_big_en_fr", dataclass=VaswaniTransformerBigEnFrConfig)
class VaswaniTransformerBigEnFrModel(VaswaniTransformerModel):
    """The big model with P_drop 0.1, as trained on English-French (section 6.1)."""


@register_model("vaswani_transformer_tiny", dataclass=VaswaniTransformerTinyConfig)
class VaswaniTransformerTinyModel(VaswaniTransformerModel):
    """A small model for small corpora; not in the paper."""


def check_task(cfg: VaswaniTransformerConfig, task: Any) -> None:
    """Raises ConfigError where the task's data cannot feed this model."""
    if not cfg.untie_embeddings and task.source_dictionary != task.target_dictionary:
        raise ConfigError(
            f"the source dictionary ({len(task.source_dictionary)} types) and the target "
            f"dictionary ({len(task.target_dictionary)} types) differ, but the model shares one "
            "embedding matrix between them: run fairseq-preprocess with --joined-dictionary, or "
            "give --untie-embeddings"
        )
    if getattr(task.cfg, "left_pad_target", False):
        raise ConfigError(
            "--left-pad-target is not supported: the causal mask hides padding on the right only"
        )


def embedding_table(rows: int, dim: int, padding_idx: int) -> nn.Embedding:
    """A table [rows, dim] whose padding row stays zero in the input."""
    return nn.Embedding(rows, dim, padding_idx=padding_idx)


def input_embedding(
    cfg: VaswaniTransformerConfig, tokens: nn.Embedding, side: str
) -> InputEmbedding:
    """Tokens and positions of one side, ``encoder`` or ``decoder``."""
    positions: nn.Module
    if getattr(cfg, f"{side}_learned_pos"):
        rows = cfg.max_source_positions if side == "encoder" else cfg.max_target_positions
        positions = LearnedPositions(rows, tokens.embedding_dim)
    else:
        positions = SinusoidalPositions(tokens.embedding_dim, str(cfg.sinusoid_layout))
    return InputEmbedding(tokens, positions, cfg.dropout)


def check_finite(model: nn.Module) -> None:
    """Raises CheckpointError, naming the parameter, where one has a NaN or an infinity."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise CheckpointError(
                f"the model cannot decode: its parameter {name} has numbers that are not finite; "
                "its training has diverged, or the file is damaged: take an earlier checkpoint"
            )


def retain_dropout(model: nn.Module, generation: Any) -> None:
    """``--retain-dropout``: dropout stays on in decoding, so that each seed decodes otherwise.

    ``--retain-dropout-modules`` names the classes in which it stays on, such as ``EncoderLayer`` or
    ``FeedForward``; not given, all.

    Raises:
        ConfigError: no dropout is in a module of that name, or none at all, or none is retained.
    """
    given = getattr(generation, "retain_dropout_modules", None)
    names = re.findall(r"\w+", given) if isinstance(given, str) else given
    if not getattr(generation, "retain_dropout", False):
        if names:
            raise ConfigError("--retain-dropout-modules has no effect without --retain-dropout")
        return
    known = set()
    for path, module in model.named_modules():
        if isinstance(module, Dropout) and module.p:
            parents = [path.rsplit(".", n)[0] for n in range(1, path.count(".") + 1)]
            owners = {type(model.get_submodule(parent)).__name__ for parent in parents}
            known |= owners - {"ModuleList"}
            module.in_inference = not names or not owners.isdisjoint(names)
    if not known:
        raise ConfigError("--retain-dropout: this model has no dropout (every P_drop is 0)")
    wrong = [name for name in names or [] if name not in known]
    if wrong:
        raise ConfigError(
            f"--retain-dropout-modules: no dropout is in a module named {', '.join(wrong)}; "
            f"this model has {', '.join(sorted(known))}"
        )


def compile_layers(model: nn.Module) -> None:
    """Let ``torch.compile`` make one program of each layer, for batches of any shape.

    The first updates then take minutes. Where compiling fails, that is said, and it is left out.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.compile(lambda x: x + 1, dynamic=True)(torch.ones(2, device=device))
    except Exception as error:  # whatever a compiler that is missing or broken leads to
        reason = str(error).strip().splitlines()[0]
        logger.warning("--compile: torch.compile fails here (%s); going on without it", reason)
        return
    for module in model.modules():
        if isinstance(module, (EncoderLayer, DecoderLayer)):
            module.compile(dynamic=True)
