"""The command ``vaswani``: prepares text, trains, averages, decodes and scores the plugin's models.

``cli.py`` is the entry point (and ``__main__.py`` that of ``python -m vaswani``); ``commands`` has
one file per verb. The packages below, each importing only from earlier ones: ``common`` (knows no
subject), ``folders`` (the user's folders and their files), ``configuration`` (a training's YAML,
complete in fairseq's sections), ``data`` (text, down to binarised data), ``training`` and
``packing``, ``planning`` (what a training takes, new configurations) and ``decoding``,
``scoring``, then ``export``, ``attention_page`` and ``reproduction`` (the paper's results).

A verb imports ``transformer_plugin`` (and with it torch and fairseq) in its ``run``, so that
``vaswani --help`` answers at once; the packages below the commands import at the top.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaswani.commands.pack import pack
    from vaswani.commands.translate import translate
    from vaswani.data.preparation import prepare
    from vaswani.data.read_recipe import PrepareOptions
    from vaswani.decoding.generation import generate
    from vaswani.decoding.translator import Translation, Translator
    from vaswani.folders.model_folder import ModelFolder
    from vaswani.folders.prepared_text import PreparedText
    from vaswani.folders.run import Run
    from vaswani.training.training import train

    __version__: str

__all__ = [
    "ModelFolder",
    "PrepareOptions",
    "PreparedText",
    "Run",
    "Translation",
    "Translator",
    "generate",
    "pack",
    "prepare",
    "train",
    "translate",
]
#: the module of each name
_MODULES = {
    "ModelFolder": "folders.model_folder",
    "PrepareOptions": "data.read_recipe",
    "PreparedText": "folders.prepared_text",
    "Run": "folders.run",
    "Translation": "decoding.translator",
    "Translator": "decoding.translator",
    "generate": "decoding.generation",
    "pack": "commands.pack",
    "prepare": "data.preparation",
    "train": "training.training",
    "translate": "commands.translate",
}


def __getattr__(name: str) -> Any:
    """Import a name of the public interface, such as ``Translator``, when it is first asked for."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"vaswani.{_MODULES[name]}"), name)
    if name == "__version__":
        from vaswani.common.environment import version

        return version()
    raise AttributeError(f"module 'vaswani' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names of the public interface, imported or not."""
    return sorted({*globals(), *__all__, "__version__"})
