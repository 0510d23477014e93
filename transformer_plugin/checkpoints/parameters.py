"""Whether parameters fit a model, and are finite."""

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor

# The end of the name of a parameter that both sides have → the option that sets its first (0)
# or second (1) size; checked in this order, since a width changes everything else.
_SIZES: List[Tuple[str, int, str]] = [
    ("tokens.weight", 1, "--encoder-embed-dim and --decoder-embed-dim"),
    ("tokens.weight", 0, "the dictionary (its number of entries)"),
    ("positions.weight", 0, "--max-source-positions or --max-target-positions"),
    ("fc1.weight", 0, "--{side}-ffn-embed-dim"),
    ("out_proj.weight", 1, "--head-value-dim"),
    ("q_proj.weight", 0, "--head-key-dim"),
    ("qkv_proj.weight", 0, "--head-key-dim"),
]


def _layers(state: Mapping[str, Any], side: str) -> int:
    """How many layers a state has on one side ("encoder" or "decoder")."""
    matches = (re.match(rf"{side}\.layers\.(\d+)\.", name) for name in state)
    return len({match.group(1) for match in matches if match})


def _differing_option(saved: Mapping[str, Any], model: Mapping[str, Any]) -> Optional[str]:
    """The first option that explains a difference, with both its values; None if none does."""
    for ending, axis, option in _SIZES:
        for name in sorted(set(saved) & set(model)):
            before, now = saved[name].shape, model[name].shape
            if name.endswith(ending) and len(before) > axis and before[axis] != now[axis]:
                label = option.format(side=name.partition(".")[0])
                return f"{label}: {_both(before[axis], now[axis])} ({name})"
    for side in ("encoder", "decoder"):
        layers = _layers(saved, side), _layers(model, side)
        if all(layers) and layers[0] != layers[1]:
            return f"--{side}-layers: {_both(*layers)}"
        learned = [any(f"{side}." in n and "positions." in n for n in s) for s in (saved, model)]
        if learned[0] != learned[1]:
            return f"--{side}-learned-pos: {_both(*learned)}"
    return None


def _both(saved: object, model: object) -> str:
    """The two values of one thing, worded for a message."""
    return f"{saved} in the checkpoint, {model} in this model"


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
    """One sentence on why parameters do not fit a model, naming the option that differs.

    Both map parameter names to tensors. Returns "" if they fit: every name and shape agrees.
    """
    other = "The checkpoint was trained with other options; "
    kinds = [
        {re.sub(r"\d+", "*", n) for n in s if ".layers." in n} for s in (saved_state, model_state)
    ]
    if kinds[0] != kinds[1]:
        odd = sorted(kinds[0] - kinds[1]) or sorted(kinds[1] - kinds[0])
        return (
            f"The checkpoint is of another architecture ({odd[0]} is only on one side); "
            "use the --arch that it was trained with."
        )
    option = _differing_option(saved_state, model_state)
    if option:
        return f"{other}{option}."
    for name in sorted(set(saved_state) ^ set(model_state)):
        return f"{other}{name} is only in {'it' if name in saved_state else 'this model'}."
    for name in sorted(saved_state):
        shapes = tuple(saved_state[name].shape), tuple(model_state[name].shape)
        if shapes[0] != shapes[1]:
            return f"{other}{name} is {_both(*shapes)}."
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
