"""What ``training_loss`` computes, observed while it runs: inputs, labels, weights (3.1, 5.4).

It is for a training_loss() whose value equals no known loss. The embeddings show the ids that the
encoder and the decoder read; the gradient with respect to the model's logits shows labels, weights
and smoothing; a gradient of parameters that does not pass the logits shows other terms.

Shape letters: B batch, S source, T target, N tokens, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .loss_gradient import (
    A_FUNCTION,
    DIFFERENT,
    FITS,
    FOCAL,
    MISPLACED,
    NORMALISER,
    TIMES,
    has_normaliser,
    infer_labels,
    is_focal,
    name_direct_term,
    name_divisor,
    name_form,
    name_smoothing,
    name_tokens,
    name_weights,
)
from .subject import AdapterError, Subject
from .token_ids import (
    INPUT,
    LOSS,
    SOURCE,
    Mistake,
    is_of_other_sentences,
    join_rows,
    name_ids,
    name_labels,
    name_source,
    rows_of,
)

NO_GRADIENT = "which has no gradient"
LOOKUPS = ("embedding", "__getitem__", "index_select")


class Observer(TorchFunctionMode):
    """Records ids that look up embeddings, and tensors with the size of logits."""

    def __init__(self, vocabulary: int, sentences: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.sentences = sentences
        self.reads: list[Tensor] = []
        """ids [B, length]"""
        self.outputs: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in LOOKUPS:
            self.read(args)
        is_wide = isinstance(result, Tensor) and result.size()[-1:] == (self.vocabulary,)
        if is_wide and result.requires_grad and result.dim() > 1:
            self.outputs.append(result)
        return result

    def read(self, args: Any) -> None:
        """Record the ids with which rows of an embedding matrix are looked up."""
        tensors = [each for each in args if isinstance(each, Tensor) and each.dim() == 2]
        tables = [each for each in tensors if each.is_floating_point()]
        if len(tables) != 1 or tables[0].size(0) != self.vocabulary:
            return
        for ids in tensors:
            if ids.dtype == torch.long:
                rows = (self.sentences, 1)
                is_turned = ids.size(0) not in rows and ids.size(1) in rows
                self.reads.append((ids.t() if is_turned else ids).detach().clone())


class Pass(NamedTuple):
    """A run of the model in training_loss, whose logits the loss depends on."""

    output: Tensor
    """logits, in the shape in which training_loss has them"""
    gradient_of_output: Tensor
    logits: Tensor
    """[B, T, V]"""
    gradient: Tensor
    """[B, T, V]"""


class Call:
    """One call of training_loss with a batch: source [B, S] and target [B, T]."""

    def __init__(self, subject: Subject, source: Tensor, target: Tensor) -> None:
        self.subject = subject
        self.source = source
        self.target = target
        config = subject.config
        start = torch.full_like(target[:, :1], config.start)
        self.right = torch.cat([start, target[:, :-1]], dim=1)  # [B, T]
        observer = Observer(config.vocabulary, len(target))
        with observer:
            subject.call("logits", subject.model, source.clone(), self.right.clone())
        usual = observer.reads
        with Observer(config.vocabulary, len(target)) as observer:
            self.loss: Tensor = subject.call(
                "training_loss", subject.model, source.clone(), target.clone()
            )
        subject.model.eval()
        self.value = float(self.loss.detach())
        self.inputs: Tensor | None = None
        """the decoder's input, if it was observed"""
        self.encoder_inputs: Tensor | None = None
        self.passes: list[Pass] = []
        """of the whole batch, or of each sentence"""
        self.others: list[tuple[Tensor, Tensor]] = []
        """what encoder and decoder read in other runs on which the loss depends"""
        of_target = [n for n, ids in enumerate(usual) if torch.equal(ids, self.right)]
        of_source = [n for n, ids in enumerate(usual) if torch.equal(ids, source)]
        if of_target and of_source:
            self.find_pass(observer, len(usual), of_source[0], of_target[-1])

    def find_pass(self, observer: Observer, size: int, of_source: int, of_target: int) -> None:
        """Find the model's pass whose logits the loss depends on: the correct one, or the last.

        Args:
            observer: with what was recorded
            size: number of ids that the model reads in a pass
            of_source: which of them are the source
            of_target: which of them are the decoder's input
        """
        reads = observer.reads
        pairs = []
        for first in range(0, len(reads) - size + 1, size):
            pairs.append((reads[first + of_source], reads[first + of_target]))
        whole = [pair for pair in pairs if len(pair[0]) == len(pair[1]) == len(self.target)]

        def order(number: int) -> tuple[bool, int]:
            source, inputs = whole[number]
            return torch.equal(source, self.source) and torch.equal(inputs, self.right), number

        for number in sorted(range(len(whole)), key=order, reverse=True):
            pair = whole[number]
            found = self.find_logits(observer.outputs, *pair)
            if found is not None or self.inputs is None:
                self.encoder_inputs, self.inputs = pair
            if found is not None:
                self.passes = [found]
                for other in whole:
                    run = self.find_logits(observer.outputs, *other)
                    if run is not None and run.output is not found.output:
                        self.others.append(other)
                return
        single = [pair for pair in pairs if len(pair[0]) == len(pair[1]) == 1]
        of_single = [self.find_logits(observer.outputs, *pair) for pair in single]
        self.passes = [each for each in of_single if each is not None]
        if len(self.passes) == len(single) == len(self.target):
            pad = self.subject.config.pad
            self.encoder_inputs = join_rows([pair[0] for pair in single], pad)
            self.inputs = join_rows([pair[1] for pair in single], pad)
        else:
            self.passes = []

    def find_logits(self, outputs: list[Tensor], source: Tensor, inputs: Tensor) -> Pass | None:
        """Find the logits of a pass among tensors, and the gradient of the loss for them."""
        try:
            expected = self.logits_of(source, inputs)
        except AdapterError:
            return None
        for output in outputs if self.loss.requires_grad else []:
            if output.numel() != expected.numel():
                continue
            numbers = output.detach().float()
            for is_turned in (False, True):
                logits = expected.transpose(0, 1) if is_turned else expected
                if not torch.allclose(numbers.reshape(logits.shape), logits, 1e-4, 1e-5):
                    continue
                (gradient,) = torch.autograd.grad(
                    self.loss, output, retain_graph=True, allow_unused=True
                )
                if gradient is None:
                    continue
                shaped = gradient.detach().float().reshape(logits.shape)
                shaped = shaped.transpose(0, 1) if is_turned else shaped
                return Pass(output, gradient, expected, shaped)
        return None

    @property
    def logits(self) -> Tensor:
        """The logits [B, T, V]."""
        return join_rows([each.logits for each in self.passes], 0)

    @property
    def gradient(self) -> Tensor:
        """The gradient of the loss with respect to the logits [B, T, V]."""
        return join_rows([each.gradient for each in self.passes], 0)

    def logits_of(self, source: Tensor, inputs: Tensor) -> Tensor:
        """Return the model's logits [B, T, V]."""
        with torch.no_grad():
            logits = self.subject.call("logits", self.subject.model, source, inputs)
        tensor: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return tensor.detach().float()

    def name_mistake(self) -> Mistake | None:
        """Return the mistake that this call shows; None if it shows none."""
        again = Call(self.subject, self.source, self.target)
        if self.inputs is not None and again.inputs is not None:
            mistake = name_inputs(self, again)
            if mistake is not None:
                return mistake
        own, other = self.encoder_inputs, again.encoder_inputs
        if own is not None and other is not None and not torch.equal(own, other):
            return Mistake(
                "The source has random tokens: it differs from call to call.",
                SOURCE,
                f"the encoder's input {rows_of(own)}, then {rows_of(other)} for the same source",
            )
        if not abs(self.value - again.value) <= 1e-4 * abs(self.value):
            return Mistake(
                "training_loss() is random: it returns another value at each call.",
                LOSS,
                f"training_loss() = {self.value:.4f}, then {again.value:.4f} for the same batch",
            )
        if self.encoder_inputs is not None:
            mistake = name_source(self.source, self.encoder_inputs, self.subject.config)
            if mistake is not None:
                return mistake
        return name_loss(self) if self.passes else None


