"""Checks of ``embedding`` and ``target_embedding``: factor, positions, dropout (3.4, 3.5, 5.4).

Shape letters: B batch, L length, V vocabulary, D d_model.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .dropout import run_in_training
from .findings import Finding, differs, not_run, passed, variant
from .modes import set_to_zero
from .registry import check_of
from .sinusoids import TIMES, Formula, formula_of
from .subject import SAME, Subject, difference

NO_MULTIPLE = "the function returns no rows of a matrix times a number, plus positions"


EmbeddingCheck = Callable[[Subject, str], Finding]
SIDES = {"source": "embedding", "target": "target_embedding"}


def check_of_embeddings(
    check_id: str, section: str, **texts: Any
) -> Callable[[EmbeddingCheck], EmbeddingCheck]:
    """Register the decorated function as a check of the source and of the target embeddings."""

    def add(look: EmbeddingCheck) -> EmbeddingCheck:
        for side, function in SIDES.items():
            check_of(check_id, section, **texts, needs=(function,), side=side)(
                lambda subject, function=function: look(subject, function)
            )
        return look

    return add


def embed(subject: Subject, function: str, ids: Tensor) -> Tensor:
    """Return the embeddings of ids [B, L], shape [B, L, D]."""
    return subject.tensor(function, (*ids.shape, subject.config.d_model), subject.model, ids)


def factor_and_rows(subject: Subject, function: str) -> tuple[float, Tensor, float]:
    """Return the factor of the embeddings, the matrix [V, D], and the misfit as a ratio.

    They are fitted to the difference of two tokens at one position, where positions cancel.
    """
    ids = torch.stack([subject.source[0], subject.source[1]])
    embeddings = embed(subject, function, ids).detach()
    between_words = (embeddings[0] - embeddings[1]).flatten()
    types, width = subject.config.vocabulary, subject.config.d_model
    fits = []
    for matrix in (p.detach().float() for p in subject.model.parameters()):
        if matrix.shape == (types, width):
            rows = (matrix[ids[0]] - matrix[ids[1]]).flatten()
            factor = float(rows @ between_words / (rows @ rows).clamp(min=1e-12))
            fits.append(
                (
                    factor,
                    matrix,
                    float((between_words - factor * rows).norm() / between_words.norm()),
                )
            )
    return min(fits, key=lambda fit: fit[2], default=(math.nan, torch.empty(0), math.inf))


@check_of_embeddings(
    "embedding-scale",
    "3.4",
    passes="Embeddings are multiplied by √d_model.",
    fails="Embeddings are not multiplied by √d_model.",
)
def embedding_factor(subject: Subject, function: str) -> Finding:
    """Measure the factor between the matrix and the first layer, wherever it is applied."""
    factor, _, misfit = factor_and_rows(subject, function)
    expected = subject.config.d_model**0.5
    growth = growth_with_rows(subject, function)
    if misfit < 1e-2 and growth < LONGER / 2:
        return differs(
            f"rows {LONGER:.0f} times as long give embeddings {growth:.3g} times as far apart",
            f"{LONGER:.0f} times as far",
            says=LIMITED,
            fix="Remove max_norm, or what else shortens embeddings.",
            explains=("batch-independence", "training-loss", "training-mode", "source-padding")
            + ("target-padding", "causal-mask", "gradients", "output-scale", "adapter"),
        )
    if misfit >= 1e-2:
        says, fix = why_no_multiple(subject, function)
        return differs(
            "no multiple of the rows of any embedding matrix",
            f"factor {expected:.3f}",
            says=says,
            fix=fix,
            explains=(
                "stray-activation",
                "learned-positions",
                f"adapter-{'encoder' if function == 'embedding' else 'decoder'}",
            ),
        )
    if abs(factor / expected - 1) > 1e-3 or parameters_of_factor(subject, function):
        return other_factor(subject, function, factor, expected)
    return spread_of_rows(subject, function)


def other_factor(subject: Subject, function: str, factor: float, expected: float) -> Finding:
    """Return the difference of embeddings whose factor is learned, or not √d_model."""
    learned = parameters_of_factor(subject, function)
    if learned:
        return differs(
            f"{learned[0]} multiplies the rows, or is added to them, and is trained",
            f"the number {expected:.3f}",
            says=f"The factor of the embeddings is learned: {learned[0]}.",
            explains=("parameter-count",),
        )
    of_length = factor_of_length(subject, function)
    if of_length:
        return differs(
            of_length,
            f"{expected:.3f} for every length",
            says="The factor of the embeddings depends on the number of tokens.",
            fix="Multiply by math.sqrt(d_model).",
            explains=(
                "source-padding",
                "target-padding",
                "causal-mask",
                "batch-independence",
                "sinusoids",
            ),
        )
    formula = formula_of_positions(subject, function)
    of_positions = formula.differences if formula else ()
    if abs(factor - 1) < 1e-3 and f"{TIMES}{expected:.4g}" in of_positions:
        return differs(
            f"embeddings have the factor 1, positions {expected:.3f}",
            f"embeddings {expected:.3f}, positions 1",
            says="The positions are multiplied by √d_model in place of the embeddings.",
            explains=("sinusoids",),
        )
    names = {
        expected**2: "Embeddings are multiplied by d_model instead of √d_model.",
        1 / expected: "Embeddings are divided by √d_model instead of multiplied.",
    }
    near = [says for value, says in names.items() if abs(factor / value - 1) < 1e-3]
    return differs(
        f"factor {factor:.3f}",
        f"{expected:.3f}",
        says=near[0] if near else "",
        fix="Multiply by math.sqrt(d_model), and initialise the matrix with std d_model**-0.5.",
    )


def parameters_of_factor(subject: Subject, function: str) -> list[str]:
    """Return the names of parameters of one number on which embeddings depend."""
    total = embed(subject, function, subject.source).pow(2).sum()
    if not total.requires_grad:
        return []
    single = {n: p for n, p in subject.model.named_parameters() if p.numel() == 1}
    trained = {name: p for name, p in single.items() if p.requires_grad}
    if not trained:
        return []
    gradients = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    return [name for name, g in zip(trained, gradients, strict=True) if g is not None]


def factor_of_length(subject: Subject, function: str) -> str:
    """Return the factors of embeddings of two lengths as text, if they differ; else nothing."""
    factors = {}
    for length in (3, 7):
        ids = subject.words(2, length, seed=29)
        ids[1] = ids[0].roll(1)
        x = embed(subject, function, ids).detach()
        _, matrix, _ = factor_and_rows(subject, function)
        rows = matrix[ids[0]] - matrix[ids[1]]
        factors[length] = float(((x[0] - x[1]) * rows).sum() / rows.pow(2).sum())
    low, high = factors.values()
    if abs(low - high) < 1e-3 * abs(high):
        return ""
    return f"factor {low:.3f} for 3 tokens, {high:.3f} for 7"


def spread_of_rows(subject: Subject, function: str) -> Finding:
    """Compare the size of a new model's embeddings with that of its positions."""
    _, matrix, _ = factor_and_rows(subject, function)
    std = float(matrix.std())
    width = subject.config.d_model
    if std * width**0.5 < LOUD:
        return passed()
    return variant(
        f"standard deviation {std:.2g} of the rows of a new model",
        f"about d_model^-0.5 = {width**-0.5:.2g}",
        says=f"Embeddings begin with a standard deviation of {std:.2g}: multiplied by √d_model "
        f"they are {std * width**0.5 / 0.707:.0f} times as large as the positional encodings.",
        fix="Initialise the matrix with standard deviation d_model**-0.5.",
    )


