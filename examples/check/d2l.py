# ruff: noqa: ANN001
"""Dive into Deep Learning, its chapter on the Transformer.

CHECKOUT=d2l-en vaswani check examples/check/d2l.py
"""

import math
from types import SimpleNamespace
from typing import Any

import torch
from checkout import definitions
from torch import nn
from torch.nn import functional

from transformer_check import Config

CONFIG = Config(pad=1, start=2, end=3)


class Library:
    """The book's module d2l: names that are looked up when they are used."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"Module": nn.Module, "nn_Module": nn.Module, "nn": nn}
        self.names |= {"torch": torch, "math": math, "zeros": torch.zeros, "arange": torch.arange}
        self.names["d2l"] = self

    def __getattr__(self, name: str) -> Any:
        """Return a class or function of the book."""
        return self.names[name]

    def define(self, file: str, *only: str) -> SimpleNamespace:
        """Define classes and functions of a file, and store them."""
        defined = definitions(file, only=only, **self.names)
        self.names |= {name: getattr(defined, name) for name in only}
        return defined


BOOK = Library()
for _name in (
    *("Encoder", "Decoder", "AttentionDecoder", "masked_softmax", "DotProductAttention"),
    *("MultiHeadAttention", "PositionalEncoding", "PositionWiseFFN", "AddNorm"),
    *("TransformerEncoderBlock", "TransformerEncoder"),
):
    BOOK.define("d2l/torch.py", _name)
CHAPTER = "chapter_attention-mechanisms-and-transformers/transformer.md"
BOOK.define(CHAPTER, "TransformerDecoderBlock", "TransformerDecoder")


class Seq2Seq(nn.Module):
    """The book's EncoderDecoder, without its plots."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        sizes = (config.d_model, config.d_ff, config.heads, config.layers, config.dropout)
        self.encoder = BOOK.TransformerEncoder(config.vocabulary, *sizes)
        self.decoder = BOOK.TransformerDecoder(config.vocabulary, *sizes)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the logits [B, T, V]; the encoder also gets the length of each source."""
        lengths = source.ne(CONFIG.pad).sum(1)
        state = self.decoder.init_state(self.encoder(source, lengths), lengths)
        return self.decoder(target, state)[0]


def build(config):
    """Build its model, whose lazy layers get their sizes in a first pass."""
    model = Seq2Seq(config)
    model(torch.full((1, 2), config.end), torch.full((1, 2), config.start))
    return model


def logits(model, source, target):
    """Call the model; in evaluation its decoder has no causal mask, for one token at a time."""
    return model(source, target)


def loss(logits, target):
    """Return the loss of its chapter on sequence to sequence: a mean over tokens."""
    each = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    real = target.flatten().ne(CONFIG.pad)
    return (each * real).sum() / real.sum()


def learning_rate(step):
    """Return the chapter's learning rate."""
    return 0.001


def optimizer(model):
    """Return the optimizer of ``d2l.Seq2Seq``."""
    return torch.optim.Adam(model.parameters(), lr=0.001)
