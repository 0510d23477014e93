"""Every option of the plugin with its default, in one place.

The paper's symbols ("Attention Is All You Need", arXiv:1706.03762) and the options that hold them:

===============  ==========================================  =========================
paper            option                                      where the paper says it
===============  ==========================================  =========================
N                ``encoder_layers``, ``decoder_layers``      3.1, Table 3
d_model          ``encoder_embed_dim`` = ``decoder_embed_dim``  3.1, 3.4, Table 3
d_ff             ``encoder_/decoder_ffn_embed_dim``          3.3, Table 3
h                ``encoder_/decoder_attention_heads``        3.2.2, Table 3
d_k              ``head_key_dim`` (default d_model / h)      3.2.2, Table 3 row B
d_v              ``head_value_dim`` (default d_model / h)    3.2.2, Table 3
P_drop           ``dropout``                                 5.4, Table 3 row D
ε_ls             ``label_smoothing``                         5.4, Table 3 row D
β_1, β_2         ``adam_betas``                              5.3
ε                ``adam_eps``                                5.3
warmup_steps     ``warmup_updates``                          5.3
===============  ==========================================  =========================

Field types are written ``Optional[int]``: fairseq makes the flags, and cannot read ``int | None``.
Boolean options default to False: fairseq turns a True default into a flag that switches it off.
"""

from dataclasses import dataclass
from typing import Any, List, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks.translation import TranslationConfig
from omegaconf import II

from vaswani_transformer.config import ACTIVATION_NAMES, TransformerConfig, option
from vaswani_transformer.embedding import SINUSOID_LAYOUTS
from vaswani_transformer.initialisation import SCHEMES as INITIALISATIONS
from vaswani_transformer.precision import PRECISIONS
from vaswani_transformer.search_options import LENGTH_PENALTIES

ATTENTION_IMPLEMENTATIONS = ["auto", "readable"]


class PluginError(ValueError):
    """Something that a user can put right, in one sentence: what is wrong, where, what to do."""

    #: the message is enough, without a traceback; 'vaswani' checks this attribute, because checking
    #: the class would import torch
    for_users = True


class ConfigError(PluginError):
    """An option or combination of options that cannot work; one sentence that names the option."""


@dataclass
class VaswaniTransformerConfig(TransformerConfig, FairseqDataclass):
    """The base model (Table 3, first row), whose sizes come from the paper's package.

    The other presets state only what differs.
    """

    sinusoid_layout: ChoiceEnum(SINUSOID_LAYOUTS) = option(  # type: ignore[valid-type]
        "paper",
        "sinusoidal positions as in the paper (interleaved), in tensor2tensor or in fairseq (3.5)",
    )
    init: ChoiceEnum(list(INITIALISATIONS)) = option(  # type: ignore[valid-type]
        "fairseq", "initial weights: as in fairseq or as in tensor2tensor (the paper does not say)"
    )
    attention_impl: ChoiceEnum(ATTENTION_IMPLEMENTATIONS) = option(  # type: ignore[valid-type]
        "auto",
        "readable: compute the whole model as the formulas read (attention, matrix products, "
        "dropout, loss); auto: use faster forms, equal within rounding, where they are quicker",
    )
    precision: ChoiceEnum(PRECISIONS) = option(  # type: ignore[valid-type]
        "fp32", "bf16: matrix products under autocast; weights, softmax, norms and loss stay fp32"
    )
    compile: bool = option(
        False,
        "apply torch.compile to each layer and, on a GPU, to the loss, for batches of any shape "
        "(slower on a CPU)",
    )
    checkpoint_activations: bool = option(
        False,
        "keep only each layer's input in training, and compute its activations again in the "
        "backward pass: less memory, more time, the same result",
    )
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")
    activation_fn: ChoiceEnum(ACTIVATION_NAMES) = option(  # type: ignore[valid-type]
        "relu", "the feed-forward activation; relu in the paper (3.3)"
    )


