"""What fairseq should not accept, or refuses unclearly, refused in one sentence."""

import functools
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Sequence

import hydra
import torch
from fairseq import models
from fairseq.trainer import Trainer
from hydra._internal import utils as hydra_utils

from ..checkpoints import CheckpointError
from ..config import ConfigError, check_fp16_device, check_precision
from .scope import TASK, is_known, is_ours

#: on each side; the deepest one published has 500
MOST_LAYERS = 1000


def apply() -> None:
    """Install this file's workarounds."""
    _name_unknown_models()
    _refuse_precisions()
    _let_hydra_say_why()


def _name_unknown_models() -> None:
    """A model that is not registered is named in one sentence.

    All versions: "Replacement index 1 out of range", from formatting the message.
    """
    original = models.build_model

    @functools.wraps(original)
    def build_model(cfg: Any, task: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and name not in models.ARCH_MODEL_REGISTRY and name not in models.MODEL_REGISTRY:
            raise CheckpointError(
                f"No model {name!r} is registered; correct model._name (--arch), or, for a "
                "checkpoint of another plugin, add the --user-dir that it was trained with."
            )
        if is_known(name):
            refuse_huge(cfg)
        return original(cfg, task, *args, **kwargs)

    models.build_model = build_model


def refuse_huge(cfg: Any) -> None:
    """Raise ConfigError, before memory is taken, for a model that this machine cannot hold.

    All versions build it layer by layer until the system kills the process. ``cfg`` is the section
    of a model, ours or fairseq's, in the configuration of a command or of a checkpoint.
    """

    def size(name: str) -> int:
        value = getattr(cfg, name, None)
        return value if isinstance(value, int) else 0

    weights = 0
    for side, blocks in (("encoder", 1), ("decoder", 2)):
        layers, d, inner = (size(f"{side}_{n}") for n in ("layers", "embed_dim", "ffn_embed_dim"))
        if layers > MOST_LAYERS:
            raise ConfigError(
                f"--{side}-layers is {layers:,}, and at most {MOST_LAYERS:,} are allowed: lower it"
            )
        heads = size(f"{side}_attention_heads")
        widths = sum(heads * size(n) or d for n in ("head_key_dim", "head_value_dim"))
        weights += layers * d * (2 * blocks * widths + 2 * inner)
        if getattr(cfg, f"{side}_learned_pos", False):
            weights += d * size(f"max_{'source' if side == 'encoder' else 'target'}_positions")
    there = machine_memory()
    on_paper = torch.empty(0).device.type == "meta"  # 'vaswani plan' takes no memory
    wrap = sys.modules.get("fairscale.nn.wrap.auto_wrap")
    sharded = wrap is not None and wrap.ConfigAutoWrap.in_autowrap_context
    if 4 * weights > there and not on_paper and not sharded:
        raise ConfigError(
            f"the model would have over {weights:,} weights, {4 * weights / 1e9:,.0f} GB, and this "
            f"machine has {there / 1e9:,.0f} GB of memory: lower --encoder-layers, "
            "--encoder-embed-dim, --encoder-ffn-embed-dim or those of the decoder"
        )


def machine_memory() -> int:
    """The most memory this process may have, in bytes: the machine's or its container's."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or one without a limit
        return machine


def _refuse_precisions() -> None:
    """16-bit training that fails, or is not what it seems to be, is refused (all versions)."""
    original = Trainer.__init__

    @functools.wraps(original)
    def __init__(self: Any, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        common = getattr(cfg, "common", cfg)  # fairseq also takes a Namespace
        if is_ours(type(model)):
            check_precision(common, model.cfg.precision)
        check_fp16_device(common, on_gpu=torch.cuda.is_available() and not common.cpu)
        original(self, cfg, task, model, *args, **kwargs)

    Trainer.__init__ = __init__


def _let_hydra_say_why() -> None:
    """The error that stops fairseq-hydra-train is its last line.

    hydra 1.0 (official) prints it with an argument that Python 3.10 no longer has, and ends in a
    TypeError of its own.
    """
    if not hydra.__version__.startswith("1.0."):
        return

    def print_exception(etype: Any, value: BaseException, tb: Any) -> None:
        traceback.print_exception(type(value), value, tb)

    hydra_utils.print_exception = print_exception


def is_fairseqs(argv: Sequence[str]) -> bool:
    """Whether a command with its arguments is one of fairseq's."""
    command = Path(argv[0] if argv else "")
    return command.name.startswith("fairseq-") or command.parent.name == "fairseq_cli"


def refuse_length_penalty(argv: Sequence[str]) -> None:
    """Stop a command of fairseq that is given our task's option with fairseq's translation task.

    All versions: "unrecognized arguments", as if the plugin did not have it. A task of the user's
    own may have the option. Argument and exception as for ``refuse_bf16``.
    """
    option = "--length-penalty"
    words = [part for word in argv[1:] for part in word.split("=", 1)]
    task = words[words.index("--task") + 1 :][:1] if "--task" in words else ["translation"]
    if option in words and task == ["translation"] and is_fairseqs(argv):
        raise SystemExit(f"{option} is an option of the plugin's task: give --task {TASK} too")


def refuse_bf16(argv: Sequence[str]) -> None:
    """Stop a command of fairseq that is given ``--bf16``, naming the switch that works.

    All versions turn the flag into TPU mode before any model is built, and fail where torch_xla is
    missing. (``common.bf16`` in YAML does not: fairseq-hydra-train then keeps the weights
    themselves in bfloat16.) ``argv`` is a command with its arguments; other programs' commands are
    left alone. Raises SystemExit (status 1) with one sentence.
    """
    if not is_fairseqs(argv) or importlib.util.find_spec("torch_xla"):
        return
    flags = [a for a in argv[1:] if a in ("--bf16", "--memory-efficient-bf16")]
    if flags:
        raise SystemExit(
            f"{flags[0]} means TPU mode in fairseq; for bfloat16 use this plugin's "
            "--precision bf16 (in YAML: model.precision)."
        )
