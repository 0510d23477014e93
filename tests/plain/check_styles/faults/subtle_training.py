"""Mistakes in training and decoding with which the loss falls all the same."""

from .decoding import M_TOTALS, S_TOTALS, of_search
from .fault import Fault
from .training import A_ADAM, M_ADAM, S_ADAM, of_loss, of_rate
from .training_loss import A_LOSS, M_LOSS, S_LOSS

A_CALL = "def training_loss(model, source, target):\n    start"
M_CALL = "def training_loss(model, source, target):\n    beginning"
S_CALL = "def training_loss(model, source, target):\n    shifted"
A_BEST = "best[n] = max(best[n], (score / penalty, row[1:]))"
M_BEST = "best = max(finished, key=lambda pair: pair[1])"
S_BEST = "return max(done)[1] if done else"
FLAT = "logits.flatten(0, 1), target.flatten(), ignore_index=PAD"
EVERY = "logits.log_softmax(-1)"


def of_groups(groups: str) -> Fault:
    """An optimizer of parameter groups, in terms of ``model``."""
    call = f"torch.optim.Adam({groups}, lr=1e-3, betas=(0.9, 0.98), eps=1e-9)"
    return Fault(
        "the decoder has a tenth of the rate",
        id="adam|optimizer-parameters",
        says="group|rate|lr",
        batch_first=[(A_ADAM, call)],
        multihead=[(M_ADAM, call)],
        sequence_first=[(S_ADAM, call)],
    )


FAULTS = [
    Fault(
        "training is in evaluation mode",
        id="training-loss|training-dropout|training-mode|evaluation-dropout",
        says="evaluation",
        batch_first=[(A_CALL, A_CALL.replace("    start", "    model.eval()\n    start"))],
        multihead=[(M_CALL, M_CALL.replace("    beg", "    model.eval()\n    beg"))],
        sequence_first=[(S_CALL, S_CALL.replace("    shi", "    model.eval()\n    shi"))],
    ),
    Fault(
        "the training loss has no gradient",
        id="training-loss|gradients",
        says="gradient",
        batch_first=[(A_LOSS, f"{A_LOSS}.detach()")],
        multihead=[(M_LOSS, f"{M_LOSS}.detach()")],
        sequence_first=[(S_LOSS, f"{S_LOSS}.detach()")],
    ),
    of_loss(
        "padding is smoothed",
        "loss-padding|label-smoothing",
        "padding",
        f"0.9 * F.cross_entropy({FLAT}, reduction='sum') - 0.1 * {EVERY}.mean(-1).sum()",
    ),
    of_loss(
        "smoothing is not divided among the types",
        "label-smoothing",
        "divid|sum|each|every",
        f"0.9 * F.cross_entropy({FLAT}) - 0.1 * {EVERY}.sum(-1)[target != PAD].mean()",
    ),
    of_rate(
        "the rate stays at its peak",
        "constant|stays|peak|decay|decreas",
        "512**-0.5 * min(4000**-0.5, step * 4000**-1.5)",
    ),
    of_groups(
        '[{"params": [p for n, p in model.named_parameters() if "decoder" not in n]}, '
        '{"params": [p for n, p in model.named_parameters() if "decoder" in n], "lr": 1e-4}]'
    ),
    of_search(
        "the penalty is applied again at every step",
        "length-penalty|beam-search",
        "(each|every) step|again",
        [
            (
                "live.append((score, row))",
                "live.append((score / penalty, row))",
            )
        ],
        [
            (
                M_TOTALS,
                M_TOTALS.replace(
                    "score + value", "(score + value) / ((5 + len(ids)) / 6) ** alpha"
                ),
            )
        ],
        [(S_TOTALS, f"{S_TOTALS}\n        totals = totals / ((6 + position) / 6) ** alpha")],
    ),
    of_search(
        "the last finished hypothesis is kept",
        "beam-search",
        "last",
        [(A_BEST, "best[n] = (score / penalty, row[1:])")],
        [(M_BEST, "best = finished[-1]")],
        [(S_BEST, "return done[-1][1] if done else")],
    ),
]
