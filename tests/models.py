"""Small models of the plugin's, dictionaries and batches for the tests."""

from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary

from tests.plain.small import SIZES as SMALL
from tests.plain.small import batch
from transformer_plugin.config import VaswaniTransformerConfig
from transformer_plugin.model import VaswaniTransformerModel


def dictionary(size: int = 24) -> Dictionary:
    """Return a dictionary of ``size`` types, fairseq's four special ones included."""
    words = Dictionary()
    for number in range(size - len(words)):
        words.add_symbol(f"w{number}")
    return words


def dictionary_from_padding(size: int = 24) -> Dictionary:
    """Return a dictionary with padding as type 0, the end of a sentence as 1, unknown words as 2.

    The first symbol, which nothing uses, is the padding.
    """
    words = Dictionary(bos="<pad>")
    for number in range(size - len(words)):
        words.add_symbol(f"w{number}")
    return words


def task(source: Any = None, target: Any = None, **cfg: Any) -> SimpleNamespace:
    """Return the parts of a fairseq task that a model needs: dictionaries and a configuration."""
    source = source or dictionary()
    return SimpleNamespace(
        source_dictionary=source,
        target_dictionary=target or source,
        cfg=SimpleNamespace(**cfg),
    )


def config(
    cls: type[VaswaniTransformerConfig] = VaswaniTransformerConfig, **options: Any
) -> VaswaniTransformerConfig:
    """Return a configuration with the small sizes and some options changed."""
    cfg = cls()
    for name, value in {**SMALL, **options}.items():
        assert hasattr(cfg, name), name
        setattr(cfg, name, value)
    return cfg


def small_model(seed: int = 0, for_task: Any = None, **options: Any) -> VaswaniTransformerModel:
    """Build a small model with reproducible weights."""
    torch.manual_seed(seed)
    return VaswaniTransformerModel.build_model(config(**options), for_task or task())


def lively_model(seed: int, vocabulary: int = 24, **options: Any) -> VaswaniTransformerModel:
    """Build a model with random weights whose sentences end at different steps."""
    for_task = task(dictionary(vocabulary))
    model = small_model(seed, for_task, untie_embeddings=True, **options).eval()
    with torch.no_grad():
        model.decoder.output_projection.weight[2].mul_(4)
        model.decoder.embedding.tokens.weight.mul_(2)
    return model


def sample(rows: Any = slice(None), device: Any = "cpu") -> dict[str, Any]:
    """Return the batch above as fairseq's translation task makes it.

    Args:
        rows: which of its three sentences, and in which order
        device: where to put it
    """
    source, previous, target = (tensor[rows] for tensor in batch())
    return {
        "nsentences": len(target),
        "ntokens": int(target.ne(1).sum()),
        "net_input": {
            "src_tokens": source.to(device),
            "src_lengths": source.ne(1).sum(1).to(device),
            "prev_output_tokens": previous.to(device),
        },
        "target": target.to(device),
    }
