"""What fairseq accepts or words badly, refused in one sentence."""

import functools
from pathlib import Path
from typing import Any, Sequence

from fairseq import models

from ..checkpoints import CheckpointError


def apply() -> None:
    """Set this file's workarounds."""
    _name_unknown_models()


def _name_unknown_models() -> None:
    """A model that is not registered is named in one sentence.

    All versions: "Replacement index 1 out of range", from the formatting of the message.
    """
    original = models.build_model

    @functools.wraps(original)
    def build_model(cfg: Any, task: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and name not in models.ARCH_MODEL_REGISTRY and name not in models.MODEL_REGISTRY:
            raise CheckpointError(
                f"No model {name!r} is registered; correct model._name (--arch), or, for a "
                "checkpoint of another plug-in, add the --user-dir that it was trained with."
            )
        return original(cfg, task, *args, **kwargs)

    models.build_model = build_model


def refuse_bf16(argv: Sequence[str]) -> None:
    """Stop a command of fairseq that is given ``--bf16``, naming the switch that works.

    All versions turn the flag into TPU mode before any model is built, and fail for want of
    torch_xla. (``common.bf16`` in YAML does not: fairseq-hydra-train then keeps the weights
    themselves in bfloat16.) ``argv`` is a command with its arguments; those of other programs are
    left alone. Raises SystemExit (status 1) with one sentence.
    """
    command = Path(argv[0] if argv else "")
    if not command.name.startswith("fairseq-") and command.parent.name != "fairseq_cli":
        return
    asked = [a for a in argv[1:] if a in ("--bf16", "--memory-efficient-bf16")]
    if asked:
        raise SystemExit(
            f"{asked[0]} means TPU mode in fairseq; for bfloat16 use this plugin's "
            "--precision bf16 (in YAML: model.precision)."
        )
