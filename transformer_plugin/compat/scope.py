"""Whose task and model it is: what fairseq does with other people's is left to fairseq.

What repairs a fault of fairseq does so for everyone. What would work without this plugin, and is
refused or done otherwise with it, asks here first.
"""

from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks.translation import TranslationTask

from .translation_task import CheckedTranslationTask

_PLUGIN = __name__.partition(".")[0]


def is_translation(task: Any) -> bool:
    """Whether a task, or its class, is fairseq's ``translation``, this plugin's, or a subclass."""
    kind = task if isinstance(task, type) else type(task)
    return kind is TranslationTask or issubclass(kind, CheckedTranslationTask)


def is_plugin_model(model: Any) -> bool:
    """Whether a model's class, or the one registered so, is this plugin's or a subclass."""
    if not isinstance(model, type):
        model = ARCH_MODEL_REGISTRY.get(model) or MODEL_REGISTRY.get(model)
    return any(cls.__module__.partition(".")[0] == _PLUGIN for cls in getattr(model, "__mro__", ()))
