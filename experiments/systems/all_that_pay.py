"""The two later changes that pay most by experiments/since2017, in one model."""

import importlib
from pathlib import Path

from vaswani.configuration.plugin import load_user_dir

from .swiglu import SwigluTransformer

EXAMPLES = Path(__file__).parents[2] / "examples" / "user_dirs"

load_user_dir(str(EXAMPLES / "relative_positions"))
relative_positions = importlib.import_module("relative_positions")


class AllThatPayTransformer(SwigluTransformer, relative_positions.RelativeTransformer):  # type: ignore[name-defined,misc]
    """Gated feed-forward networks and relative positions."""
