"""What the gradient of a loss with respect to logits says of the loss (5.4).

The gradient of a cross entropy at a token is w (softmax(x) - q), with the weight w of the token and
its target distribution q. Other losses have other functions of x in place of the softmax.

Shape letters: B batch, T target, N tokens, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .subject import Config

FITS = 1e-3
"""a gradient is explained if what remains of it is at most this part"""

NORMALISER = "The loss adds the square of log Z, the softmax's normaliser (z-loss)."

FOCAL = "The weight of a token depends on its probability, as in a focal loss."
MISPLACED = (
    "The loss compares labels with logits of other positions: a wrong view() or transpose() of "
    "the logits."
)
A_FUNCTION = "The loss is a function of the cross entropy, such as its square, root or logarithm."
TIMES = "times the mean over tokens"
DIFFERENT = "Tokens have different weights in the loss"


def double_softmax(x: Tensor) -> list[Tensor]:
    """Return the functions in the gradient of a cross entropy of the softmax's softmax."""
    p = x.softmax(-1)
    return [p * p.softmax(-1), p]


def squared_probabilities(x: Tensor) -> list[Tensor]:
    """Return the functions in the gradient of a squared error of probabilities."""
    p = x.softmax(-1)
    return [p * p, p]


def entropy_terms(x: Tensor) -> list[Tensor]:
    """Return the functions in the gradient of a cross entropy plus an entropy."""
    p = x.softmax(-1)
    return [p, p * x.log_softmax(-1)]


FORMS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "The loss has no log_softmax: nll_loss() needs log-probabilities, and gets logits.": (
        lambda x: []
    ),
    "The loss is a binary cross entropy: it has a sigmoid for each class in place of a softmax.": (
        lambda x: [x.sigmoid()]
    ),
    "The loss is a squared error of the logits.": lambda x: [x],
    "The loss adds the squares of the logits.": lambda x: [x.softmax(-1), x],
    "The loss applies the softmax twice: its input is logits, not probabilities.": double_softmax,
    "The loss is a squared error of probabilities.": squared_probabilities,
    "The loss adds a multiple of the entropy of the model's distribution.": entropy_terms,
}
"""functions of logits [N, V] in the gradient of a wrong loss, by the sentence of the mistake"""


def fit_rows(
    functions: list[Tensor], gradient: Tensor, labels: Tensor, pad: int
) -> tuple[Tensor, Tensor]:
    """Write the gradient of each token as a sum of functions of its logits.

    Args:
        functions: each [N, V]
        gradient: [N, V]
        labels: [N]
        pad: id of padding

    Returns:
        the coefficients [N, K] of the functions, then of the label, all classes and padding; and
        what remains of the gradient, as a part of it [N]
    """
    label = torch.zeros_like(gradient).scatter(1, labels[:, None], 1.0)
    padding = torch.zeros_like(gradient)
    padding[:, pad] = 1.0
    parts = [*functions, label, torch.ones_like(gradient), padding]
    basis = torch.stack(parts, dim=-1).double()  # [N, V, K]
    rows = gradient.double()[..., None]
    coefficients = torch.linalg.pinv(basis) @ rows
    rest = (rows - basis @ coefficients)[..., 0].norm(dim=-1)
    return coefficients[..., 0], rest / rows[..., 0].norm(dim=-1).clamp(min=1e-30)


def name_form(logits: Tensor, gradient: Tensor, labels: Tensor, pad: int) -> str:
    """Return the sentence of the wrong loss that has this gradient; empty if it is unknown.

    Args:
        logits: [N, V]
        gradient: [N, V], of tokens that have a part in the loss
        labels: [N]
        pad: id of padding
    """
    coefficients, rest = fit_rows([logits.softmax(-1)], gradient, labels, pad)
    if float(rest.max()) < FITS:
        return name_weights_of_probability(logits, gradient, labels, coefficients[:, 0])
    for says, functions in FORMS.items():
        _, rest = fit_rows(functions(logits), gradient, labels, pad)
        if float(rest.max()) < FITS:
            return says
    temperature = temperature_of(logits, gradient, labels, pad)
    if temperature is None:
        return ""
    return f"The loss divides logits by a temperature of {temperature:.3g}."


