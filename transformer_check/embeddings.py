"""Checks of ``embedding`` and ``target_embedding``: factor, positions, dropout (3.4, 3.5, 5.4).

Shape letters: B batch, L length, V vocabulary, D d_model.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .card import DIFFERS, ON_PURPOSE, Result, check_of, not_checked
from .subject import SAME, Subject, difference
from .whole_model import in_training

NO_MULTIPLE = "the function gives no sum of a matrix's rows, times a number, and positions"


EmbeddingCheck = Callable[[Subject, str], Result]


def check_of_embeddings(section: str, title: str) -> Callable[[EmbeddingCheck], EmbeddingCheck]:
    """Put the function below into the checks of the source's embeddings and of the target's."""

    def add(look: EmbeddingCheck) -> EmbeddingCheck:
        for function, side in (("embedding", ""), ("target_embedding", "target: ")):
            check_of(section, f"{side}{title}", function)(
                lambda subject, function=function: look(subject, function)
            )
        return look

    return add


def embedded(subject: Subject, function: str, ids: Tensor) -> Tensor:
    """[B, L] → [B, L, D]."""
    return subject.tensor(function, (*ids.shape, subject.config.d_model), subject.model, ids)


def factor_and_rows(subject: Subject, function: str) -> tuple[float, Tensor, float]:
    """By what the embedding's rows are multiplied, the matrix [V, D], and how badly that fits.

    Positions drop out of the difference of two words at one position.
    """
    ids = torch.stack([subject.source[0], subject.source[1]])
    embeddings = embedded(subject, function, ids).detach()
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


@check_of_embeddings("3.4", "embeddings are multiplied by √d_model")
def embedding_factor(subject: Subject, function: str) -> Result:
    """The factor is measured, so it may be anywhere between the matrix and the first layer."""
    factor, _, misfit = factor_and_rows(subject, function)
    expected = subject.config.d_model**0.5
    fits = misfit < 1e-2
    if fits and abs(factor / expected - 1) < 1e-3:
        return Result()
    return Result(
        DIFFERS,
        f"rows of the matrix times {expected:.3f}",
        f"times {factor:.3f}" if fits else "no multiple of any matrix's rows",
        "Words and positions have another proportion than the paper's; with a matrix that is also "
        "the output's, either words are too small or logits too large."
        if fits
        else "Something, such as a norm, comes between the sum and the first layer.",
    )


PAPERS = "sines and cosines in turn"


def layouts(length: int, width: int) -> dict[str, Tensor]:
    """Sinusoids [length, width] as the paper and others write them, by what is different."""
    even = torch.arange(width // 2, dtype=torch.float64)
    tables = {}
    for first in (0, 1, 2):
        since = f", from position {first}" if first else ""
        positions = torch.arange(first, first + length, dtype=torch.float64)[:, None]
        for intervals, note in ((width / 2, ""), (width / 2 - 1, ", d/2 - 1 intervals")):
            angles = positions / 10000 ** (even / intervals)
            pair = [angles.sin(), angles.cos()]
            tables[f"sines, then cosines{note}{since}"] = torch.cat(pair, dim=-1)
            tables[f"{PAPERS}{note}{since}"] = torch.stack(pair, -1).flatten(1)
    return tables


def positions(subject: Subject, function: str) -> Tensor:
    """What is left of the embedding once the words are taken out of it [L, D]."""
    factor, matrix, _ = factor_and_rows(subject, function)
    ids = torch.cat([subject.source[:1], subject.words(1, 32, seed=3)], dim=1)
    return (embedded(subject, function, ids).detach() - factor * matrix[ids])[0]


def layouts_of(subject: Subject, function: str) -> list[str]:
    """The known sinusoids that the positions are."""
    seen = positions(subject, function)
    tables = layouts(*seen.shape)
    return [name for name in tables if float((tables[name] - seen).abs().max()) < 1e-3]


@check_of_embeddings("3.5", "sinusoids have the paper's values")
def sinusoid_values(subject: Subject, function: str) -> Result:
    """By what is left of the embedding once the words are taken out of it."""
    if factor_and_rows(subject, function)[2] > 1e-2:
        return not_checked(NO_MULTIPLE)
    if subject.config.learned_positions:
        return Result()
    names = layouts_of(subject, function)
    if PAPERS in names:
        return Result()
    expected = "PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same), from position 0"
    if names and function == "target_embedding" and subject.has("embedding"):
        of_source = layouts_of(subject, "embedding")
        if of_source != names:
            meaning = f"The source's are {of_source[0] if of_source else 'others'}."
            return Result(DIFFERS, expected, names[0], meaning)
    if names:
        meaning = "Linear maps of the paper's sinusoids, with the same wavelengths or nearly."
        return Result(ON_PURPOSE, expected, names[0], meaning)
    if positions_trained(subject, function):
        return Result(ON_PURPOSE, expected, "a learned table", "Row (E) of Table 3.")
    seen = positions(subject, function)
    if seen.abs().max() < 1e-3:
        meaning = "The embedding has no positions."
        return Result(DIFFERS, expected, "nothing beside the words", meaning)
    away = float((layouts(*seen.shape)[PAPERS] - seen).abs().max())
    meaning = "Wavelengths, the order of dimensions or the first position are not the paper's."
    return Result(DIFFERS, expected, f"values {away:.2g} away", meaning)


def positions_trained(subject: Subject, function: str) -> bool:
    """Whether a parameter changes the difference of one word at two positions."""
    ids = subject.source[:1, :1].expand(1, 4)
    embeddings = embedded(subject, function, ids)
    parameters = [p for p in subject.model.parameters() if p.requires_grad]
    if not embeddings.requires_grad:
        return False
    weights = torch.arange(1.0, subject.config.d_model + 1)
    moved = ((embeddings[0, 3] - embeddings[0, 0]) * weights).sum()
    gradients = torch.autograd.grad(moved, parameters, allow_unused=True)
    return any(g is not None and g.abs().max() > 1e-6 for g in gradients)


@check_of_embeddings("3.5", "positions are not trained")
def fixed_positions(subject: Subject, function: str) -> Result:
    """Except in row (E) of Table 3."""
    if factor_and_rows(subject, function)[2] > 1e-2:
        return not_checked(NO_MULTIPLE)
    trained = positions_trained(subject, function)
    expected = subject.config.learned_positions
    if trained == expected:
        return Result()
    return Result(
        ON_PURPOSE,
        "trained positions" if expected else "positions that no gradient changes",
        "a parameter that changes them" if trained else "none that changes them",
        "CONFIG says whether row (E) of Table 3 is meant: learned_positions.",
    )


@check_of_embeddings("5.4", "dropout is on the sum of embedding and position")
def dropout_on_sum(subject: Subject, function: str) -> Result:
    """In training, a number is zero, or twice what it is in evaluation (with dropout 0.5)."""
    if factor_and_rows(subject, function)[2] > 1e-2:
        return not_checked(NO_MULTIPLE)
    lively, calm, _ = in_training(subject, function, subject.source)
    zero = lively.abs() < 1e-6
    double = (lively - 2 * calm).abs() < 1e-3 * calm.abs().max()
    share = float(zero.float().mean())
    if (zero | double).all() and 0.3 < share < 0.7:
        return Result()
    nothing = difference(calm, lively) < SAME
    return Result(
        DIFFERS,
        "each number zero, or divided by 1 - P_drop",
        "no dropout"
        if nothing
        else f"{share:.0%} zeros, {float(double.float().mean()):.0%} scaled",
        "The paper drops numbers of the sum, positions included.",
    )
