"""The command ``vaswani``: prepares text, trains, averages, decodes and scores the plugin's models.

``cli.py`` is the entry point (and ``__main__.py`` that of ``python -m vaswani``); ``commands`` has
one file per verb. The packages below, each importing only from earlier ones: ``common`` (knows no
subject), ``folders`` (the user's folders and their files), ``configuration`` (a training's YAML,
complete in fairseq's sections), ``data`` (text, down to binarised data), ``training`` and
``model_folder``, ``planning`` (what a training takes, new configurations) and ``decoding``,
``scoring``, then ``export``, ``attention_page`` and ``paper`` (its results).

A verb imports ``transformer_plugin`` (and with it torch and fairseq) in its ``run``, so that
``vaswani --help`` answers at once; the packages below the commands import at the top.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaswani.decoding.translator import Translation, Translator

    __version__: str

__all__ = ["Translation", "Translator"]


def __getattr__(name: str) -> Any:
    """``from vaswani import Translator``, which is imported only when asked for."""
    if name in __all__:
        from vaswani.decoding import translator

        return getattr(translator, name)
    if name == "__version__":
        from vaswani.common.environment import version

        return version()
    raise AttributeError(f"module 'vaswani' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is, imported or not."""
    return sorted({*globals(), *__all__, "__version__"})
