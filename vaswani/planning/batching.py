"""An experiment's batch on given hardware: chosen, and counted on its data if it exists."""

from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq import models, tasks, utils
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig

from transformer_plugin.batch_size import TOLERANCE, measure_batches
from transformer_plugin.compat.scope import is_plugin_model
from vaswani.common.errors import UserError
from vaswani.common.find import first_data_bin
from vaswani.configuration.fairseq_config import fairseq_form
from vaswani.data import read_data_bin
from vaswani.planning import arithmetic
from vaswani_transformer.fast.processor import choices_for

#: the share of a batch's padded tokens that are real on the target side, at WMT's lengths
REAL_SHARE = 0.87
#: mean tokens per WMT14 sentence, assuming 1.1 to 1.2 subwords per word and an EOS, from 116M
#: English and 110M German words in 4.5M pairs (Luong et al., 2015), and 304M English and 348M
#: French words in 12M pairs (Sutskever et al., 2014); the vocabularies are the paper's (5.1)
LENGTHS = {("en", "de"): (30.0, 30.0), ("en", "fr"): (30.0, 34.0)}
VOCABULARY = {("en", "de"): 37_000, ("en", "fr"): 32_000}


@dataclass(frozen=True)
class TrainingText:
    """What is known about the training text: a task with its dictionaries and perhaps its data."""

    task: FairseqTask
    #: where the batches were counted; None: there is no data, so the figures are estimates
    folder: Path | None
    lengths: tuple[float, float]


@dataclass(frozen=True)
class Batch:
    """What one update sees: the options, and real tokens (means)."""

    max_tokens: int
    update_freq: int
    source_tokens: float
    target_tokens: float
    #: known only if there is data
    updates_per_epoch: int | None = None
    left_out: int | None = None


def training_text(config: DictConfig) -> TrainingText:
    """Return the training data; if it does not exist, dictionaries of the assumed size.

    Raises:
        UserError: the data is damaged.
    """
    if not first_data_bin(config.task.get("data", "")).is_dir():
        return text_of_assumed_size(config)
    text = read_data_bin.parallel_text(config.task)
    read_data_bin.check_dictionaries(config, text)
    read_data_bin.sentence_lengths(text, config.dataset.train_subset)
    task = tasks.setup_task(fairseq_form(config, text.options).task)
    task.load_dataset(config.dataset.train_subset)
    dataset = task.dataset(config.dataset.train_subset)
    lengths = (float(dataset.src_sizes.mean()), float(dataset.tgt_sizes.mean()))
    return TrainingText(task, text.data.folder, lengths)


def text_of_assumed_size(config: DictConfig) -> TrainingText:
    """Return WMT14's lengths, with dictionaries of the assumed size, for a pair of languages.

    Raises:
        UserError: nothing is known about this pair, or the experiment is unlike WMT14's.
    """
    pair = (config.task.source_lang, config.task.target_lang)
    if pair not in LENGTHS or not getattr(config.task, "batch_tokens", 0):
        folder = config.task.get("data")
        raise UserError(
            f"there is no data in {folder} to plan with, and without data only WMT14 can be "
            "estimated: make the data with "
            f"'{read_data_bin.prepare_command(first_data_bin(folder or ''))}' first"
        )
    words = Dictionary()
    for number in range(VOCABULARY[pair] - len(words)):
        words.add_symbol(str(number))
    return TrainingText(
        TranslationTask(fairseq_form(config).task, words, words), None, LENGTHS[pair]
    )


def count_parameters(config: DictConfig, task: FairseqTask) -> int:
    """Count the model's parameters without allocating memory."""
    with torch.device("meta"):
        model = models.build_model(fairseq_form(config).model, task)
    return sum(parameter.numel() for parameter in model.parameters())


def memory_use(config: DictConfig, gpus: int) -> arithmetic.MemoryUse:
    """Return how an update of an experiment uses the memory of each of its GPUs."""
    gpu = choices_for("cuda")
    plugin_model = is_plugin_model(config.model._name)
    in_16_bits = config.common.fp16 or config.model.get("precision") == "bf16"
    readable = plugin_model and config.model.attention_impl == "readable"
    plugin_loss = config.criterion._name == "vaswani_label_smoothed_cross_entropy"
    from_features = plugin_model and plugin_loss and not readable
    compiled_loss = from_features and bool(config.model.compile)
    return arithmetic.MemoryUse(
        product_bytes=2 if in_16_bits else 4,
        attention_weights=not plugin_model or readable,
        logits=not from_features or (bool(config.common.fp16) and not compiled_loss),
        loss_rows=gpu.product_rows,
        compiled_loss=compiled_loss,
        gradient_buckets=gpus > 1,
        checkpointed=bool(config.model.get("checkpoint_activations")),
    )


