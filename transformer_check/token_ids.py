"""Mistakes in the ids that training_loss reads: the source, the decoder's input, the labels (3.1).

Shape letters: B batch, S source, T target.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .subject import Config

SOURCE, INPUT, LOSS = "source", "input", "loss"
"""where a mistake is"""


class Mistake(NamedTuple):
    """A mistake of training_loss, as its run shows it."""

    says: str
    concerns: str
    """SOURCE, INPUT or LOSS"""
    found: str = ""


def join_rows(parts: list[Tensor], filler: float) -> Tensor:
    """Concatenate tensors [B, T, …] along the batch, with a filler after shorter ones."""
    longest = max(part.size(1) for part in parts)
    joined = []
    for part in parts:
        more = part.new_full((len(part), longest - part.size(1), *part.shape[2:]), filler)
        joined.append(torch.cat([part, more], dim=1))
    return torch.cat(joined)


def rows_of(ids: Tensor) -> str:
    """Return the first sentence's ids for a message."""
    return str(ids[0].tolist())


def is_of_other_sentences(ids: Tensor, sentences: list[Tensor], real: Tensor) -> bool:
    """Return whether ids are rows of one of the tensors, where they are real, in another order."""
    is_moved = False
    for n, row in enumerate(ids):
        own = [each[n][real[n]] for each in sentences]
        if any(torch.equal(row[real[n]], each) for each in own):
            continue
        others: list[Tensor] = []
        for each in sentences:
            others += [other for m, other in enumerate(each) if m != n]
        if not any(torch.equal(row[real[n]], other[real[n]]) for other in others):
            return False
        is_moved = True
    return is_moved


def name_source(source: Tensor, read: Tensor, config: Config) -> Mistake | None:
    """Return the mistake in the source that the encoder reads; None if it is right."""
    if torch.equal(source, read):
        return None
    found = f"the encoder's input {rows_of(read)} for the source {rows_of(source)}"
    length = source.size(1)
    says = "The encoder reads another text than the source."
    if read.size(1) == length + 1 and torch.equal(read[:, 1:], source):
        says = f"The source has an additional token in front: id {int(read[0, 0])}."
    elif read.size(1) < length and torch.equal(read, source[:, : read.size(1)]):
        says = f"The encoder reads the first {read.size(1)} columns of the source alone."
    elif read.size(1) < length and torch.equal(read, source[:, -read.size(1) :]):
        says = f"The encoder reads the last {read.size(1)} columns of the source alone."
    elif read.shape == source.shape:
        real = source.ne(config.pad)
        changed = read.ne(source)
        if is_of_other_sentences(read, [source], real):
            says = "The sources of a batch are mixed: their order is not that of the targets."
        elif torch.equal(changed, source.eq(config.end)):
            says = "The source has no end token."
        elif len(read[changed].unique()) == 1:
            says = f"The encoder reads id {int(read[changed][0])} in place of source tokens."
    return Mistake(says, SOURCE, found)


def name_labels(target: Tensor, counts: Tensor, labels: Tensor) -> Mistake:
    """Return the mistake in the labels, which are not the target's."""
    seen = target.masked_fill(counts, 0).masked_scatter(counts, labels)
    n = int(seen.ne(target).any(1).int().argmax())
    found = f"the labels {rows_of(seen[n:])} for the target {rows_of(target[n:])}"
    says = "The labels are not the tokens of the target."
    if is_of_other_sentences(seen, [target], counts):
        says = "The labels are the target of another sentence of the batch."
    for by in (-3, -2, -1, 1, 2, 3):
        if torch.equal(seen[counts], target.roll(by, 1)[counts]):
            side = "before" if by > 0 else "after"
            says = f"The label of each position is the token {abs(by)} {side} the right one."
    return Mistake(says, INPUT, found)


def name_ids(ids: Tensor, source: Tensor, target: Tensor, config: Config) -> str:
    """Name ids that the model reads, such as the source."""
    start = torch.full_like(source[:, :1], config.start)
    names = {
        "the source": source,
        "the target": target,
        "the target after the start token": torch.cat([start, target[:, :-1]], dim=1),
        "the source after the start token": torch.cat([start, source[:, :-1]], dim=1),
    }
    for name, known in names.items():
        if torch.equal(ids, known):
            return name
        real = known.ne(config.pad)
        if ids.shape == known.shape and is_of_other_sentences(ids, [known], real):
            return f"{name}, with the sentences in another order,"
    return rows_of(ids)
