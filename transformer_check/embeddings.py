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
from .findings import Finding, differs, error, not_run, passed, variant
from .modes import set_to_zero
from .registry import check_of
from .sinusoids import PAPER, Formula, constant_beside, formula_of, name_columns
from .subject import SAME, AdapterError, Subject, difference
from .tables import PositionSums, position_tables

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
    if abs(factor / expected - 1) < 1e-3:
        return passed()
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
    "sinusoids",
    "3.5",
    passes="The positional encodings have the paper's values.",
    fails="The positional encodings do not have the paper's values.",
)
def sinusoid_values(subject: Subject, function: str) -> Finding:
    """Compare the positions, the embeddings minus the tokens' rows, with sinusoids."""
    if factor_and_rows(subject, function)[2] > 1e-2:
        return not_run(NO_MULTIPLE)
    if subject.config.learned_positions:
        return not_run("CONFIG.learned_positions is True")
    seen = positions(subject, function)
    expected = "PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same), from position 0"
    if seen.abs().max() < 1e-3:
        says = "The embeddings have no positional encodings."
        return error("zeros", expected, says=says, explains=("source-order", "target-order"))
    constant = constant_beside(seen)
    if constant is not None:
        return differs(
            f"the same vector of length {float(constant.norm()):.2g} at every position",
            "none: embedding · √d_model + PE(pos)",
            says="A constant vector is added to embeddings and positional encodings.",
            fix="Remove the embedding of segments, types or languages, or the bias.",
            modules=tuple(names_of_constants(subject, function)),
            explains=("parameter-count",),
        )
    formula = formula_of_positions(subject, function)
    if formula == PAPER:
        return look_for_other_sums(subject, function, seen)
    if formula is None:
        if learned_tables(subject):
            return not_run("the positions are learned")
        return differs(
            f"values from {float(seen.min()):.3g} to {float(seen.max()):.3g}",
            expected,
            says=f"The positional encodings are not the paper's sinusoids: {name_columns(seen)}.",
        )
    found = "; ".join(formula.differences)
    if function == "target_embedding" and subject.has("embedding"):
        of_source = formula_of_positions(subject, "embedding")
        if of_source is not None and of_source != formula:
            says = f"Source and target have different positional encodings: of the target, {found}."
            padding = ("target-padding",) if "counted from the end" in found else ()
            return differs(found, expected, says=says, fix=formula.fix, explains=padding)
    find = variant if formula.is_variant else differs
    explains = ["source-order", "target-order"]
    if "counted from the end" in found:  # then padding moves every token
        explains += ["target-padding", "source-padding", "batch-independence"]
    return find(
        found,
        expected,
        says=f"In the sinusoids, {found}.",
        fix=formula.fix,
        explains=tuple(explains),
    )


def names_of_constants(subject: Subject, function: str) -> list[str]:
    """Return the names of parameters with a row that every embedding of a sentence adds."""
    c = subject.config
    ids = subject.source[:1]
    total = embed(subject, function, ids).sum()
    if not total.requires_grad:
        return []
    named = [
        (name, p)
        for name, p in subject.model.named_parameters()
        if p.requires_grad and p.shape[-1] == c.d_model and p.shape != (c.vocabulary, c.d_model)
    ]
    gradients = torch.autograd.grad(total, [p for _, p in named], allow_unused=True)
    names = []
    for (name, _), gradient in zip(named, gradients, strict=True):
        if gradient is not None:
            rows = gradient.reshape(-1, c.d_model)
            used = rows[rows.abs().amax(1) > 0]
            if len(used) == 1 and float(used.min()) > ids.size(1) - 0.5:
                names.append(name)
    return names


def look_for_other_sums(subject: Subject, function: str, table: Tensor) -> Finding:
    """Return a difference if the model adds the positions [L, D] more than once."""
    source, target = subject.source[:1], subject.target[:1]
    ids = source if function == "embedding" else target
    with PositionSums(table) as trace:  # with gradients, since torch's encoder is fused without
        subject.call("logits", subject.model, source, target)
    count = trace.count(ids.size(1))
    if count <= 1:
        return passed()
    return differs(
        f"{count} sums with the positions in one run",
        "1, before the first layer",
        says="Positions are added again after the first layer's input.",
        fix="Add the positions to the embeddings alone.",
    )


def has_trained_positions(subject: Subject, function: str) -> bool:
    """Return whether the difference of one token at two positions depends on a parameter."""
    ids = subject.source[:1, :1].expand(1, 4)
    embeddings = embed(subject, function, ids)
    parameters = [p for p in subject.model.parameters() if p.requires_grad]
    if not embeddings.requires_grad:
        return False
    weights = torch.arange(1.0, subject.config.d_model + 1)
    moved = ((embeddings[0, 3] - embeddings[0, 0]) * weights).sum()
    gradients = torch.autograd.grad(moved, parameters, allow_unused=True)
    return any(g is not None and g.abs().max() > 1e-6 for g in gradients)


def learned_tables(subject: Subject) -> list[str]:
    """Return the names of learned tables of positions, or of functions that have some."""
    tables = [name for name, _ in position_tables(subject)]
    if tables:
        return tables
    functions = []
    for function in SIDES.values():
        try:
            if subject.defines(function) and has_trained_positions(subject, function):
                functions.append(f"{function}()")
        except AdapterError:  # the checks that need the function report it
            continue
    return functions


@check_of(
    "learned-positions",
    "3.5",
    passes="The positional encodings are not trained.",
    fails="The positional encodings are learned.",
    explains=("sinusoids", "parameter-count"),
)
def fixed_positions(subject: Subject) -> Finding:
    """Look for trained tables of positions, which only row (E) of Table 3 has."""
    trained = learned_tables(subject)
    expected = subject.config.learned_positions
    if trained and expected:
        return passed("The positional encodings are learned, as CONFIG.learned_positions says.")
    if trained:
        constants: list[str] = []
        for function in SIDES.values():
            constants += names_of_constants(subject, function) if subject.has(function) else []
        other = f"; the same vector for every token ({', '.join(dict.fromkeys(constants))})"
        found = f"a trained table ({', '.join(trained)}){other if constants else ''}"
        return variant(found, "sinusoids")
    if expected:
        return variant(
            "no table that is trained",
            "a trained table, since CONFIG.learned_positions is True",
            says="The positional encodings are not learned.",
        )
    return passed()


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
