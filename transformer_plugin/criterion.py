"""Label-smoothed cross entropy (section 5.4) as fairseq calls it.

The formula is in vaswani_transformer/loss.py. Training uses one of its faster versions in fast/,
which the model's decoder chooses; for other models the formula itself is used.

Shapes: B sentences, T target tokens, N of them real, D model width, V vocabulary. The loss that
fairseq gets is in nats, summed over tokens; in the logs it is in bits per token.
"""

import math
import weakref
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import LanguagePairDataset
from fairseq.logging import metrics
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from vaswani_transformer.loss import LossSums, label_smoothed_loss

from .checks import check_label_smoothing
from .compat.translation_task import CheckedTranslationTask
from .config import VaswaniLabelSmoothedCrossEntropyConfig
from .task import VaswaniTranslationTask

LoggingOutput = dict[str, int | Tensor]

OF_MODEL = [
    "output_layer",
    "get_normalized_probs",
    "get_normalized_probs_scriptable",
    "get_targets",
]
"""The methods of a model between the decoder's output and the loss."""


def counts_target_tokens(task: Any) -> bool:
    """Return whether ``ntokens`` of a task's batches is the number of real target tokens.

    Other tasks and data sets, even subclasses of these, may define ``ntokens`` differently.
    """
    tasks = (TranslationTask, CheckedTranslationTask, VaswaniTranslationTask)
    datasets = getattr(task, "datasets", {}).values()
    return type(task) in tasks and all(type(dataset) is LanguagePairDataset for dataset in datasets)


def computes_losses(model: torch.nn.Module) -> bool:
    """Return whether the loss may be computed from the decoder's features, without logits.

    A subclass or a user may have replaced methods; ``model`` may be wrapped for several GPUs.
    """
    if not getattr(getattr(model, "decoder", None), "computes_losses", False):
        return False
    methods = (getattr(getattr(model, name), "__func__", None) for name in OF_MODEL)
    return list(methods) == [getattr(FairseqEncoderDecoderModel, name) for name in OF_MODEL]


def places(chosen: Tensor, count: int | None = None) -> Tensor:
    """Return the positions [N] where ``chosen`` [M] is true, in order, int64.

    Args:
        chosen: bool [M]
        count: N; without it, on a GPU, the host waits for the number
    """
    if count is None:
        return chosen.nonzero().squeeze(1)
    # a stable sort moves false elements back and keeps the order of the true ones
    return chosen.to(torch.uint8).argsort(descending=True, stable=True)[:count]