def name_inputs(call: Call, again: Call) -> Mistake | None:
    """Return the mistake in the decoder's input, from two calls; None if it is right."""
    inputs, target = call.inputs, call.target
    assert inputs is not None and again.inputs is not None
    width = min(inputs.size(1), target.size(1))
    inputs, labels, right = inputs[:, :width], target[:, :width], call.right[:, :width]
    real = labels.ne(call.subject.config.pad)
    found = f"the decoder's input {rows_of(inputs)} for the target {rows_of(target)}"
    if not torch.equal(again.inputs[:, :width], inputs):
        says = "The decoder's input has random tokens: it differs from call to call."
        return Mistake(says, INPUT, found)
    is_wrong = inputs.ne(right) & real
    if not is_wrong.any():
        return None
    later = real.clone()
    later[:, 0] = False
    unshifted = torch.cat([right[:, :1], labels[:, 1:]], dim=1)
    if torch.equal(inputs[real], unshifted[real]):
        says = (
            "The start token replaces the first token, and the target is not shifted: each later "
            "token is predicted from itself."
        )
        return Mistake(says, INPUT, found)
    if is_of_other_sentences(inputs, [right, labels, unshifted], later):
        says = "The decoder reads the target of another sentence of the batch."
        return Mistake(says, INPUT, found)
    for source_inputs in (right, inputs):
        try:
            best = call.logits_of(call.source, source_inputs).argmax(-1)
        except AdapterError:
            continue
        predictions = torch.cat([right[:, :1], best[:, :-1]], dim=1)
        if torch.equal(inputs[is_wrong], predictions[is_wrong]):
            share = f"{int(is_wrong.sum())} of {int(later.sum())} tokens"
            says = f"The decoder reads its own predictions in place of the target: {share}."
            return Mistake(says, INPUT, found)
    for by in (-1, 2, 3, 4):
        if torch.equal(inputs[later], target.roll(by, 1)[:, :width][later]):
            side = "left" if by < 0 else "right"
            says = f"The target is shifted by {abs(by)} to the {side}, in a circle."
            return Mistake(says, INPUT, found)
    if is_reversed(inputs, labels, real):
        return Mistake("The decoder reads the target from its end: it is reversed.", INPUT, found)
    values = inputs[is_wrong].unique()
    if len(values) == 1 and int(is_wrong.sum()) < int(real.sum()):
        says = f"The decoder reads id {int(values)} in place of {int(is_wrong.sum())} tokens."
        return Mistake(says, INPUT, found)
    return Mistake("The decoder's input is not the target shifted right.", INPUT, found)


