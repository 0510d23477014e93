"""Label-smoothed cross entropy (section 5.4): a pure function, and its registered shell.

Shapes: B sentences, T target tokens, V vocabulary. All values are in nats inside, in bits in logs.
"""

import math
from typing import Any, Dict, List, Tuple, Union

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.logging import metrics
from torch import Tensor

from .config import ConfigError, VaswaniLabelSmoothedCrossEntropyConfig

LoggingOutput = Dict[str, Union[int, Tensor]]


def label_smoothed_loss(
    log_probs: Tensor, target: Tensor, epsilon: float, padding_idx: int
) -> Tuple[Tensor, Tensor]:
    """The smoothed loss and the plain negative log-likelihood, each summed over real tokens.

    The target distribution has 1 - ε on the right class and ε / (V - 1) on each other (as in
    tensor2tensor and fairseq; torch's ``label_smoothing`` spreads ε over all V). With ε_i short
    for ε / (V - 1), its cross entropy is (1 - ε - ε_i) · -log p(y) + ε_i · Σ_v -log p(v).

    Args:
        log_probs: [..., V], in nats, of any float type; summed in float32 at least.
        target: [...], class numbers; those equal to ``padding_idx`` count for nothing.
        epsilon: ε_ls, in [0, 1).
    """
    if log_probs.dtype in (torch.float16, torch.bfloat16):
        log_probs = log_probs.float()
    pads = target.eq(padding_idx)
    nll = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # [...]
    nll = nll.masked_fill(pads, 0.0).sum()
    everywhere = -log_probs.sum(-1).masked_fill(pads, 0.0).sum()
    share = epsilon / (log_probs.size(-1) - 1)  # ε_i
    return (1.0 - epsilon - share) * nll + share * everywhere, nll


@register_criterion(
    "vaswani_label_smoothed_cross_entropy", dataclass=VaswaniLabelSmoothedCrossEntropyConfig
)
class VaswaniLabelSmoothedCrossEntropy(FairseqCriterion):
    """The loss of section 5.4 for any fairseq translation model.

    Logs ``loss`` and ``nll_loss`` in bits per token, ``ppl`` = 2^nll_loss and, in validation,
    ``accuracy``: the percentage of tokens whose most probable class is the right one.

    Raises:
        ConfigError: ``label_smoothing`` outside [0, 1).
    """

    def __init__(self, task: Any, sentence_avg: bool, label_smoothing: float) -> None:
        super().__init__(task)
        if not 0.0 <= label_smoothing < 1.0:
            raise ConfigError(
                f"--label-smoothing must be in [0, 1), not {label_smoothing}: it is the "
                "probability that the wrong classes share (0.1 in the paper)"
            )
        self.sentence_avg = sentence_avg
        self.label_smoothing = label_smoothing

    def forward(
        self, model: torch.nn.Module, sample: Dict[str, Any]
    ) -> Tuple[Tensor, int, LoggingOutput]:
        """The summed loss of a batch, the number to divide its gradient by, and what to log.

        The model normalises its own output: not every model's is a vector of logits. fairseq's
        log-softmax gives float32 whatever the type of the logits.
        """
        net_output = model(**sample["net_input"])
        log_probs = model.get_normalized_probs(net_output, log_probs=True)  # [B, T, V]
        target = model.get_targets(sample, net_output)  # [B, T]
        loss, nll = label_smoothed_loss(log_probs, target, self.label_smoothing, self.padding_idx)
        sentences = target.size(0)
        sample_size = sentences if self.sentence_avg else sample["ntokens"]
        # Numbers and one-element tensors only: fairseq adds these up over processes by itself.
        log: LoggingOutput = {
            "loss": loss.detach(),
            "nll_loss": nll.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sample_size,
        }
        if not model.training:  # in training it would cost an argmax over the vocabulary
            real = target.ne(self.padding_idx)
            log["n_correct"] = (log_probs.argmax(-1).eq(target) & real).sum()
            log["total"] = real.sum()
        return loss, sample_size, log

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the averages over batches and processes.

        Everything is a Python number before it is logged: what the meters hold is saved in
        checkpoints, where foreign types make loading unsafe.
        """

        def total(key: str) -> float:
            return float(sum(log.get(key, 0) for log in logging_outputs))

        bits = 1 / math.log(2)
        sample_size, tokens = total("sample_size"), total("ntokens")
        metrics.log_scalar("loss", total("loss") / sample_size * bits, sample_size, round=3)
        metrics.log_scalar("nll_loss", total("nll_loss") / tokens * bits, tokens, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        if total("total") > 0:
            accuracy = 100 * total("n_correct") / total("total")
            metrics.log_scalar("accuracy", accuracy, total("total"), round=3)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: fairseq may add the outputs of all processes in one all-reduce."""
        return True
