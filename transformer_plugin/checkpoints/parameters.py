"""Whether parameters fit a model, and are finite."""

from typing import Any, Dict, List, Mapping, Optional

import torch
from torch import Tensor


def explain_untied(saved: Mapping[str, Any], shared: List[List[str]]) -> str:
    """One sentence on parameters that a model shares and a checkpoint does not; "" if none.

    ``shared`` has the names of each parameter that has several.
    """
    for first, *others in shared:
        for name in others:
            if not torch.equal(saved[first], saved[name]):
                return (
                    f"{first} and {name} differ in the checkpoint and are one in this model: "
                    "give the options that it was trained with, such as --untie-embeddings."
                )
    return ""


def explain_mismatch(saved_state: Mapping[str, Any], model_state: Mapping[str, Any]) -> str:
    """One sentence on why parameters do not fit a model, with one that differs.

    Both map parameter names to tensors. Returns "" if they fit: every name and shape agrees.
    """
    saved_only, model_only = (
        set(saved_state) - set(model_state),
        set(model_state) - set(saved_state),
    )
    for name in [*sorted(saved_only), *sorted(model_only)]:
        return (
            f"The checkpoint is of another architecture ({name} is only on one side); "
            "use the --arch and the options that it was trained with."
        )
    for name in sorted(saved_state):
        saved, now = tuple(saved_state[name].shape), tuple(model_state[name].shape)
        if saved != now:
            words = name.endswith("tokens.weight") and saved[1:] == now[1:]
            return (
                f"The checkpoint was trained with another {'dictionary' if words else 'size'}; "
                f"{name} is {saved} in the checkpoint, {now} in this model."
            )
    return ""


def model_options(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The model's section of the configuration in a checkpoint; fairseq also saves a Namespace."""
    cfg = state["cfg"].get("model") if isinstance(state.get("cfg"), dict) else state.get("args")
    return cfg if isinstance(cfg, dict) else vars(cfg) if hasattr(cfg, "__dict__") else {}


def model_name(options: Mapping[str, Any]) -> Optional[str]:
    """The name under which a model is registered, in its section of a configuration."""
    name = options.get("_name") or options.get("arch")
    return name if isinstance(name, str) else None


def not_finite(model: Mapping[str, Any]) -> str:
    """The first parameter (a weight or bias) with a NaN or an infinity in it; "" if there is none.

    Other tensors in a state may be infinite, as masks are.
    """
    for name, tensor in model.items():
        is_parameter = isinstance(tensor, Tensor) and name.endswith(("weight", "bias"))
        if is_parameter and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            return name
    return ""
