"""Mistakes in training and decoding with which the loss falls all the same."""

from .decoding import M_TOTALS, S_TOTALS, of_search
from .fault import Fault
from .training import A_ADAM, HAND_ADAM, M_ADAM, S_ADAM, USUAL, of_loss, of_optimizer, of_rate
from .training_loss import A_LOSS, M_LOSS, S_LOSS

A_CALL = "def training_loss(model, source, target):\n    start"
M_CALL = "def training_loss(model, source, target):\n    beginning"
S_CALL = "def training_loss(model, source, target):\n    shifted"
A_BEST = "best[n] = max(best[n], (score / penalty, row[1:]))"
M_BEST = "best = max(finished, key=lambda pair: pair[1])"
S_BEST = "return max(done)[1] if done else"
FLAT = "logits.flatten(0, 1), target.flatten(), ignore_index=PAD"
EVERY = "logits.log_softmax(-1)"
SMOOTH = f"F.cross_entropy({FLAT}, label_smoothing=0.1 * 50 / 49, reduction='none')"
WRITTEN = """
class WrittenAdam(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=1e-3, betas=(0.9, 0.98), eps=1e-9))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            rate, eps = group["lr"], group["eps"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                m = state["m"].lerp_(p.grad, 0.1) / (1 - 0.9 ** state["t"])
                v = state["v"].lerp_(p.grad**2, 0.02) / (1 - 0.98 ** state["t"])
                p.sub_(rate * m / UPDATE)


"""
CLIPPED = """
class ClippedAdam(torch.optim.Adam):
    def step(self, closure=None):
        for group in self.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 0.1)
        return super().step(closure)


"""


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
    of_loss(
        "confidence and smoothing are swapped",
        "label-smoothing",
        "swaps",
        f"F.cross_entropy({FLAT}, label_smoothing=0.9 * 50 / 49)",
    ),
    of_loss(
        "smoothing has another sign",
        "label-smoothing",
        "subtracts",
        f"0.9 * F.cross_entropy({FLAT}) + 0.1 * {EVERY}.mean(-1)[target != PAD].mean()",
    ),
    of_loss(
        "a sigmoid for each type",
        "label-smoothing",
        "sigmoid",
        "F.binary_cross_entropy_with_logits("
        "logits, F.one_hot(target, logits.size(-1)).float(), reduction='none'"
        ")[target != PAD].sum()",
    ),
    of_loss(
        "the loss is a squared error of probabilities",
        "label-smoothing",
        "squared error of probabilities",
        "((logits.softmax(-1) - F.one_hot(target, logits.size(-1))) ** 2)[target != PAD].sum()",
    ),
    of_loss(
        "logits are viewed as [B, V, L]",
        "label-smoothing",
        "view\\(\\) or transpose\\(\\)",
        "F.cross_entropy(logits.reshape(len(logits), -1, logits.size(1)), target, ignore_index=PAD)",
    ),
    of_loss(
        "the loss reads logits in another order",
        "label-smoothing",
        "view\\(\\) or transpose\\(\\)",
        f"F.cross_entropy({FLAT.replace('logits', 'logits.transpose(0, 1)')})",
    ),
    of_loss(
        "the loss shifts labels",
        "label-smoothing|target-shift",
        "position before it|token 1 after",
        "F.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)",
    ),
    of_loss(
        "the end weighs ten times as much",
        "loss-average",
        "end token weighs 10 times",
        f"({SMOOTH} * (1 + 9 * (target == END).flatten())).sum()",
    ),
    of_loss(
        "later words weigh less",
        "loss-average",
        "depends on its position",
        f"({SMOOTH}.view_as(target) / torch.arange(1, target.size(1) + 1)).sum()",
    ),
    of_loss(
        "the square of the logarithmic normaliser is added",
        "label-smoothing",
        "log Z",
        f"{SMOOTH}.sum() + 0.01 * (logits.logsumexp(-1)[target != PAD] ** 2).sum()",
    ),
    of_loss(
        "the entropy is added",
        "label-smoothing",
        "entropy of the model",
        f"{SMOOTH}.sum() + 0.1 * (logits.softmax(-1) * {EVERY})[target != PAD].sum()",
    ),
    of_loss(
        "a focal loss",
        "label-smoothing",
        "focal",
        f"((1 - (-{SMOOTH}).exp()) ** 2 * {SMOOTH}).sum()",
    ),
    of_loss(
        "logits are divided by a temperature",
        "label-smoothing",
        "temperature of 2",
        f"F.cross_entropy({FLAT.replace('(0, 1)', '(0, 1) / 2')})",
    ),
    of_rate(
        "the rate stays at its peak",
        "constant|stays|peak|decay|decreas",
        "512**-0.5 * min(4000**-0.5, step * 4000**-1.5)",
    ),
    of_rate(
        "the decay is half of step to the power of -1",
        r"decreases with step\^-1:",
        "512**-0.5 * min(step**-1 / 2, step * 4000**-1.5)",
    ),
    of_rate(
        "the warm-up's exponent is -0.5",
        r"step\^1 until step 16",
        "512**-0.5 * min(step**-0.5, step * 4000**-0.5)",
    ),
    of_rate(
        "T5's rate, which is constant at first",
        "constant until step 10,000",
        "max(step, 10000) ** -0.5",
    ),
    of_rate(
        "the rate rises with the square root",
        r"step\^0\.5 until",
        "512**-0.5 * min(step**-0.5, step**0.5 / 4000)",
    ),
    of_rate(
        "the decay counts from the end of the warm-up",
        r"\(step - 4,000\)\^-0.5",
        "512**-0.5 * (step * 4000**-1.5 if step <= 4000 else (step - 4000) ** -0.5)",
    ),
    of_rate(
        "the rate has a lower bound",
        "never falls below 0.0001",
        "max(1e-4, 512**-0.5 * min(step**-0.5, step * 4000**-1.5))",
    ),
    of_optimizer(
        "the bias correction is always that of the first step",
        "bias correction is the same at every step",
        "HandAdam(PARAMETERS)",
        above=HAND_ADAM.replace('state["m"] / (', 'state["m"] / 0.1 / ((50 * ').replace(
            '"v"].sqrt()', '"v"]).sqrt()'
        ),
    ),
    of_optimizer(
        "Adam's epsilon is in the root",
        "inside the root",
        "WrittenAdam(PARAMETERS)",
        above=WRITTEN.replace("UPDATE", "(v + eps).sqrt()"),
    ),
    of_optimizer(
        "another epsilon than the option's",
        "eps acts as 1e-06",
        "WrittenAdam(PARAMETERS)",
        above=WRITTEN.replace("UPDATE", "(v.sqrt() + 1e-6)"),
    ),
    of_optimizer(
        "weights decay in the step",
        "decays weights, by 0.01",
        "WrittenAdam(PARAMETERS)",
        above=WRITTEN.replace("UPDATE", "(v.sqrt() + eps) + 0.01 * rate * p"),
    ),
    of_optimizer(
        "gradients are clipped",
        "clips the norm",
        f"ClippedAdam(PARAMETERS, {USUAL})",
        above=CLIPPED,
    ),
    of_optimizer(
        "the encoder is in the optimizer twice",
        "parameters twice",
        'torch.optim.Adam([*model.parameters(), *(p for n, p in model.named_parameters() if "encoder" in n)], '
        f"{USUAL})",
        "optimizer-parameters",
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
    Fault(
        "dropout on attention weights",
        id="extra-dropout",
        says="attention weights",
        batch_first=[
            ("def attention(q, k, v, mask):", "def attention(q, k, v, mask, drop=None):"),
            (
                "weights = F.softmax(scores, dim=-1)",
                "weights = F.softmax(scores, dim=-1)\n    if drop is not None:\n        weights = drop(weights)",
            ),
            ("context = attention(q, k, v, mask)", "context = attention(q, k, v, mask, self.drop)"),
            (
                "self.w_o = nn.Linear(config.heads * d_v, config.d_model)",
                "self.w_o = nn.Linear(config.heads * d_v, config.d_model)\n        self.drop = nn.Dropout(config.dropout)",
            ),
        ],
        multihead=[
            (
                "config.heads, batch_first=True",
                "config.heads, dropout=config.dropout, batch_first=True",
            )
        ],
        sequence_first=[
            ("weight = F.softmax(score, dim=1)", "weight = self.drop(F.softmax(score, dim=1))"),
            (
                "self.scale = d_k**-0.5",
                "self.scale = d_k**-0.5\n        self.drop = nn.Dropout(config.dropout)",
            ),
        ],
    ),
    Fault(
        "decoder layers have no dropout",
        id="dropout-places",
        says="decoder's layers have no",
        batch_first=[
            (
                "self.norm_1(x + self.dropout(self.attention(x, x, target_mask)))",
                "self.norm_1(x + self.attention(x, x, target_mask))",
            ),
            (
                "self.norm_2(x + self.dropout(self.cross(x, memory, source_mask)))",
                "self.norm_2(x + self.cross(x, memory, source_mask))",
            ),
            ("self.norm_3(x + self.dropout(self.ffn(x)))", "self.norm_3(x + self.ffn(x))"),
        ],
        multihead=[
            (
                "y, _ = self.self_attn(x, x, x, attn_mask=causal, key_padding_mask=target_padding)\n        x = self.norms[0](x + self.dropout(y))\n        y, _ = self.cross_attn(x, memory, memory, key_padding_mask=source_padding)\n        x = self.norms[1](x + self.dropout(y))\n        y = self.ffn(x)\n        x = self.norms[2](x + self.dropout(y))\n        return x",
                "y, _ = self.self_attn(x, x, x, attn_mask=causal, key_padding_mask=target_padding)\n        x = self.norms[0](x + y)\n        y, _ = self.cross_attn(x, memory, memory, key_padding_mask=source_padding)\n        x = self.norms[1](x + y)\n        y = self.ffn(x)\n        x = self.norms[2](x + y)\n        return x",
            )
        ],
        sequence_first=[
            (
                "self.drop = nn.Dropout(config.dropout)\n\n    def forward(",
                "self.drop = nn.Dropout(0.0 if has_cross else config.dropout)\n\n    def forward(",
            )
        ],
    ),
    Fault(
        "whole encoder layers are left out in training",
        id="dropout-places",
        says="whole layers",
        batch_first=[
            (
                "for layer in self.encoder:\n            x = layer(x, source_mask)\n        return x",
                "for layer in self.encoder:\n            if self.training and torch.rand(()) < self.dropout.p:\n                continue\n            x = layer(x, source_mask)\n        return x",
            )
        ],
        multihead=[
            (
                "for block in self.blocks:\n            x = block(x, source_padding)\n        return x",
                "for block in self.blocks:\n            if self.training and torch.rand(()) < block.dropout.p:\n                continue\n            x = block(x, source_padding)\n        return x",
            )
        ],
        sequence_first=[
            (
                "for layer in self.encoder:\n            x = layer(x, hidden)\n        return x, hidden",
                "for layer in self.encoder:\n            if self.training and torch.rand(()) < self.drop.p:\n                continue\n            x = layer(x, hidden)\n        return x, hidden",
            )
        ],
    ),
    Fault(
        "dropout on the logits",
        id="dropout-places",
        says="logits",
        batch_first=[("return self.output(x)", "return self.dropout(self.output(x))")],
        sequence_first=[
            (
                "return x @ self.words.T\n\n    def step",
                "return self.drop(x @ self.words.T)\n\n    def step",
            )
        ],
    ),
    Fault(
        "dropout on values",
        id="dropout-places",
        says="values",
        batch_first=[
            (
                "v = self.split(self.w_v(memory))",
                "v = self.split(self.w_v(memory))\n        v = self.drop(v)",
            ),
            (
                "self.w_o = nn.Linear(config.heads * d_v, config.d_model)",
                "self.w_o = nn.Linear(config.heads * d_v, config.d_model)\n        self.drop = nn.Dropout(config.dropout)",
            ),
        ],
        sequence_first=[
            (
                'score = torch.einsum("ibnd,jbnd->ijbn", q, k) * self.scale',
                'score = torch.einsum("ibnd,jbnd->ijbn", q, k) * self.scale\n        v = self.drop(v)',
            ),
            (
                "self.scale = d_k**-0.5",
                "self.scale = d_k**-0.5\n        self.drop = nn.Dropout(config.dropout)",
            ),
        ],
    ),
    Fault(
        "the model ends with a softmax",
        id="adapter",
        says="probabilities",
        batch_first=[("return self.output(x)", "return F.softmax(self.output(x), dim=-1)")],
        multihead=[("return self.generator(x)", "return torch.softmax(self.generator(x), dim=-1)")],
        sequence_first=[("x @ self.words.T", "F.softmax(x @ self.words.T, dim=-1)")],
    ),
    Fault(
        "the model ends with a sigmoid",
        id="stray-activation",
        says="sigmoid.*logits",
        batch_first=[("return self.output(x)", "return torch.sigmoid(self.output(x))")],
        multihead=[("return self.generator(x)", "return torch.sigmoid(self.generator(x))")],
        sequence_first=[("x @ self.words.T", "torch.sigmoid((x @ self.words.T))")],
    ),
]
