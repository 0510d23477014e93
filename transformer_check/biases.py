"""Biases, from the module tree: which matrices have one (3.2.2, 3.3, 3.4)."""

from typing import NamedTuple

from torch import nn

from .findings import Finding, not_run, passed, variant
from .registry import check_of
from .subject import Subject
from .tables import position_tables


class Matrices(NamedTuple):
    """Names of the modules with matrices of one kind, with and without a bias."""

    biased: list[str]
    bare: list[str]


def matrices(subject: Subject, of_feed_forward: bool) -> Matrices:
    """Return the modules with matrices of attention, or of the feed-forward networks.

    A module has biases if it owns a vector that is not a norm's gain. Matrices that are too small
    for a projection, such as a table of two segments, do not count.
    """
    c = subject.config
    smallest = c.d_model * min(c.widths())
    tables = {name.rpartition(".")[0] for name, _ in position_tables(subject)}
    kinds = Matrices([], [])
    for name, module in subject.model.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        weights = [p for p in own if subject.is_matrix(p) and c.vocabulary not in p.shape]
        weights = [p for p in weights if p.numel() >= smallest]
        if not weights or name in tables:
            continue
        if any(c.d_ff in p.shape for p in weights) != of_feed_forward:
            continue
        kinds[0 if has_bias(subject, own) else 1].append(name)
    return kinds


def has_bias(subject: Subject, own: list[nn.Parameter]) -> bool:
    """Return whether parameters include a vector that is not all ones, as a norm's gain is."""
    vectors = [p for p in own if not subject.is_matrix(p)]
    return any(not bool((p == 1).all()) for p in vectors)


def look_for_biases(subject: Subject, of_feed_forward: bool, expected: str) -> Finding:
    """Return a variant if a module with such matrices has no bias."""
    biased, bare = matrices(subject, of_feed_forward)
    if not biased and not bare:
        return not_run("no module with such matrices was found")
    if not bare:
        return passed()
    count = len(biased) + len(bare)
    return variant(f"{len(bare)} of {count} modules have no bias", expected, modules=tuple(bare))


@check_of(
    "attention-biases",
    "3.2.2",
    passes="The projections of attention have biases.",
    fails="Projections of attention have no biases.",
    explains=("parameter-count",),
)
def attention_biases(subject: Subject) -> Finding:
    """Look for a bias in each module whose matrices have no d_ff rows or columns."""
    return look_for_biases(
        subject, False, "biases, as in the authors' code (the paper's equations show none)"
    )


@check_of(
    "feed-forward-biases",
    "3.3",
    passes="The feed-forward networks have biases.",
    fails="Feed-forward networks have no biases.",
    explains=("parameter-count",),
)
def feed_forward_biases(subject: Subject) -> Finding:
    """Look for a bias in each module whose matrices have d_ff rows or columns."""
    return look_for_biases(subject, True, "b_1 and b_2 (equation 2)")


@check_of(
    "output-bias",
    "3.4",
    passes="The output layer has no bias.",
    fails="The output layer has a bias.",
    explains=("parameter-count",),
)
def output_bias(subject: Subject) -> Finding:
    """Look for a vector with one number per token of the vocabulary."""
    types = subject.config.vocabulary
    named = subject.model.named_parameters()
    names = [name for name, p in named if p.shape == (types,)]
    if not names:
        return passed()
    return variant(
        f"{', '.join(names)}: {len(names) * types:+,} parameters at this size",
        "none",
        modules=tuple(name.rpartition(".")[0] for name in names),
    )
