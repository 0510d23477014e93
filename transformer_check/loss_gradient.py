"""What the gradient of a loss with respect to logits says of the loss (5.4).

The gradient of a cross entropy at a token is w (softmax(x) - q), with the weight w of the token and
its target distribution q. Other losses have other functions of x in place of the softmax.

Shape letters: B batch, T target, N tokens, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .cross_entropies import FORMS
from .subject import Config

EXACT = 2e-5
"""a gradient is surely explained if what remains of it is at most this part"""
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
    if float(fit_rows([], gradient, labels, pad)[1].max()) < EXACT:
        return next(iter(FORMS))  # the gradient does not depend on the logits
    shape = name_shape(logits, gradient, labels, pad)
    if shape:
        return shape
    coefficients, rest = fit_rows([logits.softmax(-1)], gradient, labels, pad)
    if float(rest.max()) < FITS:
        return name_weights_of_probability(logits, gradient, labels, coefficients[:, 0])
    rests = {}
    for says, functions in FORMS.items():
        _, rest = fit_rows(functions(logits), gradient, labels, pad)
        rests[says] = float(rest.max())
        if rests[says] < EXACT:
            return says

    def rest_of_temperature(number: float) -> float:
        p = (logits / math.exp(number)).softmax(-1)
        return float(fit_rows([p], gradient, labels, pad)[1].max())

    temperature, rest_of_it = search_number(-3.0, 3.0, rest_of_temperature)
    rests[f"The loss divides logits by a temperature of {math.exp(temperature):.3g}."] = rest_of_it
    return min(rests, key=rests.__getitem__) if min(rests.values()) < FITS else ""


def name_shape(logits: Tensor, gradient: Tensor, labels: Tensor, pad: int) -> str:
    """Return the sentence for a loss whose gradient is 0, or one number, at some classes."""
    size = gradient.abs().max()
    is_zero = gradient.abs() < 1e-6 * size
    is_label = torch.zeros_like(is_zero).scatter(1, labels[:, None], True)
    others = gradient[~is_label & ~is_zero]
    if len(others) and is_zero[~is_label].any() and is_constant(others):
        return "The loss is a hinge loss: each token's gradient is 0 or one number."
    if not is_zero.any() or is_zero.all(1).any():
        return ""
    kept = ~is_zero.all(0)
    if not kept.all() and kept[labels].all():
        functions = [logits[:, kept].softmax(-1), torch.ones_like(logits[:, kept])]
        own = is_label[:, kept].int().argmax(-1)
        _, rest = fit_rows(functions, gradient[:, kept], own, 0)
        if float(rest.max()) < FITS:
            ids = (~kept).nonzero().flatten().tolist()
            which = "padding" if ids == [pad] else f"{len(ids)} tokens, such as id {ids[0]}"
            return f"The softmax of the loss leaves out {which}."
    low, high = logits[~is_zero].aminmax()
    if ((logits < low) | (logits > high))[is_zero & ~is_label].all():
        return f"The loss bounds logits: those outside {low:.2g} to {high:.2g} have no gradient."
    return ""


def name_weights_of_probability(
    logits: Tensor, gradient: Tensor, labels: Tensor, weights: Tensor
) -> str:
    """Return the sentence for weights of tokens that depend on the token's probabilities."""
    if has_normaliser(logits, gradient):
        return NORMALISER
    p = logits.softmax(-1).gather(1, labels[:, None])[:, 0].double()
    if is_constant(weights):
        return A_FUNCTION
    part = part_of_sum(weights, p)
    if part is not None and part < 1:
        margin = -math.log(1 - part)
        return f"The loss subtracts a margin of {margin:.3g} from the logit of the label."
    if is_constant(weights / p):
        return "The loss has no logarithm: it adds up probabilities."
    return FOCAL if is_focal(logits, gradient, weights) else ""


def part_of_sum(weights: Tensor, p: Tensor) -> float | None:
    """Return the part of a class's probability that is missing in the sum of a softmax.

    Its tokens have weights [N] proportional to 1 / (1 - part · p); None if they have others.
    """
    basis = torch.stack([torch.ones_like(p), p], dim=1)
    first, slope = (torch.linalg.pinv(basis) @ (1 / weights)).tolist()
    close = (basis @ basis.new_tensor([first, slope]) * weights - 1).abs().max()
    part = -slope / first
    return part if float(close) < 1e-4 and abs(part) > 1e-2 else None


def is_focal(logits: Tensor, gradient: Tensor, weights: Tensor) -> bool:
    """Return whether the weights [N] of tokens with different losses depend on these losses."""
    distribution = logits.softmax(-1).double() - gradient / weights[:, None]
    losses = -(distribution * logits.log_softmax(-1)).sum(-1)
    likeness = torch.corrcoef(torch.stack([losses, weights]))[0, 1]
    labels = distribution.argmax(-1, keepdim=True)
    by_probability = weights[logits.gather(1, labels)[:, 0].sub(logits.logsumexp(-1)).argsort()]
    rises = by_probability.diff().gt(0)
    is_monotone = len(rises) > 3 and bool(rises.all() or not rises.any())
    return spread(weights) > 1e-2 and (float(likeness.abs()) > 0.95 or is_monotone)


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


def search_number(
    low: float, high: float, rest_of: Callable[[float], float]
) -> tuple[float, float]:
    """Return the number between two others that explains a gradient best, and what remains."""
    for _ in range(6):
        tried = torch.linspace(low, high, 25, dtype=torch.double).tolist()
        rests = [rest_of(number) for number in tried]
        best = min(range(len(rests)), key=rests.__getitem__)
        low = tried[max(best - 1, 0)]
        high = tried[min(best + 1, len(rests) - 1)]
    return tried[best], rests[best]


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
    places = torch.arange(target.size(1), device=target.device).expand_as(target)
    for place in range(1, target.size(1)):
        if bool((chosen == (real & (places >= place))).all()):
            return f"all tokens after the first {place} of each sentence"
    for words, side in ((target.lt(config.pad), "below"), (target.gt(config.pad), "above")):
        if bool((chosen == words & real).all()):
            return f"all tokens with an id {side} that of padding"
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
    usual = float(weights[real].median())
    other = real & ((weights / usual - 1).abs() > FITS)
    if int(other.sum()) == 1:
        ratio = float(weights[other]) / usual
        return (
            f"The token with id {int(target[other])} weighs {ratio:.4g} times as much as another."
        )
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
    if abs(divisor / tokens**0.5 - 1) < FITS:
        return [f"It is divided by {divisor:.4g}, the root of the number of tokens."]
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