def name_weights_of_probability(
    logits: Tensor, gradient: Tensor, labels: Tensor, weights: Tensor
) -> str:
    """Return the sentence for weights of tokens that depend on the token's probabilities."""
    if has_normaliser(logits, gradient):
        return NORMALISER
    p = logits.softmax(-1).gather(1, labels[:, None])[:, 0].double()
    if is_constant(weights):
        return A_FUNCTION
    if is_constant(weights / p):
        return "The loss has no logarithm: it adds up probabilities."
    return FOCAL if is_focal(logits, gradient, weights) else ""


def is_focal(logits: Tensor, gradient: Tensor, weights: Tensor) -> bool:
    """Return whether the weights [N] of tokens with different losses depend on these losses."""
    distribution = logits.softmax(-1).double() - gradient / weights[:, None]
    losses = -(distribution * logits.log_softmax(-1)).sum(-1)
    likeness = torch.corrcoef(torch.stack([losses, weights]))[0, 1]
    return spread(weights) > 1e-2 and float(likeness.abs()) > 0.95


def has_normaliser(logits: Tensor, gradient: Tensor) -> bool:
    """Return whether a token's gradient has a sum, and it is proportional to log Z."""
    sums = gradient.double().sum(-1)
    if float(sums.abs().min()) < 1e-5 * float(gradient.abs().max()):
        return False
    log_z = logits.double().logsumexp(-1)
    return is_constant(sums / log_z) and not is_constant(sums)


def spread(numbers: Tensor) -> float:
    """Return the largest relative distance of numbers from their median."""
    middle = numbers.median()
    return float((numbers - middle).abs().max() / middle.abs().clamp(min=1e-30))


def is_constant(numbers: Tensor) -> bool:
    """Return whether all numbers are equal, up to rounding."""
    return spread(numbers) < FITS


def temperature_of(logits: Tensor, gradient: Tensor, labels: Tensor, pad: int) -> float | None:
    """Return the number by which the logits of a softmax are divided; None if none fits."""
    low, high = 0.05, 20.0
    for _ in range(4):
        powers = torch.linspace(0, 1, 25, dtype=torch.double)
        tried = low * (high / low) ** powers
        rests = []
        for temperature in tried.tolist():
            p = (logits / temperature).softmax(-1)
            rests.append(float(fit_rows([p], gradient, labels, pad)[1].max()))
        best = min(range(len(rests)), key=rests.__getitem__)
        low = float(tried[max(best - 1, 0)])
        high = float(tried[min(best + 1, len(rests) - 1)])
    return float(tried[best]) if min(rests) < FITS else None


def name_tokens(chosen: Tensor, target: Tensor, config: Config) -> str:
    """Name tokens of a target, such as the end tokens.

    Args:
        chosen: which tokens [B, T]
        target: [B, T]
        config: with the ids of padding and of the end
    """
    real = target.ne(config.pad)
    ends = target.eq(config.end) & real
    first = torch.zeros_like(real)
    first[:, 0] = True
    sentences = [n for n in range(len(target)) if bool(chosen[n][real[n]].all())]
    if bool((chosen == ends).all()):
        return "the end tokens"
    if bool((chosen == first).all()):
        return "the first token of each sentence"
    rows = torch.zeros_like(real)
    rows[sentences] = real[sentences]
    if sentences and bool((chosen == rows).all()):
        if len(sentences) == len(target) - 1 and len(target) > 2:
            counted = next(n for n in range(len(target)) if n not in sentences)
            name = {0: "first", len(target) - 1: "last"}.get(counted, f"{counted + 1}th")
            return f"every sentence of the batch except the {name} sentence"
        return f"{len(sentences)} of {len(target)} sentences"
    for words, side in ((target.lt(config.pad), "below"), (target.gt(config.pad), "above")):
        if bool((chosen == words & real).all()):
            return f"tokens whose ids are {side} that of padding"
    ids = target[chosen].unique()
    if len(ids) == 1 and bool((chosen == target.eq(ids)).all()):
        return f"tokens with id {int(ids)}"
    return f"{int(chosen.sum())} of {int(real.sum())} tokens"


