"""Checks that need only ``build`` and ``logits``: what reaches what, matrices, heads, dropout.

Shape letters: B batch, S source, T target, V vocabulary, D d_model, N layers, H heads.
"""

from collections import Counter
from itertools import product
from typing import Any

import torch

from .card import DIFFERS, ERROR, ON_PURPOSE, Result, check_of, not_checked
from .masks import EARLIER, hidden_words
from .subject import SAME, Config, Subject, difference
from .trace import traced


def leak(seen: float, expected: str, what: str, meaning: str) -> Result:
    """As in the paper if nothing has changed; else an error, with the size of the change."""
    if seen < SAME:
        return Result()
    changed = f"{what} changes them by {seen:.2g} standard deviations"
    return Result(ERROR, expected, changed, meaning)


@check_of("3.2.3", "later target words change nothing")
def later_words(subject: Subject) -> Result:
    """No position sees one after it, so neither may its logits depend on one."""
    cut = 2
    changed = subject.target.clone()
    changed[:, cut:] = subject.words(2, changed.size(1) - cut, seed=1)
    after = subject.logits(subject.source, changed)[:, :cut]
    return leak(
        difference(subject.output[:, :cut], after),
        "the same logits at earlier positions",
        "another later word",
        "The decoder sees the word that it is to predict: the loss falls; translations are bad.",
    )


@check_of("3.1", "the decoder uses the encoder's output")
def uses_source(subject: Subject) -> Result:
    """Another source gives other logits."""
    other = subject.logits(subject.words(2, subject.source.size(1), seed=1), subject.target)
    if difference(subject.output, other) > SAME:
        return Result()
    return Result(
        ERROR,
        "other logits for another source",
        "the same logits",
        "The decoder is a language model: every source gets the same translation.",
    )


@check_of("3.2.3", "source padding changes nothing")
def source_padding(subject: Subject) -> Result:
    """Attention may not look at padding, in the encoder nor from the decoder."""
    padded = subject.logits(subject.padded(subject.source, 3), subject.target)
    return leak(
        difference(subject.output, padded),
        "the same logits",
        "padding after the source",
        "A translation depends on how long the other sentences of its batch are.",
    )


@check_of("5.1", "target padding changes nothing")
def target_padding(subject: Subject) -> Result:
    """Words are the same words, however much padding follows them."""
    padded = subject.logits(subject.source, subject.padded(subject.target, 2))
    if hidden_words(subject).any():
        return not_checked(f"see '{EARLIER}'")
    return leak(
        difference(subject.output, padded[:, : subject.target.size(1)]),
        "the same logits of the words",
        "padding after the target",
        "The loss of a sentence depends on how long the other targets of its batch are.",
    )


@check_of("5.1", "other sentences of a batch change nothing")
def neighbours(subject: Subject) -> Result:
    """A sentence alone, and as the last of a batch."""
    alone = subject.logits(subject.source[-1:], subject.target[-1:])
    return leak(
        difference(subject.output[-1:], alone),
        "the same logits for a sentence alone and in a batch",
        "a sentence before it",
        "Sentences of a batch are mixed, or a dimension is taken for another one.",
    )


@check_of("3.5", "the order of the source matters")
def order(subject: Subject) -> Result:
    """Without positions, attention sees a set of words."""
    turned = subject.logits(subject.source.flip(1), subject.target)
    if difference(subject.output, turned) > SAME:
        return Result()
    return Result(
        ERROR,
        "other logits when the source is turned round",
        "the same logits",
        "The encoder does not know where a word stands: it translates a bag of words.",
    )