@dataclass
class VaswaniTransformerPrenormConfig(VaswaniTransformerConfig):
    """The base model with norms before the sub-layers, as many later models have them."""

    encoder_normalize_before: bool = True
    decoder_normalize_before: bool = True


@dataclass
class VaswaniTransformerBigConfig(VaswaniTransformerConfig):
    """The big model (Table 3, last row)."""

    encoder_embed_dim: int = 1024
    encoder_ffn_embed_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_embed_dim: int = 1024
    decoder_ffn_embed_dim: int = 4096
    decoder_attention_heads: int = 16
    dropout: float = 0.3


@dataclass
class VaswaniTransformerBigEnFrConfig(VaswaniTransformerBigConfig):
    """The big model as trained on English-French (section 6.1)."""

    dropout: float = 0.1


@dataclass
class VaswaniTransformerTinyConfig(VaswaniTransformerConfig):
    """A small model for small corpora; not in the paper."""

    encoder_layers: int = 4
    encoder_embed_dim: int = 128
    encoder_ffn_embed_dim: int = 256
    encoder_attention_heads: int = 4
    decoder_layers: int = 4
    decoder_embed_dim: int = 128
    decoder_ffn_embed_dim: int = 256
    decoder_attention_heads: int = 4
    dropout: float = 0.3


@dataclass
class VaswaniLabelSmoothedCrossEntropyConfig(FairseqDataclass):
    """Label smoothing (section 5.4)."""

    label_smoothing: float = option(
        0.1, "epsilon_ls, the probability mass spread over the other V - 1 classes (5.4)"
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@dataclass
class VaswaniAdamConfig(FairseqDataclass):
    """Adam (section 5.3), with fairseq's option names."""

    adam_betas: Any = option("(0.9, 0.98)", "beta_1 and beta_2 (5.3)")
    adam_eps: float = option(1e-9, "epsilon (5.3)")
    weight_decay: float = option(0.0, "decoupled weight decay (not in the paper)")
    lr: List[float] = II("optimization.lr")


@dataclass
class VaswaniInverseSqrtConfig(FairseqDataclass):
    """The learning-rate schedule (section 5.3, equation 3)."""

    warmup_updates: int = option(4000, "warmup_steps, updates of linear growth of the rate (5.3)")
    lr_factor: float = option(1.0, "multiplies the whole schedule (1.0 in the paper)")
    d_model: Optional[int] = option(
        None, "d_model of equation 3; taken from the model if not given"
    )
    lr: List[float] = II("optimization.lr")


@dataclass
class VaswaniTranslationConfig(TranslationConfig):
    """fairseq's translation task, and what this plugin's adds to it."""

    batch_tokens: Optional[int] = option(
        0,
        "target tokens that one update should see, about 25000 in the paper (5.1); training warns "
        "if their mean is off by more than a tenth; 0 or none: no check",
    )
    length_penalty: ChoiceEnum(LENGTH_PENALTIES) = option(  # type: ignore[valid-type]
        "fairseq",
        "what --lenpen means in beam search: a power of the length (fairseq), or alpha in the "
        "paper's ((5 + length) / 6)^alpha, with tensor2tensor's stopping rule (gnmt) (6.1)",
    )
    eval_bleu_lines: int = option(
        0,
        "at each validation, show BLEU of greedy translations of so many of the first validation "
        "sentences, and three of them; not with --eval-bleu, which translates all; 0: none",
    )
    eval_bleu_tokens: str = option(
        "none",
        "sacreBLEU's tokens for --eval-bleu-lines, such as 13a, of text that "
        "--eval-bleu-remove-bpe and --eval-bleu-detok restore; none: those of the prepared text "
        "(tokenised_bleu)",
    )
    save_all_last: Optional[int] = option(
        0,
        "in this many of the last updates before --max-update, which are averaged (6.1), save at "
        "every --save-interval-updates; until then, only ten minutes after the save before; 0 or "
        "none: save at every one",
    )
    update_freq: List[int] = II("optimization.update_freq")


def flag(name: str) -> str:
    """The command-line spelling of a field's name."""
    return "--" + name.replace("_", "-")
