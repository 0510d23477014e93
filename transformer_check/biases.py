"""Which matrices have biases, and how many parameters and layers a model has (3.2.2, 3.3, 3.4)."""

from typing import NamedTuple

from torch import Tensor, nn

from .findings import Finding, differs, not_run, passed, variant
from .registry import check_of
from .subject import Config, Subject
from .tables import position_tables
from .trace import trace_model


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


# ---- Counts --------------------------------------------------------------------------------------


def group_of(subject: Subject, parameter: Tensor) -> str:
    """Return the group of a parameter, by its shape."""
    c = subject.config
    shape = tuple(size for size in parameter.shape if size > 1)
    if c.vocabulary in shape:
        return "embedding matrices" if len(shape) > 1 else "biases of the output layer"
    if c.d_ff in shape:
        return "feed-forward matrices" if len(shape) > 1 else "biases of d_ff numbers"
    if subject.is_matrix(parameter):
        return "attention matrices"
    return "gains and biases"


def expected_groups(c: Config) -> dict[str, int]:
    """Return the number of parameters in each group of the paper's model of a size."""
    d_k, d_v = c.widths()
    attention = 3 * c.layers
    networks = 2 * c.layers
    norms = 5 * c.layers
    vectors = attention * (c.heads * (2 * d_k + d_v) + c.d_model) + networks * c.d_model
    return {
        "embedding matrices": c.vocabulary * c.d_model,
        "biases of the output layer": 0,
        "feed-forward matrices": networks * 2 * c.d_model * c.d_ff,
        "biases of d_ff numbers": networks * c.d_ff,
        "tables of positions": 2 * c.max_length * c.d_model if c.learned_positions else 0,
        "attention matrices": attention * 2 * c.d_model * c.heads * (d_k + d_v),
        "gains and biases": vectors + norms * 2 * c.d_model,
    }


USUAL = ("embedding matrices", "biases of the output layer", "gains and biases")
"""groups in which many models differ on purpose"""


@check_of(
    "parameter-count",
    "Table 3",
    passes="The model has as many parameters as the paper's model of this size.",
    fails="The model does not have as many parameters as the paper's model of this size.",
)
def parameters(subject: Subject) -> Finding:
    """Count the parameters of each group of shapes."""
    counts = dict.fromkeys(expected_groups(subject.config), 0)
    tables = {name for name, _ in position_tables(subject)}
    for name, parameter in subject.model.named_parameters():
        if parameter.requires_grad:
            group = "tables of positions" if name in tables else group_of(subject, parameter)
            counts[group] += parameter.numel()
    expected = expected_groups(subject.config)
    changes = {name: counts[name] - expected[name] for name in expected}
    wrong = {name: change for name, change in changes.items() if change}
    if not wrong:
        return passed()
    find = variant if set(wrong) <= set(USUAL) else differs
    total = sum(counts.values())
    parts = ", ".join(f"{change:+,} in {name}" for name, change in wrong.items())
    return find(f"{total:,} parameters: {parts}", f"{sum(expected.values()):,}")


@check_of(
    "layer-count",
    "3.1",
    passes="Encoder and decoder have N layers.",
    fails="A stack does not have N layers.",
    explains=("parameter-count", "gradients", "heads", "encoder-output", "dropout-places"),
)
def layer_count(subject: Subject) -> Finding:
    """Count the modules that compute the self-attention of each stack."""
    layers = subject.config.layers
    source, target = subject.source[:1], subject.target[:1]
    with trace_model(layouts=subject.layouts) as trace:
        subject.logits(source, target)
    s, t = source.size(1), target.size(1)
    wrong = {}
    for kind, shape in {"encoder": (s, s), "decoder": (t, t), "cross-attention": (t, s)}.items():
        own = [e for e in trace.events if e.is_softmax]
        modules = [e.module for e in own if tuple(e.result.shape[-2:]) == shape]
        names = subject.names_of(modules)
        is_one_each = len(names) == len(modules)
        if names and is_one_each and len(modules) != layers:
            wrong[kind] = len(modules)
    if not wrong:
        return passed()
    stack, count = next(iter(wrong.items()))
    if stack == "cross-attention":
        return differs(
            f"{count} cross-attentions",
            f"{layers}, one in each decoder layer",
            says=f"{count} of {layers} decoder layers {'has' if count == 1 else 'have'} "
            "cross-attention."
            if count < layers
            else f"The decoder runs {count} cross-attentions in {layers} layers.",
        )
    return differs(
        f"{count} self-attentions in the {stack}",
        f"{layers}",
        says=f"The {stack} runs {count} layers instead of {layers}.",
    )
