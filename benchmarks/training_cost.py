"""What a training costs: operations, counted, and seconds of the processor, of one update."""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.experiment.run_record import last_checkpoint

RECURRENT = Path(__file__).parents[1] / "examples" / "recurrent"
"""The user-dir of some of the systems."""
BATCHES = 8
"""Batches of the training that are measured, evenly spread over an epoch."""


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
    """Of one forward and one backward pass: multiplications and additions in products."""
    import torch
    from fairseq.modules import ConvTBC
    from torch.utils.flop_counter import FlopCounterMode

    unseen = [m for m in model.modules() if isinstance(m, (torch.nn.RNNBase, ConvTBC))]
    added, before = 0, 0

    def begin(module: Any, inputs: Any) -> None:
        nonlocal before
        before = counter.get_total_flops()

    def end(module: Any, inputs: Any, _: Any) -> None:
        nonlocal added
        positions = inputs[0].data.shape[:-1].numel()  # of a PackedSequence, too
        weights = sum(p.numel() for p in module.parameters() if p.dim() > 1)
        seen = counter.get_total_flops() - before  # some of torch's cells are products to it
        added += 3 * (2 * positions * weights - seen)

    hooks = [module.register_forward_pre_hook(begin) for module in unseen]
    hooks += [module.register_forward_hook(end) for module in unseen]
    with FlopCounterMode(display=False) as counter:
        model(**batch)[0].sum().backward()
    for hook in hooks:
        hook.remove()
    return int(counter.get_total_flops()) + added


def cost_of(run: Path) -> tuple[Cost, dict[str, int]]:
    """What an update of a training costs, and the model's parameters, in all and outside tables."""
    import torch

    from vaswani.experiment.plugin import load_plugin

    load_plugin()
    from fairseq import checkpoint_utils, utils

    utils.import_user_module(argparse.Namespace(user_dir=str(RECURRENT)))
    path = str(last_checkpoint(run))
    fast, cfg, task = checkpoint_utils.load_model_ensemble_and_task([path])
    task.load_dataset("train")
    batches = task.get_batch_iterator(
        task.dataset("train"), max_tokens=cfg.dataset.max_tokens, seed=1
    ).next_epoch_itr(shuffle=False)
    chosen = list(batches)[:: max(1, len(batches) // BATCHES)]
    if hasattr(cfg.model, "attention_impl"):  # torch does not see into ours for speed
        cfg.model.attention_impl = "readable"
    readable = task.build_model(cfg.model)
    counts, seconds = [], []
    for batch in (batch["net_input"] for batch in chosen):
        counts.append(operations(readable.train(), batch))
        begun = time.process_time()
        fast[0].train()(**batch)[0].sum().backward()
        seconds.append(time.process_time() - begun)
    tables = {
        parameter
        for module in readable.modules()
        if isinstance(module, torch.nn.Embedding)
        for parameter in module.parameters()
    }
    parameters = {
        "parameters": sum(p.numel() for p in readable.parameters()),
        "parameters outside embeddings": sum(
            p.numel() for p in readable.parameters() if p not in tables
        ),
    }
    batches = cfg.optimization.update_freq[-1]
    cost = Cost(batches * statistics.mean(counts), batches * statistics.mean(seconds), batches)
    return cost, parameters


def sustained() -> float:
    """Operations per second of the processor's time: the best of products of square matrices."""
    import torch

    torch.set_num_threads(1)
    left, right = torch.randn(2, 1024, 1024)
    best = float("inf")
    for _ in range(20):
        begun = time.process_time()
        left @ right
        best = min(best, time.process_time() - begun)
    return 2 * 1024**3 / best
