"""The Transformer: registration, shared matrices, initialisation (sections 3 and 3.4)."""

from typing import Any

from fairseq.models import FairseqEncoderDecoderModel, register_model

from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.fast.linear import convert_to_bf16
from vaswani_transformer.initialisation import initialise
from vaswani_transformer.transformer import (
    embedding_matrices,
    input_embedding,
    source_has_own_matrix,
)

from .checkpoints import CheckpointError, explain_mismatch, explain_untied
from .checks import check_model_config
from .compiled import compile_parts
from .config import (
    ConfigError,
    VaswaniTransformerBigConfig,
    VaswaniTransformerBigEnFrConfig,
    VaswaniTransformerConfig,
    VaswaniTransformerTinyConfig,
)
from .decoder import VaswaniDecoder
from .encoder import VaswaniEncoder
from .retained_dropout import retain_dropout


@register_model("vaswani_transformer", dataclass=VaswaniTransformerConfig)
class VaswaniTransformerModel(FairseqEncoderDecoderModel):
    """The base model of "Attention Is All You Need" (Table 3, first row)."""

    encoder_class = VaswaniEncoder
    decoder_class = VaswaniDecoder
    """A subclass may set its own (examples/relative_positions)."""

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
        source, target = task.source_dictionary, task.target_dictionary
        source_tokens, target_tokens, output_projection = embedding_matrices(
            cfg, len(source), len(target)
        )
        encoder = cls.encoder_class(cfg, source, input_embedding(cfg, source_tokens, "encoder"))
        decoder = cls.decoder_class(
            cfg, target, input_embedding(cfg, target_tokens, "decoder"), output_projection
        )
        model = cls(cfg, encoder, decoder)
        initialise(model, str(cfg.init))
        compiled = compile_parts(model) if cfg.compile else []
        if str(cfg.attention_impl) != "readable":
            use_fast_kernels(model, compiled)
        return model

    def prepare_for_inference_(self, cfg: Any) -> None:
        """As fairseq's; then turn dropout off or retain it, and convert the weights for bf16.

        Raises:
            ConfigError: ``--retain-dropout`` or ``--retain-dropout-modules`` cannot be followed.
        """
        super().prepare_for_inference_(cfg)
        retain_dropout(self, cfg.generation)
        if str(self.cfg.precision) == "bf16":
            convert_to_bf16(self)

    def load_state_dict(
        self, state_dict: dict[str, Any], strict: bool = True, **options: Any
    ) -> Any:
        """As fairseq's, but a mismatch is explained by the option that differs.

        Args:
            state_dict: of parameters by name; names of older versions are replaced in it
            strict: whether the names have to be this model's
            options: see fairseq's

        Raises:
            CheckpointError: ``strict``, and the parameters are not those of this model, or differ
                where it shares them.
        """
        try:
            result = super().load_state_dict(state_dict, strict, **options)
        except RuntimeError as error:
            reason = explain_mismatch(state_dict, self.state_dict()) if strict else ""
            if not reason:
                raise
            raise CheckpointError(reason) from error
        reason = explain_untied(state_dict, self) if strict else ""
        if reason:
            raise CheckpointError(reason)
        return result


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
    """Raise ConfigError if the task's data do not suit this model."""
    if not source_has_own_matrix(cfg) and task.source_dictionary != task.target_dictionary:
        raise ConfigError(
            f"the source dictionary ({len(task.source_dictionary)} types) and the target "
            f"dictionary ({len(task.target_dictionary)} types) differ, but the model shares one "
            "embedding matrix between them: run fairseq-preprocess with --joined-dictionary, or "
            "give --share-decoder-input-output-embed or --untie-embeddings"
        )
    if getattr(task.cfg, "left_pad_target", False):
        raise ConfigError(
            "--left-pad-target is not supported: the causal mask hides padding on the right only"
        )
