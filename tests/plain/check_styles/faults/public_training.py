"""Mistakes in training and decoding of public repositories and of students."""

from .decoding import (
    A_EVAL,
    A_PENALTY,
    A_START,
    M_BEST,
    M_CALL,
    M_EVAL,
    M_PENALTY,
    M_START,
    S_EVAL,
    S_PENALTY,
    S_START,
    of_limit,
    of_search,
)
from .fault import Fault
from .subtle_training import WRITTEN
from .training import USUAL, of_loss, of_optimizer, of_rate
from .training_loss import of_call
from .training_loss import of_loss as of_training_loss

FLAT = "z.flatten(0, 1), y.flatten(), ignore_index=PAD"
SMOOTH = f"F.cross_entropy({FLAT}, label_smoothing=0.1 * 50 / 49)"

LOSSES = [
    of_training_loss(
        "training's loss has no logarithm of the softmax",
        "training-loss",
        "no log_softmax",
        f"return F.nll_loss({FLAT})",
    ),
    of_training_loss(
        "training's loss is of probabilities",
        "training-loss",
        "no logarithm|probabilities",
        "z = z.softmax(-1)\n    " + f"return F.nll_loss({FLAT})",
    ),
    of_training_loss(
        "training's softmax is over positions",
        "training-loss",
        "over the positions",
        "z = z.log_softmax(1)\n    " + f"return F.nll_loss({FLAT})",
    ),
    of_training_loss(
        "training multiplies the mean by the number of sentences",
        "training-loss|loss-average",
        "sentences",
        f"return {SMOOTH} * len(y)",
    ),
    of_training_loss(
        "training's smoothed probabilities do not sum to one",
        "training-loss|label-smoothing",
        "do not sum to 1",
        "lp = z.log_softmax(-1)\n"
        "    q = torch.full_like(lp, 0.1 / lp.size(-1)).scatter(-1, y[..., None], 0.9)\n"
        "    return -(q * lp).sum(-1)[y != PAD].mean()",
    ),
    of_training_loss(
        "training's loss is the perplexity",
        "training-loss",
        "perplexity",
        f"return {SMOOTH}.exp()",
    ),
    of_call(
        "the decoder gets start tokens alone",
        "target-shift|start-token",
        "start",
        "torch.full_like(target, START)",
        "target",
    ),
    of_loss(
        "the loss has no logarithm of the softmax",
        "label-smoothing|loss-formula",
        "no log_softmax",
        "F.nll_loss(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)",
    ),
    of_loss(
        "the loss's softmax is over positions",
        "label-smoothing|loss-formula|loss-average",
        "over the positions",
        "F.nll_loss(logits.log_softmax(1).flatten(0, 1), target.flatten(), ignore_index=PAD)",
    ),
]

LION = """
class Lion(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=1e-4, betas=(0.9, 0.98)))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.sub_(group["lr"] * m.lerp(p.grad, 0.1).sign())
                m.lerp_(p.grad, 0.02)


"""


def of_step(name: str, says: str, *lines: str) -> Fault:
    """Return a fault in the step of an Adam: its lines use ``self.values``, the parameters."""
    text = "\n".join(
        (
            "\nclass OwnAdam(torch.optim.Adam):",
            "    calls = 0\n\n    @property",
            "    def values(self):",
            '        return [p for group in self.param_groups for p in group["params"]]\n',
            "    @torch.no_grad()",
            "    def step(self, closure=None):",
            "        self.calls += 1",
            *(f"        {line}" for line in lines),
            "\n\n",
        )
    )
    return of_optimizer(name, says, f"OwnAdam(PARAMETERS, {USUAL})", above=text)


def of_update(name: str, says: str, factor: str) -> Fault:
    """Return a fault in the size of each update, a factor of ``p`` and of the rate ``lr``."""
    return of_step(
        name,
        says,
        "old = [p.clone() for p in self.values]",
        "super().step()",
        'lr = self.param_groups[0]["lr"]',
        "for p, before in zip(self.values, old):",
        f"    p.copy_(before + {factor} * (p - before))",
    )


