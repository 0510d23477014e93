"""Attention weights on two nouns, and a model without some of them.

Shape letters: B sentences, N layers, H heads.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn

from experiments.heads.text import ROLES, Sentence
from vaswani_transformer import Vocabulary
from vaswani_transformer.attention import causal_mask

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import train as loop  # noqa: E402 (examples/train.py, found by the line above)

ATTENTION = ("encoder", "decoder", "cross")


class TextBatch(NamedTuple):
    """Sentences as the model reads them; ``shifted``: the target, one place to the right."""

    source: Tensor
    shifted: Tensor
    sentences: list[Sentence]
    #: ids of the two forms, the correct one first [B, 2]
    forms: Tensor


def text_batch(
    types: Vocabulary,
    sentences: list[Sentence],
    source: list[Sentence] | None = None,
    written: list[Sentence] | None = None,
) -> TextBatch:
    """Return a batch of sentences.

    Args:
        types: the vocabulary
        sentences: what is translated and written, unless the next two say otherwise
        source: sentences whose source replaces theirs
        written: sentences whose target replaces theirs
    """
    sources = [types.encode(sentence.source) for sentence in source or sentences]
    targets = [types.encode(sentence.target) for sentence in written or sentences]
    batch = loop.collate(list(zip(sources, targets, strict=True)))
    forms = torch.tensor([[types.index(form) for form in sentence.forms] for sentence in sentences])
    return TextBatch(batch.source, batch.shifted, sentences, forms)


def is_right(model: nn.Module, text: TextBatch) -> Any:
    """Return whether the correct form is the more probable one, numpy bool [B]."""
    steps = torch.tensor([sentence.target_places.word for sentence in text.sentences])
    with torch.no_grad():
        logits = model(text.source, text.shifted)[torch.arange(len(steps)), steps]
    of_forms = logits.gather(1, text.forms)
    return (of_forms[:, 0] > of_forms[:, 1]).numpy()


def row_and_columns(
    attention: str, sentence: Sentence, role: str, phrase: bool
) -> tuple[int, list[int]] | None:
    """Return where the weights from the word on a noun, or its phrase, are.

    It is None if the noun is not yet written.
    """
    target = sentence.target_places
    row = sentence.source_places.word if attention == "encoder" else target.word
    places = target if attention == "decoder" else sentence.source_places
    phrase_places = getattr(places, role)
    columns = list(phrase_places if phrase else phrase_places[-1:])
    if attention == "decoder":
        columns = [column + 1 for column in columns]
        if columns[-1] > row:
            return None
    return row, columns


def weights(model: Any, text: TextBatch, phrase: bool = False) -> dict[str, Any]:
    """Return, by attention, each head's weight from the word on the two nouns, numpy [B, 2, N, H].

    The decoder's attentions are missing if the nouns are not yet written.
    """
    with torch.no_grad():
        memory, encoder = model.encoder.encode(text.source, need_weights=True)
        _, decoder = model.decoder.features(text.shifted, memory, need_weights=True)
    by_attention = {}
    for attention, layers in zip(ATTENTION, (encoder, *decoder), strict=True):
        stacked = torch.stack(list(layers), dim=1).numpy()  # [B, N, H, rows, columns]
        of_sentences = []
        for sentence, of_layers in zip(text.sentences, stacked, strict=True):
            places = [row_and_columns(attention, sentence, role, phrase) for role in ROLES]
            on_nouns = [of_layers[:, :, place[0], place[1]].sum(-1) for place in places if place]
            of_sentences.append(on_nouns)
        if all(len(on_nouns) == len(ROLES) for on_nouns in of_sentences):
            by_attention[attention] = numpy.array(of_sentences)
    return by_attention


class Cut(NamedTuple):
    """Which weights on a noun are set to zero; None: of all layers and heads."""

    attention: str
    layer: int | None = None
    head: int | None = None
    #: on its whole phrase
    phrase: bool = False
    #: from all words but itself, not only from the word
    all_rows: bool = False


@contextlib.contextmanager
def zero_weights(model: Any, text: TextBatch, role: str, cuts: Sequence[Cut]) -> Iterator[None]:
    """Set some of the model's weights on a noun to zero in the block.

    The other weights of a row still sum to 1.
    """
    hooks = []
    for cut in cuts:
        stack = model.encoder if cut.attention == "encoder" else model.decoder
        for number, layer in enumerate(stack.layers):
            if cut.layer in (None, number):
                module = layer.cross_attention if cut.attention == "cross" else layer.self_attention
                hooks.append(module.register_forward_pre_hook(mask_hook(cut, text, role)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def mask_hook(cut: Cut, text: TextBatch, role: str) -> Callable[..., Any]:
    """Return a hook that changes the mask of an attention."""
    place = 2 if cut.attention == "cross" else 1  # of the mask among the arguments

    def hook(module: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        rows = arguments[0].size(1)
        keys = arguments[place - 1].size(1)
        shows = torch.ones(len(text.sentences), module.num_heads, rows, keys, dtype=torch.bool)
        heads = slice(None) if cut.head is None else cut.head
        for number, sentence in enumerate(text.sentences):
            row, columns = row_and_columns(cut.attention, sentence, role, cut.phrase) or (0, [])
            for column in columns:
                shows[number, heads, slice(None) if cut.all_rows else row, column] = False
                if cut.attention != "cross":
                    shows[number, :, column, column] = True
        mask = causal_mask(rows) if cut.attention == "decoder" else arguments[place]
        changed = [*arguments]
        changed[place] = mask & shows
        return tuple(changed[:4] if cut.attention == "decoder" else changed)  # no is_causal

    return hook
