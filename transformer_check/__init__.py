"""Check any PyTorch Transformer against the paper, section by section.

    from transformer_check import check
    print(check("mine.py").text())

In the order in which to read it:

    template.py      the file that describes an implementation; 'vaswani check --template' prints it
    subject.py       the implementation under check: its sizes and its functions
    findings.py      the result of a check
    registry.py      what a check is, and the list of all checks
    card.py          the findings, one problem for each cause
    layout.py        the card as text
    explain.py       the equation, correct code and our own code of a check (explanations.md)
    whole_model.py   checks that need only logits: leaks, order, gradients
    dropout.py       5.4: dropout of the whole model
    trace.py         the softmaxes, wide products and random numbers of a model while it runs
    wiring.py        the sub-layers of a running model, and which output reaches which input
    activation.py    3.2.1, 3.3: the activations of feed-forward networks, and strays
    biases.py        which matrices have a bias; how many parameters and layers there are
    arrows.py        the arrows of Figure 1: the input of each sub-layer, and where its output goes
    masks.py         which tokens each softmax attends to
    padding.py       sentences of several lengths in a batch
    uneven_batch.py  a batch of sentences of several lengths, its masks, and where NaN arises
    scores.py        the products, factors and activations of attention while the model runs
    softmax.py       3.2.1: the dimension, the scale and the hidden scores of each softmax
    layer_norms.py   the formula of each norm, by itself
    sharing.py       modules and matrices that several parts share
    output.py        the last norms, and the factor of the logits
    embeddings.py    3.4: the embeddings of the source and of the target
    tables.py        3.5: positions, and learned tables of them
    norms.py         3.1: the norms of the whole model
    derive.py        embeddings and first layers that the file does not define, from logits
    layer.py         a layer as a function, and candidate formulas for it
    first_layer.py   3.1: the sums and norms of the first layer of each stack
    sublayers.py     3.2, 3.3: the attention and feed-forward network of the first layers
    attention.py     3.2.1: the function of equation 1; 3.2.2: heads
    learning_rate.py 5.3: the learning rate, and the description of a wrong one
    optimization.py  5.3: the optimizer
    training.py      5.4: the loss
    batch_loss.py    5.4: training_loss, compared with correct and wrong training losses
    token_ids.py     the ids of correct and wrong training steps, and mistakes in them
    cross_entropies.py  the correct and wrong cross entropies
    training_call.py  training_loss, observed while it runs: inputs, labels, weights, other terms
    loss_gradient.py  what the gradient of logits says of a loss
    tiny_model.py    a model trained on a few sentences, to observe its beam search
    searches.py      correct and wrong beam searches
    search_logits.py the logits of a search's steps: recorded, recognised, or replaced
    experiments.py   searches with chosen probabilities, which measure the length penalty
    decoding.py      wrong forward passes in decoding
    searching.py     6.1: beam search of this model
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import (  # noqa: F401 (each adds its checks)
    activation,
    arrows,
    attention,
    batch_loss,
    biases,
    dropout,
    embeddings,
    first_layer,
    layer_norms,
    learning_rate,
    masks,
    norms,
    optimization,
    output,
    padding,
    searching,
    sharing,
    softmax,
    sublayers,
    tables,
    training,
    whole_model,
)
from .card import Card, Result
from .derive import derive_functions
from .findings import Finding, error, not_run, waits_for
from .padding import inverted_mask
from .registry import ADAPTER, CHECKS, Check, ids, select
from .subject import SIGNATURES, AdapterError, Config, Subject, load

__all__ = ["AdapterError", "Card", "Config", "Finding", "Result", "check"]


def check(adapter: Any, config: Config | None = None, chosen: Iterable[str] = ()) -> Card:
    """Check an implementation against the paper.

    Args:
        adapter: a file, or a module or another object with ``build``, ``logits`` and any of the
            template's other functions
        config: what to build; the adapter's ``CONFIG``, if not given
        chosen: ids or sections of the checks to run; all, if not given

    Raises:
        AdapterError: the file cannot be read, ``build`` or ``logits`` fails, or ``chosen`` or
            ``ACCEPT`` names no check. A failure of another function is a finding of the card.
    """
    start = time.perf_counter()
    name = getattr(adapter, "__name__", type(adapter).__name__)
    if isinstance(adapter, (str, Path)):
        adapter, name = load(Path(adapter)), str(adapter)
    checks = select(chosen) or CHECKS
    subject = Subject(adapter, config, name)
    inverted = inverted_mask(subject)
    if inverted is not None:
        results = results_without_logits(inverted, checks)
        return Card(name, results, (), {}, time.perf_counter() - start)
    subject.run()
    derive_functions(subject)
    accepted = subject.accepted()
    for check_id in accepted:
        if check_id not in ids():
            raise AdapterError(
                f"ACCEPT has {check_id}, but there is no check with this id: remove it (then "
                "'vaswani check FILE.py --verbose' lists all ids)"
            )
    failures: dict[str, Result] = {}
    results = [Result(each, run(each, subject, failures)) for each in checks]
    places = {
        function: subject.place(function) for function in SIGNATURES if subject.defines(function)
    }
    seconds = time.perf_counter() - start
    return Card(name, [*failures.values(), *results], accepted, places, seconds)


def results_without_logits(finding: Finding, checks: list[Check]) -> list[Result]:
    """Return the results where logits are NaN: only source-padding fails; the rest is not run."""
    results = []
    for each in checks:
        is_cause = each.id == "source-padding"
        results.append(Result(each, finding if is_cause else waits_for("source-padding")))
    return results


def run(each: Check, subject: Subject, failures: dict[str, Result]) -> Finding:
    """Run one check and return its finding.

    An exception of the check itself becomes a finding "not run".

    Args:
        each: the check
        subject: the implementation
        failures: gets the error of each function that fails; it is not called again
    """
    for function in each.needs:
        if not subject.has(function):
            return not_run(f"define {function}")
        if function in failures:
            return not_run(f"{function}() fails")
    try:
        finding: Finding = each.look(subject)
    except AdapterError as problem:
        name = problem.function or "logits"
        if subject.derived.pop(name, None):
            return not_run(f"define {name}")
        if name not in failures:
            failures[name] = failure(name, problem)
        return not_run(f"{name}() fails")
    except Exception as problem:  # the model may be unlike any for which the check was written
        reason = f"the check {each.id} raised {type(problem).__name__}: {problem}"
        return not_run(" ".join(reason.split()))
    return finding


def failure(function: str, problem: AdapterError) -> Result:
    """Return the result that reports the error of a function of the file."""
    says = f"{function}() fails."
    expected = problem.expected or SIGNATURES[function]
    return Result(ADAPTER, error(problem.found, expected, says=says, fix=problem.fix))


def template_text() -> str:
    """Return the template of FILE.py, which describes this project's own Transformer."""
    return Path(__file__).with_name("template.py").read_text(encoding="utf-8")