def is_reversed(inputs: Tensor, labels: Tensor, real: Tensor) -> bool:
    """Return whether the decoder reads each target [B, T] from its last token on."""
    for ids, row, is_token in zip(inputs, labels, real, strict=True):
        tokens = row[is_token]
        for first in (tokens, tokens[:-1], row):  # with the end, or without; with padding
            backwards = first.flip(0)[: len(first) - 1]
            if torch.equal(ids[1 : 1 + len(backwards)], backwards):
                break
        else:
            return False
    return True


def name_loss(call: Call) -> Mistake | None:
    """Return the mistake that the gradient of the logits shows; None if it shows none."""
    config = call.subject.config
    gradient = call.gradient
    size = gradient.abs().amax(-1)  # [B, T]
    counts = size > 1e-6 * size.max()
    target = call.target[:, : size.size(1)]
    if size.size(1) > target.size(1):  # the model has more inputs than there are labels
        more = torch.full_like(size[:, target.size(1) :], config.pad, dtype=torch.long)
        target = torch.cat([target, more], dim=1)
    real = target.ne(config.pad)
    rows = (call.logits[counts], gradient[counts])
    labels, coefficients, rest = infer_labels(*rows, config.pad)
    if float(rest.max()) > FITS:
        says = name_form(*rows, target[counts], config.pad)
        if not says and is_misplaced(call):
            says = MISPLACED
        return Mistake(says.replace("The loss", "training_loss()", 1), LOSS) if says else None
    if has_normaliser(*rows):
        return Mistake(NORMALISER.replace("The loss", "training_loss()"), LOSS)
    if not torch.equal(labels[real[counts]], target[counts & real]):
        return name_labels(target, counts & real, labels[real[counts]])
    if bool((counts & ~real).any()):
        return Mistake("training_loss(): Padding has a part in it.", LOSS)
    left_out = real & ~counts
    weights = torch.zeros_like(size).masked_scatter(counts, coefficients[:, 0].float())
    parts = []
    if call.target[:, size.size(1) :].ne(config.pad).any():
        parts.append(f"It leaves out the tokens after the first {size.size(1)} of each target.")
    if left_out.any():
        parts.append(f"It leaves out {name_tokens(left_out, target, config)}.")
    counted = target.masked_fill(left_out, config.pad)
    unequal = name_weights(weights, counted, config)
    if unequal.startswith(DIFFERENT) and is_focal(*rows, coefficients[:, 0]):
        unequal = FOCAL
    unequal = unequal.replace("The loss", "It", 1)
    parts += [unequal] if unequal else []
    parts += name_smoothing(coefficients, config)
    of_divisor = []
    if not unequal:
        divisor = 1 / float(weights[counts].median())
        of_divisor = name_divisor(divisor, counted, call.source, call.target, config.pad)
    other_terms = name_other_terms(call, rows, coefficients) if unequal != FOCAL else []
    if of_divisor and TIMES in of_divisor[0] and NO_GRADIENT in "".join(other_terms):
        return Mistake(A_FUNCTION.replace("The loss", "training_loss()"), LOSS)
    parts += of_divisor + other_terms
    return Mistake(f"training_loss(): {' '.join(parts)}", LOSS) if parts else None


