"""Is a Transformer the paper's? A card of checks for any implementation in torch.

    from transformer_check import check
    print(check("mine.py").text())

In the order in which to read it:

    template.py      the file that describes an implementation; 'vaswani check --template' prints it
    subject.py       the implementation under check: its sizes, and its functions
    card.py          what a check is, and the card of all results
    whole_model.py   what needs only logits: leaks, order, matrices, heads, dropout
    trace.py         the softmaxes, wide products and random numbers of a model while it runs
    wiring.py        the sub-layers of a model while it runs, and what reaches what
    arrows.py        the arrows of Figure 1: what each sub-layer reads, and where its output goes
    masks.py         which words each softmax looks at
    scores.py        by what scores are divided, wherever that is done
    output.py        the last norms, gradients, and the factor of logits
    embeddings.py    3.4, 3.5: of the source and of the target
    layer.py         a layer as a function, and the formulas that it may be
    first_layer.py   3.1: the sums and norms of the first layer of each stack
    sublayers.py     3.2, 3.3: its attention and feed-forward network
    attention.py     3.2.1
    training.py      5.3, 5.4: learning rate, optimizer, loss
    searching.py     6.1: beam search, of a model that learns three sentences first
"""

from pathlib import Path
from typing import Any

from . import (  # noqa: F401 (each adds its checks)
    arrows,
    attention,
    embeddings,
    first_layer,
    masks,
    output,
    scores,
    searching,
    sublayers,
    training,
    whole_model,
)
from .card import CHECKS, ERROR, Card, Check, Result, not_checked
from .subject import AdapterError, Config, Subject, load

__all__ = ["AdapterError", "Card", "Config", "Result", "check"]


def check(adapter: Any, config: Config | None = None) -> Card:
    """Check an implementation against the paper.

    Args:
        adapter: a file, or a module or another object with ``build``, ``logits`` and any of the
            template's other functions
        config: what to build; the adapter's ``CONFIG``, if not given

    Raises:
        AdapterError: there is nothing to look at: the file cannot be read, or ``build`` or
            ``logits`` fails. Another function that fails is an error of the first check that needs
            it.
    """
    name = getattr(adapter, "__name__", type(adapter).__name__)
    if isinstance(adapter, (str, Path)):
        adapter, name = load(Path(adapter)), str(adapter)
    subject = Subject(adapter, config, name)
    failed: set[str] = set()
    return Card(name, [(each, result_of(each, subject, failed)) for each in CHECKS])


def result_of(each: Check, subject: Subject, failed: set[str]) -> Result:
    """What a check finds; functions that fail are put into ``failed``, and not called again."""
    for function in each.needs:
        if not subject.has(function):
            return not_checked(f"define {function}")
        if function in failed:
            return not_checked(f"{function} fails")
    try:
        return each.look(subject)
    except AdapterError as error:
        if error.function in each.needs:
            failed.add(error.function)
        what = error.function or "the file"
        return Result(ERROR, f"a result of {what}", str(error), f"Mend {what} first.")
    except Exception as error:  # of a model that is like none of those for which a check was made
        reason = f"the check itself raised {type(error).__name__}: {error}"
        return not_checked(" ".join(reason.split()))


def template_text() -> str:
    """A file to begin with: it describes this project's own Transformer."""
    return Path(__file__).with_name("template.py").read_text(encoding="utf-8")