OWN_STEPS = [
    of_update(
        "updates are as large as the weights' norm, as in LAMB",
        "by the parameter's norm",
        "(before.norm() or 1) / (p - before).norm().clamp(min=1e-12) * lr",
    ),
    of_update("the rate is in each update twice", r"proportional to lr\^2", "lr"),
    of_update("the rate has no effect", "lr has no effect", "1e-4 / lr"),
    of_update(
        "wide matrices have smaller updates", "times as large as of others", "p.size(-1) ** -0.5"
    ),
    of_step(
        "the optimizer steps at every second call alone",
        r"only 2, 4, 6, 8 change",
        "if self.calls % 2 == 0:",
        "    super().step()",
    ),
    of_step(
        "parameters are rounded to float16",
        "rounds parameters to float16",
        "super().step()",
        "for p in self.values:",
        "    p.copy_(p.half())",
    ),
    of_step(
        "every fifth step goes halfway back",
        "first 4 updates",
        "self.slow = getattr(self, 'slow', None) or [p.clone() for p in self.values]",
        "super().step()",
        "if self.calls % 5 == 0:",
        "    for p, slow in zip(self.values, self.slow):",
        "        p.copy_(slow.lerp_(p, 0.5))",
    ),
    of_step(
        "vectors are not updated",
        "does not update .* parameters",
        "for p in self.values:",
        "    p.grad = None if p.dim() == 1 else p.grad",
        "super().step()",
    ),
    of_step(
        "gradients are never set to zero",
        "adds up the gradients",
        "self.sums = getattr(self, 'sums', {})",
        "for p in self.values:",
        "    if p.grad is not None:",
        "        p.grad = self.sums[p] = p.grad + self.sums.get(p, 0)",
        "super().step()",
    ),
    of_step(
        "weights are bounded",
        "bounds or normalises",
        "super().step()",
        "for p in self.values:",
        "    p.clamp_(-0.05, 0.05)",
    ),
]

OPTIMIZERS = [
    *OWN_STEPS,
    of_optimizer("Lion", "Lion", "Lion(PARAMETERS)", above=LION),
    of_optimizer(
        "the code has other betas than the options",
        r"betas=\(0\.9, 0\.999\)",
        "WrittenAdam(PARAMETERS)",
        above=WRITTEN.replace("UPDATE", "(v.sqrt() + eps)")
        .replace("0.02", "0.001")
        .replace("0.98 **", "0.999 **"),
    ),
    of_optimizer(
        "the second mean has no root",
        "0.5 times as large",
        "WrittenAdam(PARAMETERS)",
        above=WRITTEN.replace("UPDATE", "(v + eps)"),
    ),
    of_optimizer(
        "the weights are added to the gradient",
        "L2 penalty",
        "WrittenAdam(PARAMETERS)",
        above=WRITTEN.replace("UPDATE", "(v.sqrt() + eps)").replace(
            "p.grad", "(p.grad + 0.01 * p)", 5
        ),
    ),
    of_rate(
        "cosine decay",
        "cosine|decreas",
        "512**-0.5 * 4000**-0.5 * (step / 4000 if step < 4000 else"
        " 0.5 + 0.5 * torch.cos(torch.tensor(3.14159 * (step - 4000) / 96000)).item())",
    ),
    of_rate(
        "the rate decays exponentially",
        "exponentially.*halves every 20,000 steps",
        "512**-0.5 * 4000**-0.5 * (step / 4000 if step < 4000 else 0.5 ** ((step - 4000) / 20000))",
    ),
    of_rate(
        "the rate falls in stairs",
        "changes only every 10,000 steps",
        "512**-0.5 * min((step // 10000 * 10000 + 1) ** -0.5, step * 4000**-1.5)",
    ),
    of_rate(
        "the warm-up begins at a tenth of the peak",
        "linearly from 6.988e-05 at step 0",
        "512**-0.5 * min(step**-0.5, 4000**-0.5 * (0.1 + 0.9 * step / 4000))",
    ),
]

A_LOG = "log_probs = F.log_softmax(output, dim=-1)\n        log_probs[:, PAD]"
M_LOG = "log_probs = output[0, -1].log_softmax(-1)"
S_LOG = "log_p = output.log_softmax(-1)"
A_DRAWN = """def translate(model, source):
    model.eval()
    rows = torch.full((len(source), 1), START)
    for _ in range(source.size(1) + 50):
        shares = model(source, rows)[:, -1].softmax(-1)
        rows = torch.cat([rows, torch.multinomial(shares, 1)], 1)
    return rows.tolist()


"""
M_DRAWN = """@torch.no_grad()
def drawn(model, source, limit):
    ids = [START]
    while ids[-1] != END and len(ids) <= limit:
        shares = logits(model, source, torch.tensor([ids]))[0, -1].softmax(-1)
        ids.append(int(torch.multinomial(shares, 1)))
    return ids[1:]


"""
S_DRAWN = """rows = torch.full((len(source), 1), START)
    for _ in range(source.size(1) + 50):
        shares = logits(model, source, rows)[:, -1].softmax(-1)
        rows = torch.cat([rows, torch.multinomial(shares, 1)], 1)
    return rows"""

