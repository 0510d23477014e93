"""Attention weights on two nouns, and a model without some of them: what heads.py measures with.

Shape letters: B sentences, N layers, H heads.
"""

import contextlib
import runpy
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy
import torch
from torch import Tensor, nn

from benchmarks.heads_text import ROLES, Sentence
from vaswani_transformer import Vocabulary
from vaswani_transformer.attention import causal_mask

LOOP = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "train.py"))
"""examples/train.py."""
ATTENTION = ("encoder", "decoder", "cross")


class Read(NamedTuple):
    """Sentences as the model reads them; ``shifted``: the target, one place to the right."""

    source: Tensor
    shifted: Tensor
    sentences: List[Sentence]
    #: ids of the two forms, the right one first [B, 2]
    forms: Tensor


def read(
    types: Vocabulary,
    sentences: List[Sentence],
    source: Optional[List[Sentence]] = None,
    written: Optional[List[Sentence]] = None,
) -> Read:
    """Sentences; with the ``source`` of others, or what has been ``written`` of others."""
    sources = [types.encode(one.source) for one in source or sentences]
    targets = [types.encode(one.target) for one in written or sentences]
    batch = LOOP["collate"](list(zip(sources, targets, strict=True)))
    forms = torch.tensor([[types.index(form) for form in one.forms] for one in sentences])
    return Read(batch.source, batch.shifted, sentences, forms)


def right(model: nn.Module, text: Read) -> Any:
    """Whether the right form is the likelier one, numpy bool [B]."""
    steps = torch.tensor([one.said["word"] for one in text.sentences])
    with torch.no_grad():
        logits = model(text.source, text.shifted)[torch.arange(len(steps)), steps]
    of_forms = logits.gather(1, text.forms)
    return (of_forms[:, 0] > of_forms[:, 1]).numpy()


def row_and_column(attention: str, one: Sentence, role: str) -> Optional[Tuple[int, int]]:
    """Where the weight from the word on a noun is; None if the noun is not yet written."""
    if attention == "encoder":
        return one.at["word"], one.at[role]
    if attention == "cross":
        return one.said["word"], one.at[role]
    seen = one.said[role] < one.said["word"]
    # row t writes word t, and has read the end of sentence and the words before it
    return (one.said["word"], one.said[role] + 1) if seen else None


def weights(model: Any, text: Read) -> Dict[str, Any]:
    """By attention: each head's weight from the word on the two nouns, numpy [B, 2, N, H].

    Without the decoder's where the nouns are not yet written.
    """
    with torch.no_grad():
        memory, encoder = model.encoder.encode(text.source, need_weights=True)
        _, decoder = model.decoder.features(text.shifted, memory, need_weights=True)
    found = {}
    for attention, layers in zip(ATTENTION, (encoder, *decoder), strict=True):
        stacked = torch.stack(list(layers), dim=1).numpy()  # [B, N, H, rows, columns]
        places = [[row_and_column(attention, s, r) for r in ROLES] for s in text.sentences]
        if all(place for both in places for place in both):
            rows = [
                [stacked[b][:, :, place[0], place[1]] for place in both]
                for b, both in enumerate(places)
            ]
            found[attention] = numpy.array(rows)
    return found


class Cut(NamedTuple):
    """Which weights on a noun are set to zero; None: of all layers and heads."""

    attention: str
    layer: Optional[int] = None
    head: Optional[int] = None
    #: in the rows of all words but the noun, not only in the word's
    all_rows: bool = False


@contextlib.contextmanager
def without(model: Any, text: Read, role: str, cuts: Sequence[Cut]) -> Iterator[None]:
    """The model without some of its weights on a noun; the others of a row still sum to 1."""
    hooks = []
    for cut in cuts:
        stack = model.encoder if cut.attention == "encoder" else model.decoder
        for number, layer in enumerate(stack.layers):
            if cut.layer in (None, number):
                module = layer.cross_attention if cut.attention == "cross" else layer.self_attention
                hooks.append(module.register_forward_pre_hook(hiding(cut, text, role)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def hiding(cut: Cut, text: Read, role: str) -> Callable[..., Any]:
    """What changes the mask that an attention is called with."""
    place = 2 if cut.attention == "cross" else 1  # of the mask among the arguments

    def hook(module: Any, given: Tuple[Any, ...]) -> Tuple[Any, ...]:
        rows, columns = given[0].size(1), given[place - 1].size(1)
        shows = torch.ones(len(text.sentences), module.num_heads, rows, columns, dtype=torch.bool)
        for number, one in enumerate(text.sentences):
            if found := row_and_column(cut.attention, one, role):
                row, column = found
                own = None if cut.attention == "cross" else column
                looking = [n for n in range(rows) if n != own] if cut.all_rows else [row]
                heads = range(module.num_heads) if cut.head is None else [cut.head]
                for head in heads:
                    shows[number, head, looking, column] = False
        mask = causal_mask(rows) if cut.attention == "decoder" else given[place]
        changed = [*given]
        changed[place] = mask & shows
        return tuple(changed[:4] if cut.attention == "decoder" else changed)  # no is_causal

    return hook
