"""The ids that training_loss reads: of correct and wrong training steps, and their mistakes (3.1).

Shape letters: B batch, S source, T target, V vocabulary.
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .cross_entropies import words_of_targets
from .subject import AdapterError, Config, Subject, describe

SOURCE, INPUT, LOSS = "source", "input", "loss"
"""where a mistake is"""
LENGTHS = {31: ((7, 5, 4), (6, 3, 4)), 33: ((6, 7, 4), (4, 6, 5))}
"""the lengths of sources and targets, by seed: so that all numbers of tokens are different"""


class Mistake(NamedTuple):
    """A mistake of training_loss, as its run shows it."""

    says: str
    concerns: str
    """SOURCE, INPUT or LOSS"""
    found: str = ""


def join_rows(parts: list[Tensor], filler: float) -> Tensor:
    """Return one tensor of tensors [B, T, …], with a filler after shorter rows."""
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


# ---- Training steps ------------------------------------------------------------------------------


class Step(NamedTuple):
    """The model's inputs in a training step, and the labels: the tokens that it has to predict."""

    name: str
    """a sentence that says what is wrong in this step; empty for the correct step"""
    source: Tensor
    inputs: Tensor
    """the decoder's input"""
    labels: Tensor
    concerns: str = INPUT
    """where the mistake is: in the source, in the decoder's input or in the loss"""


class Batch:
    """A batch with sources and targets of several lengths."""

    def __init__(self, subject: Subject, seed: int) -> None:
        c = subject.config
        self.subject = subject
        self.source = subject.words(3, 7, seed=seed)  # [B, S]
        self.target = words_of_targets(subject, 3, 6, seed=seed + 1)  # [B, T]
        for n, (of_source, of_target) in enumerate(zip(*LENGTHS[seed], strict=True)):
            self.source[n, of_source - 1] = c.end
            self.source[n, of_source:] = c.pad
            self.target[n, of_target - 1] = c.end
            self.target[n, of_target:] = c.pad
        self.value = self.call()

    def first_sentence(self) -> "Batch":
        """Return the batch of the first sentence alone, without padding."""
        batch = copy.copy(self)
        pad = self.subject.config.pad
        batch.source = self.source[:1, self.source[0] != pad]
        batch.target = self.target[:1, self.target[0] != pad]
        batch.value = batch.call()
        return batch

    def call(self) -> float:
        """Return the value of training_loss for this batch.

        Raises:
            AdapterError: the value is not one finite number.
        """
        subject = self.subject
        source, target = self.source.clone(), self.target.clone()
        value = subject.call("training_loss", subject.model, source, target)
        subject.model.eval()
        if not isinstance(value, Tensor) or value.numel() != 1:
            found = f"training_loss returned {describe(value)}"
            raise AdapterError(found, "training_loss", "one number, as a tensor")
        parameters = [p for p in subject.model.parameters() if p.requires_grad]
        gradients = (
            torch.autograd.grad(value.sum(), parameters, allow_unused=True)
            if value.requires_grad
            else ()
        )
        self.has_gradient = any(gradient is not None for gradient in gradients)
        return float(value.detach())

    def steps(self) -> Iterator[Step]:
        """Yield the correct training step, then steps with one mistake each."""
        c = self.subject.config
        source, target = self.source, self.target

        def after(first: int, ids: Tensor) -> Tensor:
            return torch.cat([torch.full_like(ids[:, :1], first), ids[:, :-1]], dim=1)

        right = after(c.start, target)
        after_pad = after(c.pad, target)
        after_end = after(c.end, target)
        left = torch.cat([target[:, 1:], torch.full_like(target[:, :1], c.pad)], dim=1)
        without_ends = target.masked_fill(target == c.end, c.pad)
        repeats = "The decoder is trained to repeat its input: input and labels are both shifted."
        by_two = "The target is shifted by two tokens."
        no_start = "The decoder's input has no start token: the first token is never predicted."
        alone = "The decoder's input is the start token alone: it has no token of the target."
        empty = "The decoder's input is padding alone: it has no token of the target."
        yield Step("", source, right, target)
        for name, inputs, labels in (
            ("The target is not shifted: each token is predicted from itself.", target, target),
            ("The decoder starts with padding instead of start.", after_pad, target),
            ("The decoder starts with the end token instead of start.", after_end, target),
            ("The decoder starts with the last column of the target.", target.roll(1, 1), target),
            (by_two, after(c.start, right), target),
            (by_two, after(c.pad, right), target),
            (by_two, after(c.end, right), target),
            (no_start, target[:, :-1], target[:, 1:]),
            (repeats, right, right),
            (
                "The decoder's input is shifted left: it has the tokens after the label.",
                left,
                target,
            ),
            ("The decoder is trained to predict the token before its input.", target, right),
            ("The decoder's input is reversed.", after(c.start, target.flip(1)), target),
            (alone, torch.full_like(target, c.start), target),
            (empty, torch.full_like(target, c.pad), target),
        ):
            yield Step(name, source, inputs, labels)
        for name, inputs, labels in (
            ("It leaves out the first token of every target.", right, drop(target, c.pad)),
            ("It leaves out the last column of the target.", right[:, :-1], target[:, :-1]),
            ("It leaves out the end tokens.", right, without_ends),
        ):
            yield Step(name, source, inputs, labels, concerns=LOSS)
        swapped = after(c.start, source)
        mixed = "The sources of a batch are mixed: their order is not that of the targets."
        for name, encoder_input, inputs, labels in (
            ("Source and target are swapped.", target, swapped, source),
            ("The model reads the target in place of the source.", target, right, target),
            ("The source is reversed.", source.flip(1), right, target),
            ("The model predicts the source in place of the target.", source, swapped, source),
            (mixed, source.roll(1, 0), right, target),
            (mixed, source.roll(-1, 0), right, target),
        ):
            yield Step(name, encoder_input, inputs, labels, concerns=SOURCE)
        shifted = after(c.start, source)
        yield Step("The source is shifted.", shifted, right, target, concerns=SOURCE)

    def logits(self, step: Step) -> Tensor:
        """Return the logits of a step, shape [B, T, V]."""
        with torch.no_grad():
            logits = self.subject.call("logits", self.subject.model, step.source, step.inputs)
        tensor: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return tensor.float()


def drop(target: Tensor, pad: int) -> Tensor:
    """Return a copy of the target whose first column is padding."""
    labels = target.clone()
    labels[:, 0] = pad
    return labels
