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
    """An error that a user can fix, in one sentence: what is wrong, where, what to do."""

    #: the message is enough, without a traceback; 'vaswani' checks this attribute, because checking
    #: the class would import torch
    for_users = True


class ConfigError(PluginError):
    """An option or combination of options that cannot work; one sentence that names the option."""


@dataclass
class VaswaniTransformerConfig(TransformerConfig, FairseqDataclass):
    """The base model (Table 3, first row); its sizes come from vaswani_transformer.

    Other presets list only their differences.
    """

    sinusoid_layout: ChoiceEnum(SINUSOID_LAYOUTS) = option(  # type: ignore[valid-type]
        "paper",
        "sinusoidal positions as in the paper (sines and cosines interleaved), in tensor2tensor "
        "or in fairseq (both: all sines, then all cosines) (3.5)",
    )
    init: ChoiceEnum(list(INITIALISATIONS)) = option(  # type: ignore[valid-type]
        "fairseq", "initial weights: as in fairseq or as in tensor2tensor (the paper does not say)"
    )
    attention_impl: ChoiceEnum(ATTENTION_IMPLEMENTATIONS) = option(  # type: ignore[valid-type]
        "auto",
        "auto: use faster implementations with equal results (within rounding) where they save "
        "time; readable: compute attention, matrix products, dropout and loss as the paper's "
        "formulas are written",
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
        "activation checkpointing: keep only each layer's input in training and recompute its "
        "activations in the backward pass (less memory, more time, the same result)",
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

    warmup_updates: int = option(
        4000, "warmup_steps, number of updates in which the learning rate grows linearly (5.3)"
    )
    lr_factor: float = option(
        1.0, "factor for the learning rate of every update (1.0 in the paper)"
    )
    d_model: Optional[int] = option(
        None, "d_model in the formula of the learning rate, equation 3 (default: the model's)"
    )
    lr: List[float] = II("optimization.lr")


@dataclass
class VaswaniTranslationConfig(TranslationConfig):
    """fairseq's translation task, with the options that this plugin adds."""

    batch_tokens: Optional[int] = option(
        0,
        "intended number of target tokens per update, about 25000 in the paper (5.1); training "
        "warns if the mean differs from it by more than a tenth; 0 or none: no check",
    )
    length_penalty: ChoiceEnum(LENGTH_PENALTIES) = option(  # type: ignore[valid-type]
        "fairseq",
        "formula of the length penalty in beam search: length^lenpen (fairseq), or the paper's "
        "((5 + length) / 6)^lenpen with tensor2tensor's stopping rule (gnmt) (6.1)",
    )
    eval_bleu_lines: int = option(
        0,
        "at each validation, translate this many validation sentences (the first ones) greedily, "
        "and show their BLEU and three of the translations; 0: none; excludes --eval-bleu, which "
        "translates all of them",
    )
    eval_bleu_tokens: str = option(
        "none",
        "sacreBLEU's tokeniser for --eval-bleu-lines, such as 13a; --eval-bleu-remove-bpe and "
        "--eval-bleu-detok turn the tokens into text first; none: compute BLEU on the tokens of "
        "the prepared text (tokenised_bleu)",
    )
    save_all_last: Optional[int] = option(
        0,
        "save at every --save-interval-updates only within this many updates before "
        "--max-update, whose checkpoints are averaged (6.1); earlier, save at most every ten "
        "minutes; 0 or none: save at every --save-interval-updates",
    )
    update_freq: List[int] = II("optimization.update_freq")


def flag(name: str) -> str:
    """Return the command-line spelling of a field's name."""
    return "--" + name.replace("_", "-")
