"""Runs fairseq's commands in the tests' process (starting a new process takes seconds each time).

Between commands, fairseq keeps state that a new process would not have: logging handlers, meters,
the best score so far. ``fresh_process`` clears it before a command and restores it afterwards.
"""

import argparse
import contextlib
import copy
import importlib.util
import io
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig, OmegaConf

#: found, not imported: that changes fairseq
PLUGIN = str(Path(importlib.util.find_spec("transformer_plugin").origin).parent)
OURS = [
    *("--criterion", "vaswani_label_smoothed_cross_entropy"),
    *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9"),
    *("--lr-scheduler", "vaswani_inverse_sqrt"),
]
"""The paper's loss, optimizer and schedule, as flags."""

SMALL = ["--arch", "vaswani_transformer_tiny"]
for _side in ("encoder", "decoder"):
    SMALL += [f"--{_side}-layers", "2", f"--{_side}-embed-dim", "32"]
    SMALL += [f"--{_side}-ffn-embed-dim", "64", f"--{_side}-attention-heads", "4"]
"""Our tiny preset made smaller still, as flags."""

CHOICES = ["task", "arch", "criterion", "optimizer", "lr_scheduler", "scoring", "bpe", "tokenizer"]
CHOICES += ["update_epoch_batch_itr"]  # no component, but hydra makes a truth value of it
_first: dict[str, DictConfig] = {}  # one per combination of CHOICES; see configuration()

SEARCH = ["--beam", "4", "--max-len-b", "20"]
"""fairseq's limit is 200, which hardly trained models reach with every sentence."""

EVERY = ["--required-batch-size-multiple", "1"]
"""Without this fairseq-fixed leaves out the last sentences, except with our task."""

ON_CPU = ["--user-dir", PLUGIN, "--cpu", "--num-workers", "0", "--no-progress-bar"]


@contextlib.contextmanager
def fresh_process() -> Iterator[None]:
    """Clear what fairseq remembers in a process, and leave logging as it was."""
    from fairseq import checkpoint_utils
    from fairseq.logging import metrics, progress_bar
    from fairseq_cli import train

    metrics.reset()
    train.should_stop_early.__dict__.clear()  # the best score and the patience so far
    checkpoint_utils.save_checkpoint.__dict__.clear()  # the best score so far
    root = logging.getLogger()
    handlers = list(root.handlers)
    level = root.level
    try:
        yield
    finally:
        root.handlers = handlers
        root.level = level
        metrics.reset()
        for writer in (progress_bar._tensorboard_writers or {}).values():
            writer.close()
        if progress_bar._tensorboard_writers:
            progress_bar._tensorboard_writers.clear()


def vaswani(*arguments: object) -> int:
    """Run ``vaswani ARGUMENTS`` as if in a new process, and return the exit code."""
    from vaswani import cli

    with fresh_process():
        return cli.main([str(argument) for argument in arguments])


def train(
    data: Path,
    save_dir: Path,
    *extra: str,
    model: Sequence[str] = SMALL,
    recipe: Sequence[str] = (*OURS, "--warmup-updates", "50"),
) -> list[str]:
    """Run fairseq-train with our loss and schedule, and return what it logged, line by line.

    Flags in ``extra`` override those given here.
    """
    from fairseq import options
    from fairseq_cli import train as command

    arguments = [str(data), *ON_CPU, *recipe, *model, "--max-tokens", "500"]
    arguments += ["--save-dir", str(save_dir), *extra]
    parser = options.get_training_parser()
    with fresh_process(), logged() as lines:
        args = options.parse_args_and_arch(parser, input_args=arguments)
        command.main(configuration(args))
    return lines


def generate(data: Path, path: str, *extra: str) -> list[str]:
    """Run fairseq-generate, and return the lines of its standard output."""
    from fairseq import options
    from fairseq_cli import generate as command

    arguments = [str(data), *ON_CPU, "--path", str(path), *SEARCH, *EVERY, *extra]
    args = options.parse_args_and_arch(options.get_generation_parser(), input_args=arguments)
    return printed_by(command.main, configuration(args))


def interactive(data: Path, path: str, text: str, *extra: str) -> list[str]:
    """Run fairseq-interactive with ``text`` as its input, and return the lines of its output."""
    from fairseq import options
    from fairseq_cli import interactive as command

    arguments = [str(data), *ON_CPU, "--path", str(path), *SEARCH, *EVERY, *extra]
    parser = options.get_interactive_generation_parser()
    args = options.parse_args_and_arch(parser, input_args=arguments)
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        return printed_by(command.main, configuration(args))
    finally:
        sys.stdin = before


def configuration(args: argparse.Namespace) -> DictConfig:
    """Convert arguments as ``convert_namespace_to_omegaconf``, but use hydra only once.

    hydra makes the first configuration for each choice from fairseq's registries; the others are
    copies of that with the values of ``args``. A model's options that were not given are missing in
    ``args``, and the same are in both. A model without a dataclass has no section for its values.
    """
    choices = [str(getattr(args, name, None)) for name in CHOICES]
    kind = " ".join([*choices, *sorted(vars(args))])
    if kind not in _first:
        _first[kind] = convert_namespace_to_omegaconf(args)
    cfg = copy.deepcopy(_first[kind])
    if isinstance(cfg.model, argparse.Namespace):
        return convert_namespace_to_omegaconf(args)
    OmegaConf.set_struct(cfg, False)
    for section in cfg.values():
        for name in section if isinstance(section, DictConfig) else []:
            if hasattr(args, name) and name not in CHOICES:
                section[name] = getattr(args, name)
    OmegaConf.set_struct(cfg, True)
    return cfg


def printed_by(command: Any, *args: Any) -> list[str]:
    """Return the lines that a command prints to its standard output."""
    output = io.StringIO()
    with fresh_process(), contextlib.redirect_stdout(output):
        command(*args)
    return output.getvalue().splitlines()


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Collect the messages of fairseq's loggers, in a list that grows as they arrive."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend(record.getMessage().splitlines())

    loggers = [logging.getLogger(n) for n in ("fairseq", "fairseq_cli", "train", "valid", "test")]
    loggers.append(logging.getLogger("transformer_plugin"))
    listener = Listener()
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield lines
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(listener)
            logger.setLevel(level)
            logger.propagate = True


def results(lines: Sequence[str], letter: str) -> dict[int, list[str]]:
    """Return result lines such as ``H-7 <tab> score <tab> text``: sentence → its other columns.

    With several hypotheses (``--nbest``), the columns of all follow one another.
    """
    found: dict[int, list[str]] = {}
    for line in lines:
        name, _, rest = line.partition("\t")
        if name.startswith(f"{letter}-"):
            found.setdefault(int(name[2:]), []).extend(rest.split("\t"))
    return found


def parameters(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Return the parameters in a checkpoint."""
    from transformer_plugin.checkpoints import load_checkpoint

    return load_checkpoint(checkpoint)["model"]


def largest_difference(one: Path, other: Path) -> tuple[float, str]:
    """Return the largest absolute difference between two checkpoints' parameters, and its name."""
    first, second = parameters(one), parameters(other)
    assert first.keys() == second.keys()
    return max(((first[n] - second[n]).abs().max().item(), n) for n in first)
