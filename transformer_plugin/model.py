"""The Transformer as models of fairseq's: the paper's, made of its parts, and the presets."""

from typing import Any

from fairseq.models import FairseqEncoderDecoderModel, register_model
from torch import Tensor

from vaswani_transformer import Transformer
from vaswani_transformer.decoder import Decoder
from vaswani_transformer.encoder import Encoder
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.fast.linear import convert_to_bf16
from vaswani_transformer.transformer import source_has_own_matrix

from .checkpointed import checkpoint_layers
from .checkpoints import CheckpointError, explain_mismatch, explain_untied
from .checks import check_model_config
from .compiled import compile_parts
from .config import (
    ConfigError,
    VaswaniTransformerBigConfig,
    VaswaniTransformerBigEnFrConfig,
    VaswaniTransformerConfig,
    VaswaniTransformerPrenormConfig,
    VaswaniTransformerTinyConfig,
)
from .decoder import VaswaniDecoder
from .encoder import VaswaniEncoder
from .lean_updates import LeanUpdates
from .retained_dropout import retain_dropout


@register_model("vaswani_transformer", dataclass=VaswaniTransformerConfig)
class VaswaniTransformerModel(LeanUpdates, FairseqEncoderDecoderModel):
    """The base model of "Attention Is All You Need" (Table 3, first row).

    Attributes:
        transformer_class: makes the parts; a variant sets its own subclass (docs/extend.md)
        encoder_class: called by fairseq; for variants that change more than parts of the encoder
        decoder_class: the same for the decoder
    """

    transformer_class: type[Transformer] = Transformer
    encoder_class: type[VaswaniEncoder] = VaswaniEncoder
    decoder_class: type[VaswaniDecoder] = VaswaniDecoder

    def __init__(
        self, cfg: VaswaniTransformerConfig, encoder: VaswaniEncoder, decoder: VaswaniDecoder
    ) -> None:
        super().__init__(encoder, decoder)
        self.cfg = cfg

    @classmethod
    def build_model(cls, cfg: VaswaniTransformerConfig, task: Any) -> "VaswaniTransformerModel":
        """Build the model for a task with dictionaries; fairseq calls this before it reads data.

        Raises:
            ConfigError: options cannot work, or the dictionaries cannot share a matrix.
        """
        check_model_config(cfg)
        check_task(cfg, task)
        source, target = task.source_dictionary, task.target_dictionary
        paper = cls.transformer_class(cfg, len(source), len(target), source.pad())
        cls.check_parts(paper)
        encoder = cls.encoder_class(cfg, source, paper.encoder)
        decoder = cls.decoder_class(cfg, target, paper.decoder)
        model = cls(cfg, encoder, decoder)
        if cfg.checkpoint_activations:
            checkpoint_layers(model)
        compiled = compile_parts(model) if cfg.compile else []
        if str(cfg.attention_impl) != "readable":
            use_fast_kernels(model, compiled)
        return model

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None,
        prev_output_tokens: Tensor,
        need_head_weights: bool = False,
        **decoder_options: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """Encode the source and decode the target, which is shifted right.

        Args:
            src_tokens: [B, S], padded on either side
            src_lengths: unused
            prev_output_tokens: [B, T], padded on the right
            need_head_weights: also return every layer's attention weights per head
            decoder_options: options of :meth:`.decoder.VaswaniDecoder.forward`, whose result is
                returned

        Raises:
            TypeError: the decoder has no option of that name.
        """
        encoder_out = self.encoder(src_tokens, src_lengths, need_head_weights=need_head_weights)
        return self.decoder(
            prev_output_tokens, encoder_out, need_head_weights=need_head_weights, **decoder_options
        )

    def extract_features(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None,
        prev_output_tokens: Tensor,
        **decoder_options: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the decoder's features; arguments as in :meth:`forward`."""
        return self.forward(
            src_tokens, src_lengths, prev_output_tokens, features_only=True, **decoder_options
        )

    @classmethod
    def check_parts(cls, paper: Transformer) -> None:
        """Raise ConfigError for a variant in plain torch of which fairseq would run only a part.

        Embeddings, layers and norms are used. The forward of the model, the encoder or the decoder
        is fairseq's, unless this model's class sets its own.
        """
        name = type(paper).__name__
        if type(paper).forward is not Transformer.forward:
            raise ConfigError(
                f"{name} defines forward(), but fairseq does not call it: replace a part of the "
                "model in one of its build_ methods instead"
            )
        for side, ours, theirs, plain in (
            ("encoder", cls.encoder_class, VaswaniEncoder, Encoder),
            ("decoder", cls.decoder_class, VaswaniDecoder, Decoder),
        ):
            own = type(getattr(paper, side))
            if own is not plain and ours is theirs:
                raise ConfigError(
                    f"the {side} of {name} is of the class {own.__name__}, whose forward() fairseq "
                    f"does not call: set {side}_class of {cls.__name__} to a subclass of "
                    f"{theirs.__name__} that computes the same"
                )

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Prepare decoding as fairseq does, with dropout off or retained, and weights in bf16.

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
        """Load parameters as fairseq does, and explain a mismatch by the option that differs.

        Args:
            state_dict: parameters by name; names of older versions are replaced in it
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


@register_model("vaswani_transformer_prenorm", dataclass=VaswaniTransformerPrenormConfig)
class VaswaniTransformerPrenormModel(VaswaniTransformerModel):
    """The base model with norms before the sub-layers; not in the paper."""


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
            f"the source dictionary ({len(task.source_dictionary)} entries) and the target "
            f"dictionary ({len(task.target_dictionary)} entries) differ, but the model shares one "
            "embedding matrix between them: run fairseq-preprocess with --joined-dictionary, or "
            "give --share-decoder-input-output-embed or --untie-embeddings"
        )
    if getattr(task.cfg, "left_pad_target", False):
        raise ConfigError(
            "--left-pad-target is not supported, because the causal mask hides padding on the "
            "right only: leave out --left-pad-target"
        )
