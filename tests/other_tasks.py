"""Trains, resumes and decodes with tasks that are not ours, with or without the plugin.

    python -m tests.other_tasks DATA FOLDER

does it without, and prints as JSON what ``run_all`` returns; integration/test_other_tasks.py
compares. Two things that keep fairseq from decoding with its own models are remedied there, since
the plugin is not there to do it (``make_it_work``).
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from tests import stock

ON_CPU = ["--cpu", "--num-workers", "0", "--no-progress-bar"]
# fairseq-fixed drops a last batch whose size is not a multiple of 8; the plugin keeps it
WHOLE = ["--required-batch-size-multiple", "1"]
TRAINING = [*ON_CPU, *WHOLE, "--optimizer", "adam", "--lr", "0.001", "--max-tokens", "300"]
TRAINING += ["--log-format", "json", "--log-interval", "1", "--no-epoch-checkpoints"]
TRAINING += ["--save-interval-updates", "3", "--update-epoch-batch-itr", "True"]
SIZES = ["--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16"]
SIZES += ["--encoder-attention-heads", "2"]
SIZES += [option.replace("encoder", "decoder") for option in SIZES]

# a sentence in each sample: they have 4 to 7 tokens ("eos" fails with numpy 2)
LANGUAGE_MODEL = ["--task", "language_modeling", "--tokens-per-sample", "7"]
LANGUAGE_MODEL += ["--sample-break-mode", "complete"]
ROBERTA = ["--arch", "roberta_base", *SIZES[: len(SIZES) // 2], "--max-positions", "24"]
MASKED = ["--task", "masked_lm", "--tokens-per-sample", "24", "--criterion", "masked_lm"]
MASKED += ["--sample-break-mode", "complete"]
CLASSES = ["--task", "sentence_prediction", "--num-classes", "2", "--init-token", "0"]
CLASSES += ["--criterion", "sentence_prediction"]
NAMES = [
    *("language model, trained", "language model, resumed"),
    "language model, perplexity",
    *("masked, trained", "masked, resumed", "classes, trained", "classes, resumed"),
]
"""What ``run_all`` returns something for."""


def train(data: Path, folder: Path, updates: int, *flags: str) -> Dict[str, Any]:
    """fairseq-train; returns the numbers that it logged, without times, and what it has learned."""
    from fairseq_cli import train as command

    arguments = [str(data), *TRAINING, "--save-dir", str(folder), "--max-update", str(updates)]
    parser = options.get_training_parser()
    with stock.fresh_process(), stock.logged() as lines:
        args = options.parse_args_and_arch(parser, input_args=[*arguments, *flags])
        command.main(convert_namespace_to_omegaconf(args))
    logged = [json.loads(line) for line in lines if line.startswith('{"')]
    numbers = [{n: v for n, v in record.items() if "loss" in n} for record in logged]
    learned = checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_last.pt"))["model"]
    digest = hashlib.sha256()
    for name in sorted(name for name in learned if name.endswith(("weight", "bias"))):
        digest.update(learned[name].numpy().tobytes())
    return {"logged": numbers, "parameters": digest.hexdigest()}


def perplexity(data: Path, path: str, *flags: str) -> List[str]:
    """fairseq-eval-lm; returns its loss and perplexity."""
    from fairseq_cli import eval_lm as command

    arguments = [str(data), *ON_CPU, *WHOLE, "--path", path, *flags]
    args = options.parse_args_and_arch(options.get_eval_lm_parser(), input_args=arguments)
    with stock.fresh_process(), stock.logged() as lines:
        command.main(convert_namespace_to_omegaconf(args))
    return [line for line in lines if line.startswith("Loss")]


def run_all(data: Path, folder: Path, *plugin: str) -> Dict[str, Any]:
    """What each command gave, by its name.

    Args:
        data: the folders ``text`` and ``classes``, binarised
        folder: where checkpoints go
        plugin: flags that load it, or none
    """
    found: Dict[str, Any] = {}

    def trained(name: str, data: Path, *flags: str, start: Sequence[str] = ()) -> str:
        for kind, updates, more in (("trained", 3, start), ("resumed", 6, ())):
            found[f"{name}, {kind}"] = train(data, folder / name, updates, *flags, *more, *plugin)
        return str(folder / name / "checkpoint_last.pt")

    flags = ["--arch", "transformer_lm", *SIZES[len(SIZES) // 2 :], "--criterion", "cross_entropy"]
    path = trained("language model", data / "text", *LANGUAGE_MODEL, *flags)
    found["language model, perplexity"] = perplexity(
        data / "text", path, *LANGUAGE_MODEL, "--batch-size", "8", *plugin
    )
    reset = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--restore-file"]
    path = trained("masked", data / "text", *MASKED, *ROBERTA)
    trained("classes", data / "classes", *CLASSES, *ROBERTA, start=[*reset, path])
    return found


def make_it_work() -> None:
    """The least that lets fairseq read and decode its own models on both stacks.

    torch 2.6 and later refuse the Namespace in its checkpoints; with torch 2, fairseq 0.12.2 ends
    in "Mask Type should be defined", from a fused encoder layer.
    """
    if hasattr(torch.serialization, "add_safe_globals"):  # torch ≥ 2.4
        torch.serialization.add_safe_globals([argparse.Namespace])
    original = TransformerEncoderLayerBase.__init__

    def without_fused_layer(layer: Any, *args: Any, **kwargs: Any) -> None:
        original(layer, *args, **kwargs)
        layer.can_use_fastpath = False

    TransformerEncoderLayerBase.__init__ = without_fused_layer


def main(arguments: Sequence[str]) -> None:
    """Run all without the plugin in a folder of data."""
    make_it_work()
    found = run_all(Path(arguments[0]), Path(arguments[1]))
    assert "transformer_plugin" not in sys.modules
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
