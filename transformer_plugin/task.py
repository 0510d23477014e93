"""The task ``vaswani_translation``: fairseq's translation with the paper's batch and beam search.

fairseq's ``--max-tokens`` bounds sentences × the longer side, padding included, on one GPU; the
paper (5.1) counts real tokens, on all GPUs. So the tokens that an update sees are measured where
they are decided: when the training's batches are made.
"""

import logging
import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np
from fairseq.data import EpochBatchIterator
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationTask

from .config import VaswaniTranslationConfig
from .generator import VaswaniSequenceGenerator

logger = logging.getLogger(__name__)

TOLERANCE = 0.1
"""How far an update may be off ``batch_tokens`` before training warns."""


@dataclass(frozen=True)
class Batching:
    """One epoch: batches, sentences in them, and their real tokens (no pads, but the EOS)."""

    batches: int
    sentences: int
    source_tokens: int
    target_tokens: int

    def updates(self, accumulated: int, gpus: int) -> int:
        """Updates in the epoch; each takes ``accumulated`` batches on each GPU, the last fewer."""
        return math.ceil(math.ceil(self.batches / gpus) / accumulated)

    def tokens_per_update(self, accumulated: int, gpus: int) -> Tuple[float, float]:
        """Mean real (source, target) tokens of an update."""
        updates = self.updates(accumulated, gpus)
        return self.source_tokens / updates, self.target_tokens / updates


def measure(iterator: EpochBatchIterator, dataset: Any) -> Batching:
    """Count what fairseq put into its batches, from the lengths in the index; no text is read."""
    batches = iterator.frozen_batches
    chosen = np.concatenate([np.asarray(batch) for batch in batches])
    source, target = dataset.src_sizes[chosen].sum(), dataset.tgt_sizes[chosen].sum()
    return Batching(len(batches), len(chosen), int(source), int(target))


def rebatch(bounds: Dict[str, int], accumulated: int, ratio: float) -> Tuple[Dict[str, int], int]:
    """Bounds on one batch, and how many to accumulate, for ``ratio`` times the tokens an update.

    ``bounds`` are ``max_tokens``, ``batch_size`` or both. They grow by 5 % at most, since memory
    may allow no more; ``max_tokens`` comes out as a multiple of 8.
    """
    freq = max(1, math.ceil(accumulated * ratio / 1.05))
    steps = {"max_tokens": 8}
    new = {}
    for name, value in bounds.items():
        step = steps.get(name, 1)
        new[name] = max(step, round(value * accumulated * ratio / freq / step) * step)
    return new, freq


def batch_warning(
    wanted: int, have: float, bounds: Dict[str, int], accumulated: int
) -> Optional[str]:
    """The sentence to warn with, or None: target tokens wanted in an update, and their mean."""
    if not wanted or abs(have - wanted) <= TOLERANCE * wanted:
        return None
    new, freq = rebatch(bounds, accumulated, wanted / have)
    changes = [f"dataset.{name}={value}" for name, value in new.items()]
    return (
        f"an update sees {have:,.0f} target tokens on average, not {wanted:,} (task.batch_tokens): "
        f"give {' '.join(changes)} optimization.update_freq=[{freq}] for that on this hardware"
    )


@register_task("vaswani_translation", dataclass=VaswaniTranslationConfig)
class VaswaniTranslationTask(TranslationTask):
    """fairseq's translation task; says how large updates are, and decodes by our beam search."""

    cfg: VaswaniTranslationConfig
    _said = False

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> EpochBatchIterator:
        """As fairseq's. The first one for training is measured, on the first process."""
        iterator = super().get_batch_iterator(dataset, *args, **kwargs)
        # only the Trainer gives this, and only for training
        if "update_epoch_batch_itr" in kwargs and not self._said and iterator.frozen_batches:
            self._said = True
            if not kwargs["shard_id"]:
                self.say_batch(iterator, dataset, kwargs)
        return iterator

    def say_batch(self, iterator: EpochBatchIterator, dataset: Any, options: Any) -> None:
        """Log the mean tokens of an update, and warn if they are not ``batch_tokens``."""
        frequencies: Sequence[int] = self.cfg.update_freq  # of the first epochs; the last stays
        accumulated = frequencies[min(options["epoch"], len(frequencies)) - 1]
        batching = measure(iterator, dataset)
        source, target = batching.tokens_per_update(accumulated, options["num_shards"])
        logger.info(
            "an update sees %s source and %s target tokens on average; updates an epoch: %s",
            f"{source:,.0f}",
            f"{target:,.0f}",
            f"{batching.updates(accumulated, options['num_shards']):,}",
        )
        given = {"max_tokens": options["max_tokens"], "batch_size": options["max_sentences"]}
        bounds = {name: value for name, value in given.items() if value}
        warning = batch_warning(self.cfg.batch_tokens, target, bounds, accumulated)
        if warning:
            logger.warning(warning)

    def build_generator(
        self,
        models: Any,
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: Optional[Dict[str, Any]] = None,
        **options: Any,
    ) -> Any:
        """Our beam search, or fairseq's where another is asked for or attention is wanted.

        Args:
            models: to decode with
            args: fairseq's options of generation
            seq_gen_cls: a generator that is asked for
            extra_gen_cls_kwargs: its options
            options: fairseq's others
        """
        extra = dict(extra_gen_cls_kwargs or {})
        gnmt = str(self.cfg.length_penalty) == "gnmt"
        attending = [n for n in ("print_alignment", "replace_unk") if getattr(args, n, None)]
        if attending:
            logger.log(
                logging.WARNING if gnmt else logging.INFO,
                "--%s: decoding by fairseq's own search%s",
                attending[0].replace("_", "-"),
                ", with its length penalty, not --length-penalty gnmt" if gnmt else "",
            )
        if seq_gen_cls is None and not attending and not getattr(args, "score_reference", False):
            seq_gen_cls = VaswaniSequenceGenerator
            extra["length_penalty"] = str(self.cfg.length_penalty)
            extra["nbest"] = getattr(args, "nbest", 1)
        return super().build_generator(models, args, seq_gen_cls, extra, **options)