SEARCHES = [
    of_search(
        "the next word is drawn",
        "beam-search|decoding",
        "random|draw|sampl",
        [
            (
                "def translate(model, source, beam=4, alpha=0.6, extra=50):",
                A_DRAWN + "def search(model, source, beam=4, alpha=0.6, extra=50):",
            )
        ],
        [
            (M_CALL, "drawn(model, sentence[None, :length], limit)"),
            ("def translate(", M_DRAWN + "def translate("),
        ],
        [
            (
                "return [beam_search(model, row[row != PAD], width, alpha, 50) for row in source]",
                S_DRAWN,
            )
        ],
    ),
    of_search(
        "logits have a temperature",
        "beam-search|decoding",
        "temperature",
        [(A_LOG, A_LOG.replace("output,", "output / 2,"))],
        [(M_LOG, M_LOG.replace("output[0, -1]", "(output[0, -1] / 2)"))],
        [(S_LOG, S_LOG.replace("output.", "(output / 2)."))],
    ),
    of_search(
        "each hypothesis goes on with its likeliest word",
        "beam-search",
        "one (word|token)|its (likeliest|most probable|best)|greedy",
        [
            (
                A_LOG,
                A_LOG.replace(
                    "\n        log_probs[:, PAD]",
                    "\n        if length > 1:\n"
                    "            likeliest = log_probs.amax(-1, keepdim=True)\n"
                    '            log_probs = log_probs.masked_fill(log_probs < likeliest, float("-inf"))'
                    "\n        log_probs[:, PAD]",
                ),
            )
        ],
        [
            (
                "values, tokens = log_probs.topk(2 * beam)",
                "values, tokens = log_probs.topk(2 * beam if len(ids) == 1 else 1)",
            ),
            (M_BEST, f"if not live:\n            break\n        {M_BEST}"),
        ],
        [
            (
                S_LOG,
                f"{S_LOG}\n        if position:\n"
                "            likeliest = log_p.amax(-1, keepdim=True)\n"
                '            log_p = log_p.masked_fill(log_p < likeliest, float("-inf"))',
            )
        ],
    ),
    of_search(
        "no word is repeated",
        "beam-search",
        "repeat",
        [(A_LOG, A_LOG.replace("\n", '\n        log_probs.scatter_(1, rows, float("-inf"))\n', 1))],
        [("if token != PAD:", "if token != PAD and token not in ids:")],
        [(S_LOG, f'{S_LOG}\n        log_p.scatter_(1, histories, float("-inf"))')],
    ),
    of_search(
        "decoding starts with the source's first word",
        "decoding|beam-search",
        "start.*source|source's first",
        [(A_START, "rows = source[:, :1].clone()")],
        [(M_START, "live = [([int(sentence[0, 0])], 0.0)]")],
        [(S_START, "histories = sentence[None, :1]")],
    ),
    of_search(
        "cross-attention sees padding in decoding",
        "decoding|beam-search",
        "padding",
        [
            (
                "model.decode(rows, memory, target_mask, source_mask)",
                "model.decode(rows, memory, target_mask, None)",
            )
        ],
        [
            ("sentence[None, :length]", "sentence[None]"),
            (
                "(target, memory, causal, target == PAD, source_padding)",
                "(target, memory, causal, target == PAD, None)",
            ),
        ],
        [
            ("row[row != PAD], width", "row, width"),
            (
                "caches, cross_caches, source_hidden)\n        log_p",
                "caches, cross_caches, None)\n        log_p",
            ),
        ],
    ),
    of_search(
        "each end makes the beam narrower",
        "beam-search",
        "narrower|smaller|fewer",
        [],
        [
            ("elif len(live) < beam:", "elif len(live) < beam - len(finished):"),
            (M_BEST, f"if not live:\n            break\n        {M_BEST}"),
        ],
        [
            (
                "alive = (~is_end).nonzero().flatten()[:width]",
                "alive = (~is_end).nonzero().flatten()[: max(0, width - len(done))]\n"
                "        if not len(alive):\n            break",
            )
        ],
    ),
    of_limit("at most twice the source's length and ten more", "18|2 ×|twice", "2 * s + 10"),
    of_search(
        "dropout is on in the encoder when decoding",
        "decoding|beam-search",
        "dropout",
        [(A_EVAL, A_EVAL.replace("eval()", "train()\n    model.decoder.eval()"))],
        [(M_EVAL, M_EVAL.replace("eval()", 'train()\n    model["decoder"].eval()'))],
        [(S_EVAL, S_EVAL.replace("eval()", "train()\n    model.decoder.eval()"))],
    ),
]

