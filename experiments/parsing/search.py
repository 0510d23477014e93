"""Writes bracketed trees with a trained model (6.3), freely, or only such as fit the sentence.

Shape letters: B sentences, S source, T target, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch

from vaswani_transformer.cache import DecoderCache
from vaswani_transformer.encoder import Memory
from vaswani_transformer.vocabulary import EOS, PAD, SPECIAL, Vocabulary

BATCH = 128
MOST_IN_A_ROW = 8
"""Opening brackets; the trees of the training have at most 6."""
FILLER = "madeupword"
"""So fairseq calls the types that make a dictionary's size a multiple of 8."""


class Brackets:
    """What the ids of a dictionary's tokens mean.

    Attributes:
        opening: brackets, each with the one that closes it
        leaves: tags, or XX
    """

    def __init__(self, types: Vocabulary) -> None:
        names = [name for name in types.types[len(SPECIAL) :] if not name.startswith(FILLER)]
        self.opening = {
            types.index(n): types.index(f"){n[1:]}") for n in names if n.startswith("(")
        }
        self.leaves = {types.index(name) for name in names if name[0] not in "()"}


class PartialTree:
    """How far the tree of a sentence has been written.

    Args:
        brackets: of the target dictionary
        leaves: how many are to be written
    """

    def __init__(self, brackets: Brackets, leaves: int) -> None:
        self.brackets = brackets
        self.missing = leaves
        self.unclosed: list[int] = []  # brackets that would close them
        self.in_a_row = 0  # opening brackets without a leaf or closing bracket after them

    def allowed(self) -> set[int]:
        """Return the tokens that may come next in one tree with as many leaves as are missing."""
        if not self.missing:
            return set(self.unclosed[-1:]) or {EOS}
        allowed = set(self.brackets.leaves) if self.unclosed else set()
        if self.in_a_row < MOST_IN_A_ROW:
            allowed |= self.brackets.opening.keys()
        if len(self.unclosed) > 1 and not self.in_a_row:
            allowed.add(self.unclosed[-1])
        return allowed

    def add(self, token: int) -> None:
        """Write an allowed token."""
        opened = token in self.brackets.opening
        self.in_a_row = self.in_a_row + 1 if opened else 0
        if opened:
            self.unclosed.append(self.brackets.opening[token])
        elif token in self.brackets.leaves:
            self.missing -= 1
        elif self.unclosed:
            self.unclosed.pop()


@torch.no_grad()
def greedy(
    decoder: Any, memory: Memory, longest: int, paths: Sequence[PartialTree] | None = None
) -> list[list[int]]:
    """Return the ids of each sentence, without its end, by greedy search.

    Args:
        decoder: of a trained model
        memory: of the batch [B, S]
        longest: the greatest length in tokens, without ``paths``
        paths: of each sentence; only what they allow is written
    """
    cache = DecoderCache(len(decoder.layers))
    tokens = torch.full((len(memory.states),), EOS)
    written: list[list[int]] = [[] for _ in tokens]
    ended = [False] * len(tokens)
    while not all(ended) and (paths or len(written[0]) < longest):
        logits = decoder.step(tokens, memory, cache)
        logits[:, PAD] = -torch.inf
        if paths:
            forbidden = torch.ones_like(logits, dtype=torch.bool)
            for row, path in enumerate(paths):
                forbidden[row, list(path.allowed())] = False
            logits[forbidden] = -torch.inf
        tokens = logits.argmax(-1)
        for row, token in enumerate(tokens.tolist()):
            ended[row] |= token == EOS
            written[row].append(token)
            if paths and not ended[row]:
                paths[row].add(token)
    return [row[: row.index(EOS)] if EOS in row else row for row in written]


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return batches of the numbers of sentences, those of similar length together."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def pad(rows: Sequence[list[int]]) -> torch.Tensor:
    """Pad rows of different lengths into one tensor."""
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)