def name_weights(weights: Tensor, target: Tensor, config: Config) -> str:
    """Return the sentence for tokens with different weights; empty if they are equal.

    Args:
        weights: [B, T], ignored at padding, not zero at tokens
        target: [B, T]
        config: with the ids of padding and of the end
    """
    real = target.ne(config.pad)
    weights = weights.double()
    if is_constant(weights[real]):
        return ""
    ends = target.eq(config.end) & real
    words = real & ~ends
    if is_constant(weights[words]) and is_constant(weights[ends]):
        ratio = float(weights[ends].median() / weights[words].median())
        return f"The end token weighs {ratio:.4g} times as much as another token."
    lengths = real.sum(1, keepdim=True)
    if is_constant((weights * lengths)[real]):
        return "The loss is a mean of the sentences' means."
    rows = [float(weights[n][real[n]].mean()) for n in range(len(target))]
    if all(is_constant(weights[n][real[n]]) for n in range(len(target))):
        ratios = " : ".join(f"{row / min(rows, key=abs):.3g}" for row in rows)
        return f"The sentences of a batch have different weights ({ratios})."
    full = [n for n in range(target.size(1)) if int(real[:, n].sum())]
    columns = [weights[:, n][real[:, n]] for n in full]
    low, high = weights[real].min(), weights[real].max()
    if all(is_constant(column) for column in columns):
        steps = real.sum(0, keepdim=True)
        if is_constant((weights * steps)[real]):
            return "The loss is a mean of the steps' means."
        return (
            f"The weight of a token depends on its position: {float(columns[0][0]):.3g} at the "
            f"first and {float(columns[-1][0]):.3g} at the last."
        )
    return f"{DIFFERENT}: from {float(low):.3g} to {float(high):.3g}."


def name_distribution(
    on_target: float, on_others: float, types: int, epsilon: float, loss: str = "The loss"
) -> str:
    """Return the sentence for the target distribution of a wrong label smoothing.

    Args:
        on_target: the probability of the label
        on_others: the mean probability of each other class
        types: number of classes
        epsilon: ε_ls of the paper's loss
        loss: the subject of the sentence
    """
    total = on_target + on_others * (types - 1)
    if on_others < -1e-5:
        return (
            f"{loss} subtracts the label smoothing: each other token has the negative probability "
            f"{on_others:.4f}."
        )
    if abs(total - 1) > 1e-3:
        return f"The smoothed labels sum to {total:.3g} instead of 1."
    if epsilon and abs(on_target - epsilon) < 1e-3 and epsilon < 0.5:
        return (
            f"{loss} swaps ε_ls and 1 - ε_ls: the label has the probability {on_target:.2g}, and "
            f"{1 - on_target:.2g} is divided among the other tokens."
        )
    of_others = f"{1 - on_target:.3g}"
    of_all = (
        f"{on_others * types:.3g}"  # the label has its share of it, too: the rounder one is meant
    )
    if len(of_all) < len(of_others):
        return f"{loss} has label smoothing {of_all}, divided among all tokens."
    return f"{loss} has label smoothing {of_others}."