@register_criterion(
    "vaswani_label_smoothed_cross_entropy", dataclass=VaswaniLabelSmoothedCrossEntropyConfig
)
class VaswaniLabelSmoothedCrossEntropy(FairseqCriterion):
    """The loss of section 5.4 for any fairseq translation model.

    Logs ``loss`` and ``nll_loss`` in bits per token, ``ppl`` = 2^nll_loss and, in validation,
    ``accuracy``: the percentage of tokens whose most probable class is correct.

    Raises:
        ConfigError: ``label_smoothing`` outside [0, 1).
    """

    def __init__(self, task: Any, sentence_avg: bool, label_smoothing: float) -> None:
        super().__init__(task)
        check_label_smoothing(label_smoothing)
        self.sentence_avg = sentence_avg
        self.label_smoothing = label_smoothing
        #: model and mode for which ``from_features`` was decided; a reference, not a submodule
        self.decided_for: tuple[weakref.ref[torch.nn.Module], bool] | None = None
        self.from_features = False

    def uses_features(self, model: torch.nn.Module) -> bool:
        """Return whether the loss is computed from features, decided once per mode of a model.

        An epoch begins with the change to training mode, and its validation with the change back.
        """
        now = (weakref.ref(model), model.training)
        if self.decided_for != now:
            self.from_features = computes_losses(model)
            self.decided_for = now
        return self.from_features

    def forward(
        self, model: torch.nn.Module, sample: dict[str, Any]
    ) -> tuple[Tensor, int, LoggingOutput]:
        """Return a batch's summed loss, the divisor of its gradient, and the values to log."""
        # in training the accuracy would cost an argmax over the vocabulary
        count_correct = not model.training
        if self.uses_features(model):
            sums = self.loss_inside(model, sample, count_correct)
        else:
            sums = self.loss_of_log_probs(model, sample, count_correct)
        sentences = sample["target"].size(0)
        sample_size = sentences if self.sentence_avg else sample["ntokens"]
        # Numbers and one-element tensors only: fairseq itself adds these up over processes.
        log: LoggingOutput = {
            "loss": sums.loss.detach(),
            "nll_loss": sums.nll.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sample_size,
        }
        if count_correct:
            log["n_correct"] = sums.correct
            log["total"] = sample["target"].ne(self.padding_idx).sum()
        return sums.loss, sample_size, log

    def loss_inside(
        self, model: torch.nn.Module, sample: dict[str, Any], count_correct: bool
    ) -> LossSums:
        """Return the loss of a model that passes its features and output matrix to a function.

        The function runs inside the model's forward: a wrapper such as DistributedDataParallel
        then sees that the matrix is used, and no [B, T, V] tensor leaves the model.
        """
        target = sample["target"].reshape(-1)
        projected_loss = model.decoder.projected_loss
        # Before the model runs. The host need not ask a GPU for N if ntokens is known to be N.
        is_count = target.device.type != "cpu" and counts_target_tokens(self.task)
        token_rows = places(
            target.ne(self.padding_idx), sample["ntokens"] if is_count else None
        )  # [N]
        target = target.index_select(0, token_rows)

        def loss(features: Tensor, weight: Tensor) -> LossSums:
            """Return the sums over real tokens, of features [B, T, D] and the matrix [V, D]."""
            features = features.reshape(-1, features.size(-1)).index_select(0, token_rows)
            return projected_loss(features, weight, target, self.label_smoothing, count_correct)

        sums, _ = model(**sample["net_input"], loss=loss)
        return sums

    def loss_of_log_probs(
        self, model: torch.nn.Module, sample: dict[str, Any], count_correct: bool
    ) -> LossSums:
        """Return the formula's loss, for other models and for ``--attention-impl readable``.

        The model itself returns the log-probabilities, since its output need not be logits.
        fairseq's log-softmax returns float32 for any type of logits.
        """
        net_output = model(**sample["net_input"])
        log_probs = model.get_normalized_probs(net_output, log_probs=True)  # [B, T, V]
        target = model.get_targets(sample, net_output)  # [B, T]
        loss, nll = label_smoothed_loss(log_probs, target, self.label_smoothing, self.padding_idx)
        correct = target.new_zeros(())
        if count_correct:
            correct = (log_probs.argmax(-1).eq(target) & target.ne(self.padding_idx)).sum()
        return LossSums(loss, nll, correct)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the averages over batches and processes.

        Everything is converted to a Python number before it is logged: the content of the meters is
        saved in checkpoints, where other types make loading unsafe. On a GPU the host waits for the
        losses once per update. Otherwise fairseq's Trainer would wait for them, since it reads
        every meter after each update.
        """

        def totals(*keys: str) -> list[float]:
            sums = [sum(log.get(key, 0) for log in logging_outputs) for key in keys]
            if all(map(torch.is_tensor, sums)):  # one transfer for all
                sums = torch.stack(sums).tolist()
            return [float(total) for total in sums]

        bits = 1 / math.log(2)
        sample_size, tokens = totals("sample_size", "ntokens")
        loss, nll = totals("loss", "nll_loss")
        metrics.log_scalar("loss", loss / sample_size * bits, sample_size, round=3)
        metrics.log_scalar("nll_loss", nll / tokens * bits, tokens, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        correct, total = totals("n_correct", "total")
        if total > 0:
            metrics.log_scalar("accuracy", 100 * correct / total, total, round=3)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Return True: fairseq may sum the outputs of all processes in one all-reduce."""
        return True