@check_of("3.4", "one matrix has three uses")
def one_matrix(subject: Subject) -> Result:
    """Source, target and output have one matrix if only one parameter has a row for each type."""
    types, width = subject.config.vocabulary, subject.config.d_model
    shapes = {(types, width), (width, types)}
    names = [n for n, p in subject.model.named_parameters() if tuple(p.shape) in shapes]
    if len(names) == 1:
        return Result()
    if not names:
        return not_checked(f"no parameter is {types} by {width}: build the sizes of CONFIG")
    return Result(
        ON_PURPOSE,
        "one parameter for source, target and output",
        f"{len(names)}: {', '.join(names)}",
        f"It has {(len(names) - 1) * types * width:,} more parameters at this size.",
    )


def expected_parameters(
    c: Config, matrices: int = 1, biases: bool = True, output_bias: bool = False, norms: int = 0
) -> int:
    """How many parameters the paper's model of a size has, or one with some usual differences.

    Args:
        c: the size
        matrices: with a row for each type (one in the paper, 3.4)
        biases: of the attention's projections, as in tensor2tensor
        output_bias: of the pre-softmax matrix
        norms: more of them than one for each sub-layer
    """
    d_k, d_v = c.widths()
    attention = 2 * c.d_model * c.heads * (d_k + d_v)
    if biases:
        attention += c.heads * (2 * d_k + d_v) + c.d_model
    feed_forward = 2 * c.d_model * c.d_ff + c.d_ff + c.d_model
    norm = 2 * c.d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    positions = 2 * c.max_length * c.d_model if c.learned_positions else 0
    words = matrices * c.vocabulary * c.d_model + output_bias * c.vocabulary
    return words + positions + c.layers * (encoder + decoder) + norms * norm


@check_of("Table 3", "as many parameters as the paper's model of this size")
def parameters(subject: Subject) -> Result:
    """Another number means another matrix, bias or norm; which, if one explanation fits."""
    c = subject.config
    seen = sum(p.numel() for p in subject.model.parameters() if p.requires_grad)
    expected = expected_parameters(c)
    if seen == expected:
        return Result()
    usual = product((1, 2, 3), (True, False), (False, True), range(3))
    fitting = [which for which in usual if seen == expected_parameters(c, *which)]
    meaning = "No usual difference (untied matrices, biases, last norms) explains the number."
    if fitting:
        matrices, biases, output_bias, norms = fitting[0]
        parts = {
            f"{matrices} matrices of words": matrices > 1,
            "no biases in attention": not biases,
            "a bias before the softmax": output_bias,
            f"{norms} more norm{'s' * (norms > 1)}": norms > 0,
        }
        why = ", ".join(part for part, is_there in parts.items() if is_there)
        meaning = f"It is that of a model with {why}."
    return Result(
        ON_PURPOSE if fitting else DIFFERS,
        f"{expected:,}",
        f"{seen:,} ({seen - expected:+,})",
        meaning,
    )


@check_of("3.2.2", "each layer has h heads, and no two are alike")
def heads(subject: Subject) -> Result:
    """Of one sentence, the softmaxes of each kind are h matrices in each layer."""
    c = subject.config
    s = subject.source.size(1)
    t = subject.target.size(1)
    with traced() as trace:
        subject.logits(subject.source[:1], subject.target[:1])
    kinds = {"the encoder": (s, s), "the decoder": (t, t), "cross-attention": (t, s)}
    seen = []
    for kind, shape in kinds.items():
        own = [w.reshape(-1, *shape) for w in trace.softmaxes if w.shape[-2:] == shape]
        if not own:
            continue
        weights = torch.cat(own)
        alike = 0
        for first in range(0, len(weights), c.heads):
            alike += pairs_alike(weights[first : first + c.heads])
        if len(weights) != c.heads * c.layers or alike:
            seen.append(f"{len(weights)} in {kind}, where {alike} pairs of a layer are alike")
    if not any(w.shape[-2:] == (s, s) for w in trace.softmaxes):
        return not_checked(f"no softmax of torch's over {s} words was seen in the encoder")
    if not seen:
        return Result()
    return Result(
        DIFFERS,
        f"{c.heads} different heads in each of {c.layers} layers",
        "; ".join(seen),
        "Heads that are copies compute one thing h times; the paper's have a part of each matrix.",
    )