def name_smoothing(coefficients: Tensor, config: Config) -> list[str]:
    """Return the sentence for a wrong label smoothing, from coefficients [N, 4]."""
    weights, on_label, on_all, on_pad = coefficients.unbind(1)
    on_others = float((-on_all / weights).mean())
    on_target = float((-(on_label + on_all) / weights).mean())
    of_pad = on_others - float((on_pad / weights).mean())
    epsilon, types = config.label_smoothing, config.vocabulary
    share = epsilon / types
    known = (
        (1 - epsilon, epsilon / (types - 1), epsilon / (types - 1)),
        (1 - epsilon + share, share, share),
        (1 - epsilon, epsilon / (types - 2), 0.0),
    )
    for shares in known:
        pairs = zip((on_target, on_others, of_pad), shares, strict=True)
        if all(abs(seen - expected) < 1e-4 for seen, expected in pairs):
            return []
    if abs(on_target - 1) < 1e-4 and abs(on_others) < 1e-6:
        return ["It has no label smoothing."]
    return [name_distribution(on_target, on_others, types, epsilon, "It")]


def name_divisor(
    divisor: float, counted: Tensor, source: Tensor, target: Tensor, pad: int
) -> list[str]:
    """Return the sentence for a sum that is divided by a wrong number.

    Args:
        divisor: of the sum
        counted: the target, with padding in place of tokens that have no part in the loss [B, T]
        source: [B, S]
        target: [B, T]
        pad: id of padding
    """
    tokens = int(counted.ne(pad).sum())
    names = {
        "": 1,
        "tokens": tokens,
        "tokens of the target": int(target.ne(pad).sum()),
        "sentences": len(target),
        "positions of the target, padding included": target.numel(),
        "tokens of the longest sentence": target.size(1),
        "tokens of the source": int(source.ne(pad).sum()),
        "positions of the source, padding included": source.numel(),
        "tokens of the longest source": source.size(1),
        "tokens of source and target": int(source.ne(pad).sum() + target.ne(pad).sum()),
    }
    for name, number in names.items():
        if abs(divisor / number - 1) < FITS:
            is_right = name in ("", "tokens")
            return [] if is_right else [f"It is divided by {number}, the number of {name}."]
    times = tokens / divisor
    return [f"It is {times:.4g} {TIMES}, a sum divided by {divisor:.4g}."]


def infer_labels(logits: Tensor, gradient: Tensor, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the labels [N] that explain a gradient best, coefficients [N, 4], and what remains.

    A label is the class with the lowest gradient, or with the highest if its sign is wrong.
    """
    p = [logits.softmax(-1)]
    lowest, highest = gradient.argmin(-1), gradient.argmax(-1)
    of_lowest = fit_rows(p, gradient, lowest, pad)
    of_highest = fit_rows(p, gradient, highest, pad)
    is_highest = of_highest[1] < of_lowest[1]
    coefficients = torch.where(is_highest[:, None], of_highest[0], of_lowest[0])
    rest = torch.where(is_highest, of_highest[1], of_lowest[1])
    return torch.where(is_highest, highest, lowest), coefficients, rest


def is_multiple(a: Tensor, b: Tensor) -> bool:
    """Return whether one vector is a multiple of another."""
    return abs(float(torch.cosine_similarity(a.double(), b.double(), dim=0))) > 0.99


def name_direct_term(direct: dict[str, Tensor], named: dict[str, Tensor], more: float) -> str:
    """Return the sentence for a term with a gradient of parameters that passes no logits."""
    of_term = torch.cat(list(direct.values()))
    values = torch.cat([named[name].detach().flatten() for name in direct])
    if is_multiple(of_term, values):
        return f"It adds the squares of the weights, as a weight decay: {more:.4g}."
    if is_multiple(of_term, values.sign()):
        return f"It adds the absolute values of the weights: {more:.4g}."
    count = f"{len(direct)} of {len(named)} parameters"
    names = ", ".join(list(direct)[:3])
    return (
        f"It adds a term of {more:.4g} that does not depend on the logits, with a gradient in "
        f"{count}, such as {names}."
    )