LOUD = 4.0
"""the standard deviation of embeddings beside which positions are small"""
LONGER = 100.0
"""factor of the matrix in :func:`growth_with_rows`"""
LIMITED = (
    "The length of embeddings is limited or normalised, as by max_norm: they are no multiple of "
    "the matrix's rows."
)


def growth_with_rows(subject: Subject, function: str) -> float:
    """Return how many times as far apart embeddings are with a matrix LONGER times as long."""
    ids = torch.stack([subject.source[0], subject.source[1]])
    before = embed(subject, function, ids).detach()
    for matrix in subject.model.parameters():
        if matrix.shape != (subject.config.vocabulary, subject.config.d_model):
            continue
        rows = matrix.detach().clone()
        embeddings = []
        with set_to_zero([matrix]):
            for values in (rows.roll(1, 0), LONGER * rows):
                with torch.no_grad():
                    matrix.copy_(values)
                embeddings.append(embed(subject, function, ids).detach())
        if difference(before, embeddings[0]) < SAME:  # the matrix has another use
            continue
        distances = [float((x[0] - x[1]).norm()) for x in (before, embeddings[1])]
        return distances[1] / max(distances[0], 1e-12)
    return LONGER


def why_no_multiple(subject: Subject, function: str) -> tuple[str, str]:
    """Return the sentence and the fix for an input that is not a sum of rows and positions."""
    x = embed(subject, function, subject.source).detach()  # [B, L, D]
    fix = "The first layer's input is dropout(embedding * sqrt(d_model) + positions)."
    variances = x.var(-1, unbiased=False)
    if float(x.mean(-1).abs().max()) < 1e-2 and float((variances - 1).abs().max()) < 2e-2:
        return "A norm stands between the embeddings and the first layer.", fix
    if float(x.min()) >= 0:
        return "A ReLU stands between the embeddings and the first layer.", fix
    if growth_with_rows(subject, function) < LONGER / 2:
        return LIMITED, fix
    types, width = subject.config.vocabulary, subject.config.d_model
    ids = torch.arange(types)[:, None].expand(-1, 3)
    of_types = embed(subject, function, ids).detach()  # [V, 3, D]
    has_no_word = (of_types - of_types[:1]).abs().amax((0, 1)) < 1e-6
    if bool(has_no_word.any()):
        return (
            f"{int(has_no_word.sum())} of {width} dimensions of the first layer's input do not "
            "depend on the token: positions are concatenated instead of added."
        ), fix
    for matrix in subject.model.parameters():
        if matrix.shape != (types, width):
            continue
        if is_linear(subject, function, matrix.detach()):
            says = "A linear layer stands between the embeddings and the first layer."
            return says, fix
        rows = matrix.detach()[subject.source]
        crossed = x[0] * rows[1] - x[1] * rows[0]
        if float(crossed.abs().max()) < 1e-3 * float((x[0] * rows[1]).abs().max()):
            says = "Positional encodings are multiplied with the embeddings instead of added."
            return says, fix
    return "The first layer's input is not a multiple of the embeddings plus positions.", fix


