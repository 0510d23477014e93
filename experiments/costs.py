"""What a training costs: operations, counted, and seconds of the processor, of one update."""

import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairseq import tasks
from fairseq.modules import ConvTBC
from omegaconf import DictConfig
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vaswani.configuration.fairseq_config import fairseq_form
from vaswani.data.read_data_bin import data_options

BATCHES = 8
"""Batches of the training that are measured, evenly spread over an epoch."""
ROUNDS = 5
"""Times that each training is measured, in turn with the others: the median counts."""


class Cost(NamedTuple):
    """Of the forward and backward passes of one update, on average.

    Attributes:
        operations: by count
        seconds: of the processor
        batches: passes in each direction, fairseq's ``update_freq``
    """

    operations: float
    seconds: float
    batches: int


def operations(model: Any, batch: dict[str, Any]) -> int:
    """Count the operations of one forward and one backward pass.

    Operations are multiplications and additions in products.
    """
    unseen = [module for module in model.modules() if isinstance(module, nn.RNNBase | ConvTBC)]
    added = 0
    before = 0

    def begin(module: Any, inputs: Any) -> None:
        nonlocal before
        before = counter.get_total_flops()

    def end(module: Any, inputs: Any, _: Any) -> None:
        nonlocal added
        positions = inputs[0].data.shape[:-1].numel()  # of a PackedSequence, too
        weights = sum(p.numel() for p in module.parameters() if p.dim() > 1)
        counted = counter.get_total_flops() - before  # some of torch's cells are products to it
        added += 3 * (2 * positions * weights - counted)

    hooks = [module.register_forward_pre_hook(begin) for module in unseen]
    hooks += [module.register_forward_hook(end) for module in unseen]
    with FlopCounterMode(display=False) as counter:
        model(**batch)[0].sum().backward()
    for hook in hooks:
        hook.remove()
    return int(counter.get_total_flops()) + added


def seconds_of_pass(model: Any, batch: dict[str, Any]) -> float:
    """Return the processor's seconds for one forward and one backward pass."""
    begun = time.process_time()
    model(**batch)[0].sum().backward()
    return time.process_time() - begun


class Passes(NamedTuple):
    """What the passes of a training are measured with.

    Attributes:
        model: computes as it is trained
        inputs: of some batches
        operations: of a batch, on average
        batches: see :class:`Cost`
        parameters: the model's, in all and outside tables
    """

    model: Any
    inputs: list[dict[str, Any]]
    operations: float
    batches: int
    parameters: dict[str, int]

    def seconds(self) -> float:
        """Return the processor's seconds for a forward and backward pass, the mean over batches."""
        return statistics.mean(seconds_of_pass(self.model, batch) for batch in self.inputs)


def passes_of(config: DictConfig) -> Passes:
    """Return the passes of a training, which need no run.

    Args:
        config: of the training, complete; its data are prepared
    """
    form = fairseq_form(config, data_options(config)[0])
    task = tasks.setup_task(form.task)
    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=form.dataset.max_tokens, seed=1
    )
    batches = list(iterator.next_epoch_itr(shuffle=False))
    inputs = [batch["net_input"] for batch in batches[:: max(1, len(batches) // BATCHES)]]
    fast = task.build_model(form.model).train()
    if hasattr(form.model, "attention_impl"):  # torch does not see into ours for speed
        form.model.attention_impl = "readable"
    readable = task.build_model(form.model).train()
    return Passes(
        model=fast,
        inputs=inputs,
        operations=statistics.mean(operations(readable, batch) for batch in inputs),
        batches=config.optimization.update_freq[-1],
        parameters=parameters_of(readable),
    )


def parameters_of(model: nn.Module) -> dict[str, int]:
    """Count a model's parameters, in all and outside tables."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    in_tables = {parameter for table in tables for parameter in table.parameters()}
    sizes = {parameter: parameter.numel() for parameter in model.parameters()}
    outside = sum(size for parameter, size in sizes.items() if parameter not in in_tables)
    return {"parameters": sum(sizes.values()), "parameters outside embeddings": outside}


def costs_of(trainings: Sequence[Passes]) -> list[Cost]:
    """Measure updates of all trainings in turn (A B C A B C …), so that all share a slow minute."""
    rounds = [[training.seconds() for training in trainings] for _ in range(ROUNDS)]
    costs = []
    for training, seconds in zip(trainings, zip(*rounds, strict=True), strict=True):
        each = training.batches
        costs.append(Cost(each * training.operations, each * statistics.median(seconds), each))
    return costs
