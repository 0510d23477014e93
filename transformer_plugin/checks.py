"""Refuses options that cannot work; each message names the option and what to do instead."""

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from vaswani_transformer.config import check_sizes

from .config import (
    ConfigError,
    VaswaniAdamConfig,
    VaswaniInverseSqrtConfig,
    VaswaniTransformerConfig,
    VaswaniTranslationConfig,
    flag,
)


def check_number(
    name: str,
    value: Any,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> None:
    """Raise ConfigError unless an option's value is a finite number within its limits.

    NaN, which is neither below nor above anything, is refused.

    Args:
        name: of the option, for the message
        value: of the option; None, if it is not given, is allowed
        least: the lowest number
        above: the number must be greater
        below: the number must be less
    """
    if value is None:
        return
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, not {value}")
    if least is not None and value < least:
        raise ConfigError(f"{name} must be at least {least:g}, not {value}")
    if above is not None and value <= above:
        raise ConfigError(f"{name} must be above {above:g}, not {value}")
    if below is not None and value >= below:
        raise ConfigError(f"{name} must be below {below:g}, not {value}")


def check_model_config(cfg: VaswaniTransformerConfig) -> None:
    """Raise ConfigError if the model's options cannot work together."""
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        check_number(flag(name), getattr(cfg, name), least=0, below=1)
    check_number("--layer-norm-eps", cfg.layer_norm_eps, least=0)
    try:
        check_sizes(cfg, flag)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if cfg.checkpoint_activations and cfg.compile:
        raise ConfigError(
            "--checkpoint-activations and --compile cannot be used together, because torch.compile "
            "itself chooses which activations it keeps: leave out one of the two"
        )
    for name in ("share_all_embeddings", "share_decoder_input_output_embed"):
        if getattr(cfg, name) and cfg.untie_embeddings:
            raise ConfigError(
                f"{flag(name)} and --untie-embeddings contradict each other: leave out one of the "
                "two"
            )


def check_label_smoothing(label_smoothing: float) -> None:
    """Raise ConfigError unless the label smoothing ε_ls is in [0, 1) (5.4)."""
    check_number("--label-smoothing", label_smoothing, least=0, below=1)


def check_schedule_config(cfg: VaswaniInverseSqrtConfig) -> None:
    """Raise ConfigError for values with which equation 3 is not defined (5.3)."""
    check_number("--warmup-updates", cfg.warmup_updates, least=1)
    check_number("--lr-factor", cfg.lr_factor, above=0)
    check_number("--d-model", cfg.d_model, least=1)


def check_adam_config(cfg: VaswaniAdamConfig) -> None:
    """Raise ConfigError for values with which Adam is not defined (5.3)."""
    for beta in read_betas(cfg.adam_betas):
        check_number("--adam-betas", beta, least=0, below=1)
    check_number("--adam-eps", cfg.adam_eps, least=0)
    check_number("--weight-decay", cfg.weight_decay, least=0)


def read_betas(betas: Any) -> tuple[float, float]:
    """Return β₁ and β₂ from a list (in YAML) or from text such as "(0.9, 0.98)" (in a flag).

    Raises:
        ConfigError: they are not two numbers.
    """
    try:
        first, second = ast.literal_eval(betas) if isinstance(betas, str) else betas
        return float(first), float(second)
    except (SyntaxError, TypeError, ValueError):
        raise ConfigError(
            f"--adam-betas must be two numbers, such as (0.9, 0.98), not {betas}"
        ) from None


def check_task_config(cfg: VaswaniTranslationConfig) -> None:
    """Raise ConfigError if an option of the task is a negative number."""
    for name in ("batch_tokens", "eval_bleu_lines", "save_all_last"):
        check_number(flag(name), getattr(cfg, name), least=0)


def check_best_metric(checkpoint: Any, task: Any) -> None:
    """Raise ConfigError for a best checkpoint by a BLEU that is minimised or not computed.

    With a BLEU that is not computed, fairseq fails in the first validation.

    Args:
        checkpoint: fairseq's section of this name
        task: the section of a translation task
    """
    metric = checkpoint.best_checkpoint_metric
    if "bleu" not in metric:
        return
    where = "--best-checkpoint-metric (checkpoint.best_checkpoint_metric)"
    name = "bleu" if getattr(task, "eval_bleu", False) else ""
    if getattr(task, "eval_bleu_lines", 0):
        name = "tokenised_bleu" if task.eval_bleu_tokens == "none" else "bleu"
    if not name:
        raise ConfigError(
            f"{where} is {metric}, but this training computes no BLEU: with --task "
            "vaswani_translation give --eval-bleu-lines 500 --eval-bleu-tokens 13a (in YAML: "
            "task.eval_bleu_lines …), or another metric"
        )
    if metric != name:
        raise ConfigError(
            f"{where} is {metric}, but this training computes {name}: give {name}"
            + ("" if name == "bleu" else ", or --eval-bleu-tokens 13a (task.eval_bleu_tokens)")
        )
    if not checkpoint.maximize_best_checkpoint_metric:
        raise ConfigError(
            f"{where} is {metric}, but the lowest value would count as the best: add "
            "--maximize-best-checkpoint-metric (checkpoint.maximize_best_checkpoint_metric: true)"
        )


def check_subsets(dataset: Any) -> None:
    """Raise ConfigError if a training would be validated on its own training text.

    fairseq reads ``train``, ``train1``, ``train2`` … for ``train``, and with
    ``--combine-valid-subsets`` the same for a validation subset.

    Args:
        dataset: fairseq's section of this name
    """
    if dataset.disable_validation:
        return
    train_subset = dataset.train_subset
    for subset in dataset.valid_subset.split(","):
        is_read = re.fullmatch(rf"{re.escape(train_subset)}\d*", subset)
        if dataset.combine_valid_subsets and not is_read:
            is_read = re.fullmatch(rf"{re.escape(subset)}\d*", train_subset)
        if is_read:
            raise ConfigError(
                f"--train-subset {train_subset} (dataset.train_subset) has the text of "
                f"--valid-subset {subset} (dataset.valid_subset), so the validation loss would "
                "not measure anything new: name two different subsets, for example train and "
                "valid, or give --disable-validation (dataset.disable_validation: true)"
            )


def check_precision(common: Any, precision: Any) -> None:
    """Raise ConfigError for 16-bit options of fairseq that train our model wrongly.

    ``--bf16`` turns fairseq-train's TPU mode on, which fails without a TPU. With
    ``--memory-efficient-bf16`` there are no weights but those in bfloat16. ``--amp`` divides
    gradients by the loss scale when they are clipped and again when the optimizer updates: Adam
    hides this until they are as small as its ε. ``--fp16`` with ``--precision bf16`` loses small
    gradients of the loss, which are rounded to float16 before they are scaled.

    Args:
        common: fairseq's section
        precision: the model's option
    """
    if getattr(common, "memory_efficient_bf16", False):  # which sets bf16, too
        raise ConfigError(
            "--memory-efficient-bf16 (common.memory_efficient_bf16) trains the weights themselves "
            "in bfloat16: leave it out, and give --precision bf16 (in YAML: model.precision), "
            "which keeps them in float32"
        )
    if getattr(common, "bf16", False):
        raise ConfigError(
            "--bf16 (common.bf16) is fairseq's option for TPUs: leave it out, and give "
            "--precision bf16 (in YAML: model.precision)"
        )
    if getattr(common, "amp", False):
        raise ConfigError(
            "--amp lets fairseq divide the gradients by the loss scale twice: leave it out, "
            "and give --precision bf16 (in YAML: model.precision) or --fp16"
        )
    if common.fp16 and str(precision) == "bf16":
        raise ConfigError(
            "--fp16 and --precision bf16 cannot be used together: leave out one of the two"
        )


def check_processes(environ: Mapping[str, str]) -> None:
    """Raise ConfigError if torchrun started several processes that would train separately.

    fairseq takes the number of processes from the GPUs that it sees, and connects those of torchrun
    only if there are several GPUs, or if ``--distributed-world-size`` says so.

    Args:
        environ: environment variables, including torchrun's
    """
    started = int(environ.get("WORLD_SIZE", 1)) if "RANK" in environ else 1
    joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    if started > 1 and not joined:
        raise ConfigError(
            f"torchrun started {started} processes, but each would train a separate model into "
            f"the same folder: give --distributed-world-size {started}, or use 'vaswani train', "
            "which sets it"
        )