def pairs_alike(heads: torch.Tensor) -> int:
    """How many pairs of heads [H, T, S] have the same weights."""
    alike = 0
    for i in range(len(heads)):
        for j in range(i):
            alike += int(torch.allclose(heads[i], heads[j], atol=1e-6))
    return alike


def in_training(subject: Subject, function: str, *arguments: Any) -> tuple[Any, Any, Any]:
    """What a function gives in training with dropout 0.5, in evaluation, and a trace of the first.

    ``arguments`` follow the model.
    """
    model = subject.build(dropout=0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        calm = subject.call(function, model, *arguments)
        model.train()
        with traced() as trace:
            lively = subject.call(function, model, *arguments)
    return lively.detach(), calm.detach(), trace


@check_of("5.4", "dropout is active only in training")
def dropout_in_training(subject: Subject) -> Result:
    """Two passes in evaluation are equal, two in training are not."""
    model = subject.build(dropout=0.5)
    batch = subject.source, subject.target, model
    resting = difference(subject.logits(*batch), subject.logits(*batch))
    model.train()
    training = difference(subject.logits(*batch), subject.logits(*batch))
    model.eval()
    if resting > SAME:
        return Result(
            ERROR,
            "the same logits twice after eval()",
            f"a difference of {resting:.2g} standard deviations",
            "Dropout is on in evaluation: results depend on the random numbers.",
        )
    if training > SAME:
        return rate_is_that_of_config(subject)
    return Result(
        DIFFERS,
        "other logits each time after train(), with config.dropout = 0.5",
        "the same logits",
        "There is no dropout: config.dropout is not used.",
    )


def rate_is_that_of_config(subject: Subject) -> Result:
    """Nothing is dropped in training where config.dropout is zero."""
    batch = subject.source, subject.target, subject.model
    subject.model.train()
    try:
        away = difference(subject.output, subject.logits(*batch))
    finally:
        subject.model.eval()
    if away < SAME:
        return Result()
    return Result(
        DIFFERS,
        "the same logits in training as in evaluation, with config.dropout = 0",
        f"logits {away:.2g} standard deviations away",
        "A dropout has a rate of its own, or something else is done in training alone.",
    )


@check_of("5.4", "dropout is in the paper's places")
def dropout_places(subject: Subject) -> Result:
    """By the shapes of the random numbers: once on embeddings, once for each sub-layer."""
    c = subject.config
    batch, length = subject.source.shape
    steps = subject.target.size(1)
    _, _, trace = in_training(subject, "logits", subject.source, subject.target)
    seen: Counter[str] = Counter()
    rows = {batch * length: "encoder", batch * steps: "decoder"}
    for shape in trace.draws:
        count = torch.Size(shape).numel() // shape[-1] if shape else 0
        kinds = {c.d_model: rows.get(count, "other"), c.d_ff: "feed-forward hidden"}
        kinds |= {length: "attention weights", steps: "attention weights"}
        seen[kinds.get(shape[-1] if shape else 0, "other")] += 1
    if not seen:
        return not_checked("no random numbers of torch's were seen in training")
    expected = Counter(encoder=1 + 2 * c.layers, decoder=1 + 3 * c.layers)
    if seen == expected:
        return Result()
    on_purpose = {"attention weights", "feed-forward hidden"}
    usual = set((seen - expected).keys()) <= on_purpose and not expected - seen
    more = [f"on {place} {n}" for place, n in seen.items()]
    return Result(
        ON_PURPOSE if usual else DIFFERS,
        f"on embeddings and outputs of sub-layers: encoder {expected['encoder']} times, decoder "
        f"{expected['decoder']}",
        ", ".join(more),
        "The paper has dropout on the sums of embeddings and positions, and on what each sub-layer "
        "gives, nowhere else.",
    )
