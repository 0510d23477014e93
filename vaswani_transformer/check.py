"""Moved to the package ``transformer_check``; this name is for one version more."""

import importlib
import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    """What ``transformer_check`` has by this name, with a warning."""
    if name.startswith("__"):
        raise AttributeError(name)
    warnings.warn(
        f"vaswani_transformer.check has moved: from transformer_check import {name}",
        FutureWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module("transformer_check"), name)
