"""The task ``vaswani_translation``: fairseq's translation with the paper's batch and beam search.

When fairseq has made the batches of the training set, the mean number of tokens per update is
logged (batch_size.py). The beam search is vaswani_transformer/search/, through generator.py;
checks.py refuses options; valid_bleu.py shows translations at each validation.
"""

import logging
from collections.abc import Sequence
from typing import Any

from fairseq.data import EpochBatchIterator
from fairseq.tasks import register_task

from .batch_size import batch_warning, measure_batches
from .checks import check_task_config
from .compat.translation_task import CheckedTranslationTask
from .config import VaswaniTranslationConfig
from .generator import VaswaniSequenceGenerator
from .valid_bleu import ValidBleu

logger = logging.getLogger(__name__)


@register_task("vaswani_translation", dataclass=VaswaniTranslationConfig)
class VaswaniTranslationTask(CheckedTranslationTask):
    """fairseq's translation task, which logs the tokens per update and uses our beam search."""

    cfg: VaswaniTranslationConfig
    _logged = False
    #: the translations that each validation of a training shows
    valid_bleu: ValidBleu | None = None

    def __init__(self, cfg: VaswaniTranslationConfig, *dictionaries: Any) -> None:
        """Raise ConfigError for an option that cannot work."""
        check_task_config(cfg)
        super().__init__(cfg, *dictionaries)

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Begin an epoch of training, and prepare its validations.

        Only a training calls this, so other validations do not translate.
        """
        super().begin_epoch(epoch, model)
        if self.cfg.eval_bleu_lines and not self.valid_bleu:
            self.valid_bleu = ValidBleu(self)

    def begin_valid_epoch(self, epoch: int, model: Any) -> None:
        """Begin a validation as fairseq does."""
        super().begin_valid_epoch(epoch, model)
        if self.valid_bleu:
            self.valid_bleu.begin(model)

    def valid_step(self, sample: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Validate a batch as fairseq does; a training also translates the sentences to show."""
        result = super().valid_step(sample, *args, **kwargs)
        if self.valid_bleu:
            self.valid_bleu.translate(sample)
        return result

    def post_validate(self, model: Any, stats: dict[str, Any], agg: Any) -> None:
        """End a validation set; fairseq calls this in each process."""
        if self.valid_bleu:
            self.valid_bleu.end(stats)

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> EpochBatchIterator:
        """Return fairseq's batches; the first process measures the first training batches."""
        iterator = super().get_batch_iterator(dataset, *args, **kwargs)
        # only the Trainer passes this, and only for training
        if "update_epoch_batch_itr" in kwargs and not self._logged and iterator.frozen_batches:
            self._logged = True
            if not kwargs["shard_id"]:
                self.log_batch(iterator, dataset, kwargs)
        return iterator

    def log_batch(self, iterator: EpochBatchIterator, dataset: Any, options: Any) -> None:
        """Log the mean tokens per update, and warn if they are far from ``batch_tokens``."""
        frequencies: Sequence[int] = self.cfg.update_freq  # one per epoch; the last stays
        accumulated = frequencies[min(options["epoch"], len(frequencies)) - 1]
        batching = measure_batches(iterator, dataset)
        source, target = batching.tokens_per_update(accumulated, options["num_shards"])
        logger.info(
            "an update sees %s source and %s target tokens on average; updates per epoch: %s",
            f"{source:,.0f}",
            f"{target:,.0f}",
            f"{batching.updates(accumulated, options['num_shards']):,}",
        )
        options_of_size = {
            "max_tokens": options["max_tokens"],
            "batch_size": options["max_sentences"],
        }
        bounds = {name: value for name, value in options_of_size.items() if value}
        warning = batch_warning(self.cfg.batch_tokens, target, bounds, accumulated)
        if warning:
            logger.warning(warning)

    def build_generator(
        self,
        models: Any,
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Return our beam search, or fairseq's if another is named or attention is needed.

        Args:
            models: the models to decode with
            args: fairseq's generation options
            seq_gen_cls: another generator, or None
            extra_gen_cls_kwargs: its options
            options: fairseq's other arguments
        """
        extra = dict(extra_gen_cls_kwargs or {})
        gnmt = str(self.cfg.length_penalty) == "gnmt"
        attending = getattr(args, "print_alignment", None)
        if attending and gnmt:
            logger.warning(
                "--print-alignment: decoding with fairseq's own search and its length penalty "
                "instead of --length-penalty gnmt"
            )
        if seq_gen_cls is None and not attending and not getattr(args, "score_reference", False):
            seq_gen_cls = VaswaniSequenceGenerator
            extra["length_penalty"] = str(self.cfg.length_penalty)
            extra["nbest"] = getattr(args, "nbest", 1)
        return super().build_generator(models, args, seq_gen_cls, extra, **options)
