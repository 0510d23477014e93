"""Finds out whether a model is the plugin's; other models are left to fairseq."""

from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

_PLUGIN = __name__.partition(".")[0]


def is_plugin_model(model: Any) -> bool:
    """Return whether a model's class or registered name is this plugin's, or a subclass."""
    if not isinstance(model, type):
        model = ARCH_MODEL_REGISTRY.get(model) or MODEL_REGISTRY.get(model)
    return any(cls.__module__.partition(".")[0] == _PLUGIN for cls in getattr(model, "__mro__", ()))
