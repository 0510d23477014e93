"""Time and memory of the output projection and label-smoothed loss, without the rest of the model.

The paper's base sizes: V = 37,000 classes, d_model = 512, 4,096 real tokens. fairseq applies its
log-softmax and loss function to plain logits; we use ``projected_loss``. Both end with the
gradients of features and matrix, and both keep freed memory (``fast/malloc.py`` of the plugin).
"""

import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

from benchmarks.machine import precisions
from benchmarks.table import Row, median_and_range
from benchmarks.worker import Worker
from vaswani.common.environment import peak_megabytes

TOKENS, WIDTH, CLASSES = 4096, 512, 37000
EPSILON, PAD = 0.1, 1


class Loss:
    """Forward and backward pass of one of the two systems, in this process.

    Args:
        system: ``fairseq`` or ``ours``
        precision: ``fp32``, or ``bf16`` for products under autocast
        device: ``cpu`` or ``cuda``
        rows: ``product_rows`` to use instead of this processor's
    """

    def __init__(
        self, system: str, precision: str, device: str, rows: dict[str, Any] | None = None
    ) -> None:
        import torch

        from vaswani_transformer.fast import chunked_loss
        from vaswani_transformer.fast.malloc import keep_freed_memory

        keep_freed_memory()
        if rows:
            choices = chunked_loss.choices_for(device)._replace(**rows)
            chunked_loss.choices_for = lambda device_type: choices  # type: ignore[assignment]
        self.device = device
        self.precision = precision
        self.compute: Callable[..., Any] = fairseqs_loss if system == "fairseq" else our_loss
        generator = torch.Generator().manual_seed(1)
        self.features = torch.randn(TOKENS, WIDTH, generator=generator).to(device).requires_grad_()
        weight = torch.randn(CLASSES, WIDTH, generator=generator).mul_(WIDTH**-0.5)
        self.weight = weight.to(device).requires_grad_()
        self.target = torch.randint(2, CLASSES, (TOKENS,), generator=generator).to(device)
        # what the first product of a process allocates counts for neither system
        (self.features[:8] @ self.weight[:8].t()).sum().backward()
        self.features.grad = self.weight.grad = None
        self.before = peak_megabytes(device)

    def time_pass(self) -> dict[str, float]:
        """Run one pass and measure it.

        Returns:
            its seconds, its loss in nats per token, and the peak memory so far beyond that of the
                inputs, in MB
        """
        import torch

        from benchmarks.machine import seconds

        losses: list[Any] = []

        def work() -> None:
            self.features.grad = self.weight.grad = None
            use = self.precision == "bf16"
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=use):
                loss = self.compute(self.features, self.weight, self.target)
            loss.backward()
            losses.append(loss.detach())

        return {
            "seconds": seconds(work, self.device),
            "loss": float(losses[0]) / TOKENS,
            "megabytes": peak_megabytes(self.device) - self.before,
        }


def fairseqs_loss(features: Any, weight: Any, target: Any) -> Any:
    """Compute the loss as fairseq's model, ``get_normalized_probs`` and criterion do in turn."""
    from fairseq import utils
    from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
    from torch.nn.functional import linear

    log_probs = utils.log_softmax(linear(features, weight), dim=-1)
    return label_smoothed_nll_loss(log_probs, target, EPSILON, ignore_index=PAD)[0]


def our_loss(features: Any, weight: Any, target: Any) -> Any:
    """Compute the loss as our criterion does inside the model's forward."""
    from vaswani_transformer.fast.chunked_loss import projected_loss

    return projected_loss(features, weight, target, EPSILON).loss


def run(device: str, full: bool) -> dict[str, Any]:
    """Measure both systems, in fp32 and, if the device has units for it, under bf16 autocast.

    They take turns, in separate processes.

    Args:
        device: ``cpu`` or ``cuda``
        full: 10 rounds instead of 3, and ours with slices other than those of ``processor.py``
    """
    usable = [precision for precision in precisions(device) if precision != "fp16"]
    systems = [(system, precision) for precision in usable for system in ("fairseq", "ours")]
    rounds: dict[Any, list[dict[str, float]]] = {key: [] for key in systems}
    workers = {}
    for system, precision in systems:
        options = {"system": system, "precision": precision, "device": device}
        workers[system, precision] = Worker(Loss, options)
    for number in range(11 if full else 4):
        for key, worker in workers.items():
            measured = worker.ask("time_pass")
            if number:  # the first round warms up
                rounds[key].append(measured)
    for worker in workers.values():
        worker.end()
    rows = [row(key, rounds) for key in systems]
    if full:
        rows += sweep(device, usable)
    sizes = {"tokens": TOKENS, "width": WIDTH, "classes": CLASSES}
    return {"rows": rows, "rounds": [list(map(list, rounds)), list(rounds.values())], **sizes}


def row(key: Any, rounds: dict[Any, list[dict[str, float]]]) -> Row:
    """Return a system's row: time and memory, also relative to fairseq's in its precision."""
    system, precision = key
    own = rounds[key]
    theirs = rounds["fairseq", precision]
    pairs = zip(own, theirs, strict=True)
    faster = [their_round["seconds"] / our_round["seconds"] for our_round, their_round in pairs]
    memory = max(m["megabytes"] for m in own)
    return {
        "system": f"{system}, {precision}",
        "ms": median_and_range([1000 * m["seconds"] for m in own]),
        "times as fast": median_and_range(faster),
        "memory above its inputs, MB": memory,
        "share of fairseq's memory": memory / max(m["megabytes"] for m in theirs),
        "loss, nats per token": round(statistics.median(m["loss"] for m in own), 5),
    }


def sweep(device: str, usable: list[str]) -> list[Row]:
    """Measure our loss with slices other than those that ``processor.py`` chooses."""
    rows: list[Row] = []
    for precision, many in product(usable, (256, 512, 1024, 2048)):
        slices = {"product_rows": many}
        options = {"system": "ours", "precision": precision, "device": device, "rows": slices}
        worker = Worker(Loss, options)
        worker.ask("time_pass")  # warms up
        milliseconds = [1000 * worker.ask("time_pass")["seconds"] for _ in range(3)]
        worker.end()
        spread = median_and_range(milliseconds)
        rows.append({"system": f"ours, {precision}, {many} rows", "ms": spread})
    return rows