def is_misplaced(call: Call) -> bool:
    """Return whether another last label changes the gradient of another position most."""
    target = call.target.clone()
    target[0, -1] = call.target[0, 0]  # a label that is no input of the decoder
    other = Call(call.subject, call.source, target)
    if not other.passes or other.gradient.shape != call.gradient.shape:
        return False
    change = (other.gradient - call.gradient).abs().amax(-1)  # [B, T]
    return change.size(1) == target.size(1) and int(change.argmax()) != target.size(1) - 1


def name_other_terms(call: Call, rows: tuple[Tensor, Tensor], coefficients: Tensor) -> list[str]:
    """Return the sentence for a term of the loss that is no function of the logits."""
    logits, gradient = rows
    weights = coefficients[:, :1].float()
    distribution = logits.softmax(-1) - gradient / weights
    each = -(distribution * logits.log_softmax(-1)).sum(-1)
    entropies = -(distribution.clamp(min=1e-12).log() * distribution).sum(-1)
    more = call.value - float((weights[:, 0] * each).sum())
    of_entropy = float((weights[:, 0] * entropies).sum())
    model = call.subject.model
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    parameters = list(named.values())
    options: dict[str, Any] = {"retain_graph": True, "allow_unused": True}
    whole = torch.autograd.grad(call.loss, parameters, **options)
    outputs = [each.output for each in call.passes]
    gradients = [each.gradient_of_output for each in call.passes]
    through = torch.autograd.grad(outputs, parameters, gradients, **options)
    direct = {}
    for name, of_loss, of_logits in zip(named, whole, through, strict=True):
        if of_loss is None:
            continue
        rest = of_loss if of_logits is None else of_loss - of_logits
        if float(rest.norm()) > FITS * float(of_loss.norm()) + 1e-7:
            direct[name] = rest.flatten()
    if direct:
        says = name_direct_term(direct, named, more)
        if call.others:
            context = (call.source, call.target, call.subject.config)
            source, inputs = (name_ids(ids, *context) for ids in call.others[0])
            says = (
                f"It adds a term of {more:.4g} of another run of the model, in which the encoder "
                f"reads {source} and the decoder {inputs}."
            )
        return [says]
    close = 1e-4 * max(1.0, abs(call.value))
    if abs(more) < close or abs(more + of_entropy) < close:
        return []
    return [f"It adds {more:.4g}, {NO_GRADIENT}."]