def is_linear(subject: Subject, function: str, matrix: Tensor) -> bool:
    """Return whether an embedding is a linear map of the rows of a matrix [V, D], plus a bias."""
    types, width = matrix.shape
    if types < width + 4:
        return False
    x = embed(subject, function, torch.arange(types)[:, None]).detach()[:, 0].double()
    rows = torch.cat([matrix.double(), torch.ones(types, 1).double()], dim=1)
    fit = torch.linalg.lstsq(rows, x).solution
    return float((rows @ fit - x).norm()) < 1e-3 * float(x.norm())


def positions(subject: Subject, function: str) -> Tensor:
    """Return the embeddings minus the factor times the tokens' rows: the positions [L, D]."""
    factor, matrix, _ = factor_and_rows(subject, function)
    ids = subject.words(1, min(64, subject.config.max_length - 1), seed=3)
    return (embed(subject, function, ids).detach() - factor * matrix[ids])[0]


@lru_cache(maxsize=4)
def formula_of_positions(subject: Subject, function: str) -> Formula | None:
    """Return the formula of one side's positions, computed once for all checks, or None."""
    return formula_of(positions(subject, function))


@check_of_embeddings(
    "embedding-dropout",
    "5.4",
    passes="Dropout is applied to the sum of embedding and position.",
    fails="Dropout is not applied to the sum of embedding and position.",
    explains=("dropout-places",),
)
def dropout_on_sum(subject: Subject, function: str) -> Finding:
    """Check that dropout 0.5 makes each activation zero, or twice its value in evaluation."""
    if factor_and_rows(subject, function)[2] > 1e-2:
        return not_run(NO_MULTIPLE)
    in_train, in_eval, _ = run_in_training(subject, function, subject.source)
    zero = in_train.abs() < 1e-6
    double = (in_train - 2 * in_eval).abs() < 1e-3 * in_eval.abs().max()
    share = float(zero.float().mean())
    if (zero | double).all() and 0.3 < share < 0.7:
        return passed()
    if difference(in_eval, in_train) < SAME:
        return differs(
            "no dropout",
            "dropout with the rate config.dropout",
            fix="Apply dropout to the sum before the first layer.",
        )
    return differs(
        f"{share:.0%} zeros, {float(double.float().mean()):.0%} scaled, with dropout 0.5",
        "each activation zero or scaled by 1 / (1 - P_drop)",
    )