A_BOUND = "bound = scores[:, 0] / ((5 + limit) / 6) ** alpha"
M_BOUND = "best_possible = live[0][1] / ((5 + limit) / 6) ** alpha"
S_BOUND = "float(scores[0]) / ((5 + longest) / 6) ** alpha"


def of_bounded_penalty(name: str, says: str, value: str) -> Fault:
    """Return a fault with another penalty of ``n`` tokens, in the bound of the search, too."""
    return of_search(
        name,
        "length-penalty",
        says,
        [
            (A_PENALTY, f"n = length\n        penalty = {value}"),
            (A_BOUND, f"bound = scores[:, 0] / (lambda n: {value})(limit)"),
        ],
        [
            (M_PENALTY, f"n = len(ids) - 1\n                penalty = {value}"),
            (M_BOUND, f"best_possible = live[0][1] / (lambda n: {value})(limit)"),
        ],
        [
            (S_PENALTY, f"float(score) / (lambda n: {value})(position + 1)"),
            (S_BOUND, f"float(scores[0]) / (lambda n: {value})(longest)"),
        ],
    )


MEASURED = [
    of_bounded_penalty("the length includes the start token", "start", "((6 + n) / 6) ** 0.6"),
    of_bounded_penalty("the length does not include the end", "end", "((4 + n) / 6) ** 0.6"),
    of_bounded_penalty("log P is divided by the penalty twice", "1.2", "((5 + n) / 6) ** 1.2"),
    of_bounded_penalty("alpha is one half", "0.5", "((5 + n) / 6) ** 0.5"),
    of_bounded_penalty("the length to the power of 1.3", "1.3", "n**1.3"),
    of_bounded_penalty("the logarithm of the length", "2.34", "__import__('math').log(1 + n)"),
    of_search(
        "each token adds 0.3 to the score",
        "length-penalty",
        "adds 0.3",
        [
            ("(score / penalty, row[1:])", "(score + 0.3 * length, row[1:])"),
            (A_BOUND, "bound = scores[:, 0] + 0.3 * limit"),
        ],
        [
            ("(ids, score / penalty)", "(ids, score + 0.3 * (len(ids) - 1))"),
            (M_BOUND, "best_possible = live[0][1] + 0.3 * limit"),
        ],
        [
            (S_PENALTY, "float(score) + 0.3 * (position + 1)"),
            (S_BOUND, "float(scores[0]) + 0.3 * longest"),
        ],
    ),
    of_search(
        "words that occurred lose a little",
        "beam-search",
        "repetition",
        [
            (
                A_LOG,
                A_LOG.replace(
                    "\n",
                    "\n        log_probs.scatter_(1, rows, log_probs.gather(1, rows) * 1.1)\n",
                    1,
                ),
            )
        ],
        [(M_LOG, f"{M_LOG}\n            log_probs[ids] = log_probs[ids] - 1.0")],
        [
            (
                S_LOG,
                f"{S_LOG}\n        log_p.scatter_(1, histories, log_p.gather(1, histories) * 1.1)",
            )
        ],
    ),
    of_search(
        "the second best hypothesis is chosen",
        "beam-search",
        "second best",
        [],
        [
            (
                "best = max(finished, key=lambda pair: pair[1])",
                "best = sorted(finished, key=lambda pair: pair[1])[-2:][0]",
            )
        ],
        [("return max(done)[1]", "return sorted(done)[-2:][0][1]")],
    ),
    of_search(
        "decoding starts with a word",
        "decoding",
        "token 7",
        [(A_START, A_START.replace("START", "7"))],
        [(M_START, M_START.replace("START", "7"))],
        [(S_START, S_START.replace("START", "7"))],
    ),
]

FAULTS: list[Fault] = [*LOSSES, *OPTIMIZERS, *SEARCHES, *MEASURED]
