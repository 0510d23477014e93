"""How the cost of a training step grows with length, batch, layers and vocabulary."""

from typing import Any

from benchmarks.systems import SIZES
from benchmarks.table import Row
from benchmarks.worker import Worker

START = {"length": 32, "batch": 16, "layers": 3, "vocabulary": 8_000}
"""The sizes while another one varies."""
VARIED: dict[str, list[int]] = {
    "length": [16, 32, 64, 128, 256, 512, 1024],
    "batch": [4, 8, 16, 32, 64],
    "layers": [1, 2, 3, 6],
    "vocabulary": [2_000, 8_000, 16_000, 32_000],
}
AT_MOST = 4_096
"""The most positions in a batch: longer sentences make it hold fewer sentences."""


class Steps:
    """Forward and backward passes of one model on random tokens, in this process.

    Args:
        model: ``fairseq`` or ``ours``
        device: ``cpu`` or ``cuda``
    """

    def __init__(self, model: str, device: str) -> None:
        from vaswani.configuration.plugin import load_plugin

        load_plugin()
        self.model = model
        self.device = device

    def seconds(self, sizes: dict[str, int], times: int) -> float:
        """Return the median seconds of one pass at these sizes, after one warm-up pass."""
        import statistics

        from benchmarks.machine import seconds

        step = self.step(sizes)
        step()
        return statistics.median(seconds(step, self.device) for _ in range(times))

    def step(self, sizes: dict[str, int]) -> Any:
        """Return a function that does one pass: loss and gradients of a batch, without the
        optimizer.
        """
        import torch

        task = task_with(sizes["vocabulary"])
        torch.manual_seed(1)
        model, criterion = build_model_and_loss(self.model, sizes["layers"], task)
        model.to(self.device).train()
        batch = max(1, min(sizes["batch"], AT_MOST // sizes["length"]))
        tokens = torch.randint(4, sizes["vocabulary"], (batch, sizes["length"] + 1))
        tokens = tokens.to(self.device)
        lengths = torch.full((batch,), sizes["length"], device=self.device)
        sample = {
            "net_input": {
                "src_tokens": tokens[:, 1:],
                "src_lengths": lengths,
                "prev_output_tokens": tokens[:, :-1],
            },
            "target": tokens[:, 1:].contiguous(),
            "ntokens": batch * sizes["length"],
            "nsentences": batch,
        }

        def step() -> None:
            model.zero_grad()
            loss, _, _ = criterion(model, sample)
            loss.backward()

        return step


def task_with(vocabulary: int) -> Any:
    """Build a task without data, with a dictionary of this many types."""
    from argparse import Namespace

    from fairseq.data import Dictionary

    words = Dictionary()
    for number in range(vocabulary - len(words)):
        words.add_symbol(str(number))
    config = Namespace(left_pad_target=False)
    return Namespace(
        source_dictionary=words, target_dictionary=words, target_dict=words, cfg=config
    )


def build_model_and_loss(model: str, layers: int, task: Any) -> tuple[Any, Any]:
    """Build a model of the ``small`` size with this many layers, and its own loss."""
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
    from fairseq.models.transformer import TransformerConfig, TransformerModelBase

    from transformer_plugin.config import VaswaniTransformerConfig
    from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy
    from transformer_plugin.model import VaswaniTransformerModel

    sizes = {**SIZES["small"], "layers": layers}
    if model == "ours":
        config: Any = VaswaniTransformerConfig(max_source_positions=2048, max_target_positions=2048)
        for side in ("encoder", "decoder"):
            for name, value in sizes.items():
                setattr(config, f"{side}_{name}", value)
        criterion: Any = VaswaniLabelSmoothedCrossEntropy(task, False, 0.1)
        return VaswaniTransformerModel.build_model(config, task), criterion
    config = TransformerConfig()
    config.share_all_embeddings = True
    config.max_source_positions = config.max_target_positions = 2048
    for side in (config.encoder, config.decoder):
        for name, value in sizes.items():
            setattr(side, name, value)
    config.decoder.input_dim = config.decoder.output_dim = sizes["embed_dim"]
    criterion = LabelSmoothedCrossEntropyCriterion(task, False, 0.1)
    return TransformerModelBase.build_model(config, task), criterion


def run(device: str, full: bool, threads: int) -> dict[str, Any]:
    """Measure the times of a training step, ours and fairseq's, varying one size at a time."""
    environment = {"OMP_NUM_THREADS": str(threads)}
    workers = {}
    for name in ("fairseq", "ours"):
        workers[name] = Worker(Steps, {"model": name, "device": device}, environment)
    rows: list[Row] = []
    for what, values in VARIED.items():
        for value in values if full else values[: 6 if what == "length" else 4]:
            sizes = {**START, what: value}
            batch = max(1, min(sizes["batch"], AT_MOST // sizes["length"]))
            row: Row = {"varied": what, "value": value, "tokens": batch * sizes["length"]}
            for name, worker in workers.items():
                row[f"{name}, ms"] = 1000 * worker.ask("seconds", sizes, 5 if full else 3)
            row["ratio"] = row["fairseq, ms"] / row["ours, ms"]
            row["ours, µs per token"] = 1000 * row["ours, ms"] / row["tokens"]
            rows.append(row)
    for worker in workers.values():
        worker.end()
    return {"rows": rows, "fixed": START}


def picture(rows: list[Row], path: str) -> None:
    """Draw the rows: one panel for each varied size, with milliseconds against it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys(row["varied"] for row in rows))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4 * len(panels), 3.2))
    for axis, what in zip(axes, panels, strict=True):
        of_panel = [row for row in rows if row["varied"] == what]
        values = [row["value"] for row in of_panel]
        per_token = what in ("length", "batch")
        for name in ("fairseq", "ours"):
            milliseconds = []
            for row in of_panel:
                units = row["tokens"] if per_token else 1
                milliseconds.append(row[f"{name}, ms"] / units)
            axis.plot(values, milliseconds, marker="o", label=name)
        axis.set_xlabel(what)
        axis.set_ylabel("ms per token" if per_token else "ms per step")
        axis.set_xscale("log", base=2)
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
