"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) in torch alone.

In the order in which to read it:

    attention.py        scaled dot-product and multi-head attention (3.2)
    embedding.py        embeddings and positions (3.4, 3.5)
    layers.py           feed-forward, residual and norm, the two layers (3.1, 3.3)
    alternatives.py     norms before the sub-layers, other activations: not in the paper
    encoder.py          the encoder stack (3.1)
    decoder.py          the decoder stack (3.1)
    transformer.py      the whole model, shared matrices (3.4)
    config.py           its sizes in the paper (Table 3)
    initialisation.py   the initial weights
    loss.py             label smoothing (5.4)
    schedule.py         equation 3
    search/             greedy decoding, beam search (6.1)
    search_options.py   the beam, the length penalty, limits of the length
    cache.py            keys and values that the decoder keeps between the steps of a search
    vocabulary.py       types and their ids
    precision.py        bf16
    fast/               faster versions of some modules, with equal results
    io/                 not in the paper: packed models, hashes of files, Moses' text

examples/train.py trains it; transformer_plugin/ makes it a model of fairseq's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import TransformerConfig, base, big
    from .search import beam_search, greedy_decode
    from .search_options import SearchOptions
    from .transformer import Transformer
    from .vocabulary import Vocabulary

__all__ = [
    "SearchOptions",
    "Transformer",
    "TransformerConfig",
    "Vocabulary",
    "base",
    "beam_search",
    "big",
    "greedy_decode",
]
_MODULES = {
    "config": ("TransformerConfig", "base", "big"),
    "search": ("beam_search", "greedy_decode"),
    "search_options": ("SearchOptions",),
    "transformer": ("Transformer",),
    "vocabulary": ("Vocabulary",),
}


def __getattr__(name: str) -> Any:
    """Import a name of :data:`__all__` when it is first used.

    So ``search_options.py``, ``vocabulary.py`` and most of ``io`` can be used without torch.
    """
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names in this package, imported or not."""
    return sorted({*globals(), *__all__})