def gpu_memory(gpus: int) -> float:
    """Return the memory of the smallest GPU, in GB."""
    return min(torch.cuda.get_device_properties(i).total_memory for i in range(gpus)) / 1e9


def most_tokens(
    sizes: arithmetic.Sizes, parameters: int, memory: float, use: arithmetic.MemoryUse
) -> int:
    """Return the most padded tokens per batch that fit into ``memory`` GB, with some headroom.

    Raises:
        UserError: there are too few to train with.
    """
    usable = memory * 1e9 * arithmetic.HEADROOM
    most = arithmetic.tokens_that_fit(sizes, parameters, usable, use)
    if most < arithmetic.LEAST_TOKENS:
        need = arithmetic.memory_bytes(sizes, parameters, arithmetic.LEAST_TOKENS, use)
        need /= 1e9 * arithmetic.HEADROOM
        raise UserError(
            f"{memory:g} GB are too little: this model's {parameters / 1e6:.1f}M parameters and "
            f"batches of {arithmetic.LEAST_TOKENS} tokens need about {need:.1f} GB on each GPU: "
            "choose a smaller model, or GPUs with more memory"
        )
    return most


def choose_batch(
    config: DictConfig,
    text: TrainingText,
    gpus: int,
    most: int,
    keep: bool = False,
    target_tokens: int | None = None,
) -> Batch:
    """Choose the options that give the experiment's batch on this hardware, and measure the result.

    The share of padding depends a little on ``max_tokens``, so if there is data the first choice is
    measured and then improved.

    Args:
        config: the experiment's
        text: to be trained on
        gpus: at least 1, also for a CPU
        most: padded tokens that a batch may have
        keep: leave the experiment's own batch if it fits, and sees as many target tokens as
            training wants; so 'vaswani plan' leaves what 'vaswani new' wrote
        target_tokens: that an update should have (default: the experiment's ``task.batch_tokens``)

    Raises:
        UserError: there are too many GPUs to share the batch.
    """
    own = int(config.dataset.max_tokens)
    freq = int(config.optimization.update_freq[0])
    padded = float(own * freq)  # on one GPU
    batch_tokens = target_tokens or getattr(config.task, "batch_tokens", 0)
    if batch_tokens and text.folder is not None:
        if keep and own <= most:
            batch = measure_batch(config, text, gpus, own, freq)
            if abs(batch.target_tokens - batch_tokens) <= TOLERANCE * batch_tokens:
                return batch
        padded = batch_tokens / REAL_SHARE
        first = arithmetic.share_out(padded, gpus, most)
        padded *= batch_tokens / measure_batch(config, text, gpus, *first).target_tokens
    elif batch_tokens:
        padded = batch_tokens / REAL_SHARE
    max_tokens, freq = arithmetic.share_out(padded, gpus, most)
    if max_tokens < arithmetic.LEAST_TOKENS:
        raise UserError(
            f"{gpus} GPUs are too many for updates of {padded:,.0f} padded tokens: each would get "
            f"{max_tokens}, and longer sentences would be left out, so use at most "
            f"{max(1, int(padded // arithmetic.LEAST_TOKENS))}"
        )
    if text.folder is not None:
        return measure_batch(config, text, gpus, max_tokens, freq)
    target = max_tokens * freq * gpus * REAL_SHARE
    return Batch(max_tokens, freq, target * text.lengths[0] / text.lengths[1], target)


def measure_batch(
    config: DictConfig, text: TrainingText, gpus: int, max_tokens: int, freq: int
) -> Batch:
    """Count the tokens in the batches that fairseq makes from the training data."""
    dataset = text.task.dataset(config.dataset.train_subset)
    iterator = text.task.get_batch_iterator(
        dataset=dataset,
        max_tokens=max_tokens,
        max_sentences=config.dataset.batch_size,
        max_positions=utils.resolve_max_positions(text.task.max_positions(), max_tokens),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=config.dataset.required_batch_size_multiple,
        seed=config.common.seed,
        disable_iterator_cache=True,
    )
    batching = measure_batches(iterator, dataset)
    tokens = batching.tokens_per_update(freq, gpus)
    updates = batching.updates(freq, gpus)
    return Batch(max_tokens, freq, *tokens, updates, len(dataset) - batching.sentences)
