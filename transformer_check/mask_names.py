"""Masks of padding that are made by mistake, each with its sentence (3.2.3).

Shape letters: B batch, S source.
"""

import torch
from torch import Tensor


def named_masks(lengths: tuple[int, ...], size: int) -> dict[str, Tensor]:
    """Return correct and wrong masks [B, S], True for shown keys, by sentence of the mistake."""
    keys = torch.arange(size)
    ends = torch.tensor(lengths)[:, None]
    right = keys < ends
    names = {
        "": right,
        "The source mask is inverted: it shows padding and hides the words.": ~right,
        "The source mask of every sentence is that of the first sentence of the batch.": right[:1],
        "The source mask of every sentence is that of the last sentence of the batch.": right[-1:],
        "Each sentence has the source mask of another sentence of the batch.": right.roll(1, 0),
        "Each sentence has the source mask of another sentence.": right.roll(-1, 0),
        "The source mask is reversed: it hides the first words in place of padding.": right.flip(1),
        "The source mask shows one token of padding: it is one token too long.": keys < ends + 1,
        "The source mask hides the last token of a sentence: it is one token too short.": keys
        < ends - 1,
        "The source mask hides the first token of a sentence.": right & (keys > 0),
        "The source mask hides the end token in place of padding.": keys != ends - 1,
    }
    shortest = "One source mask serves the whole batch: it is as long as the shortest sentence."
    names[shortest] = right.all(0, keepdim=True)
    return {name: mask.expand(len(lengths), -1) for name, mask in names.items()}


NO_MASK = "no mask"
OTHER = "other"


def name_of(shown: Tensor, lengths: tuple[int, ...]) -> str:
    """Return the sentence for a mask: empty if correct, ``NO_MASK``, or ``OTHER``."""
    if bool(shown.all()):
        return NO_MASK
    for name, mask in named_masks(lengths, shown.size(1)).items():
        counts = mask.any(1)  # a row that hides everything shows everything, or nothing
        if bool((shown == mask)[counts].all()):
            return name
    return OTHER
