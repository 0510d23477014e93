"""Optimizer, learning rate, loss and dropout."""

from .fault import Fault

A_ADAM = "torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)"
M_ADAM = "torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)"
S_ADAM = "torch.optim.Adam(parameters, lr=1e-7, betas=(0.9, 0.98), eps=1e-9)"
USUAL = "lr=1e-3, betas=(0.9, 0.98), eps=1e-9"


HAND_ADAM = """
class HandAdam(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=1e-3, betas=(0.9, 0.98), eps=1e-9))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                state["m"].lerp_(p.grad, 0.1)
                state["v"].lerp_(p.grad**2, 0.02)
                p.sub_(group["lr"] * state["m"] / (state["v"].sqrt() + group["eps"]))


"""


def of_optimizer(name: str, says: str, call: str, id: str = "adam", above: str = "") -> Fault:
    """Return a fault with another optimizer of ``PARAMETERS``.

    ``above`` are lines before the function.
    """
    head = [("def optimizer(model):", f"{above}def optimizer(model):")] if above else []
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[*head, (A_ADAM, call.replace("PARAMETERS", "model.parameters()"))],
        multihead=[*head, (M_ADAM, call.replace("PARAMETERS", "model.parameters()"))],
        sequence_first=[*head, (S_ADAM, call.replace("PARAMETERS", "parameters"))],
    )


A_RATE = "return 512**-0.5 * min(step**-0.5, step * 4000**-1.5)"
M_RATE = "return d_model ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5))"
S_RATE = "return rate / 512**0.5"


def of_rate(name: str, says: str, value: str) -> Fault:
    """Return a fault with another learning rate."""
    return Fault(
        name,
        id="learning-rate",
        says=says,
        batch_first=[(A_RATE, f"return {value}")],
        multihead=[(M_RATE, f"return {value}")],
        sequence_first=[(S_RATE, f"return {value}")],
    )


def of_dropout(name: str, id: str, says: str, new: str) -> Fault:
    """Return a fault with another dropout module in place of each."""
    old = "nn.Dropout(config.dropout)"
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[(old, new)],
        multihead=[(old, new)],
        sequence_first=[(old, new)],
    )


def of_loss(name: str, id: str, says: str, value: str) -> Fault:
    """Return a fault with another loss of ``logits`` and ``target``."""
    head = f"import torch.nn.functional as F\n    return {value}\n    "
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[
            (
                "log_probs = F.log_softmax(logits, dim=-1)\n    smooth",
                head + "log_probs = F.log_softmax(logits, dim=-1)\n    smooth",
            )
        ],
        multihead=[
            (
                "log_probs = logits.log_softmax(-1)\n    right",
                head + "log_probs = logits.log_softmax(-1)\n    right",
            )
        ],
        sequence_first=[
            (
                "log_p = torch.log_softmax(logits.flatten(0, 1), -1)",
                head + "log_p = torch.log_softmax(logits.flatten(0, 1), -1)",
            )
        ],
    )


CE = "F.cross_entropy(logits.flatten(0, 1), target.flatten()"

FAULTS = [
    of_optimizer("RAdam", "RAdam", f"torch.optim.RAdam(PARAMETERS, {USUAL})"),
    of_optimizer("NAdam", "NAdam", f"torch.optim.NAdam(PARAMETERS, {USUAL}, momentum_decay=0)"),
    of_optimizer("Adamax", "Adamax", f"torch.optim.Adamax(PARAMETERS, {USUAL})"),
    of_optimizer("AMSGrad", "amsgrad", f"torch.optim.Adam(PARAMETERS, {USUAL}, amsgrad=True)"),
    of_optimizer(
        "the loss is maximised", "maxim", f"torch.optim.Adam(PARAMETERS, {USUAL}, maximize=True)"
    ),
    of_optimizer("AdamW with its weight decay", "decay", f"torch.optim.AdamW(PARAMETERS, {USUAL})"),
    of_optimizer(
        "weight decay", "weight.decay", f"torch.optim.Adam(PARAMETERS, {USUAL}, weight_decay=1e-4)"
    ),
    of_optimizer("SGD", "SGD", "torch.optim.SGD(PARAMETERS, lr=0.1, momentum=0.9)"),
    of_optimizer("Adagrad", "Adagrad", "torch.optim.Adagrad(PARAMETERS)"),
    of_optimizer("RMSprop", "RMSprop", "torch.optim.RMSprop(PARAMETERS)"),
    of_optimizer("Adam's defaults", "default", "torch.optim.Adam(PARAMETERS)"),
    of_optimizer(
        "another beta 2", "0\\.999", "torch.optim.Adam(PARAMETERS, betas=(0.9, 0.999), eps=1e-9)"
    ),
    of_optimizer(
        "another beta 1", "0\\.8", "torch.optim.Adam(PARAMETERS, betas=(0.8, 0.98), eps=1e-9)"
    ),
    of_optimizer(
        "betas are swapped",
        "swap|0\\.98, 0\\.9",
        "torch.optim.Adam(PARAMETERS, betas=(0.98, 0.9), eps=1e-9)",
    ),
    of_optimizer(
        "another epsilon", "1e-0?6", "torch.optim.Adam(PARAMETERS, betas=(0.9, 0.98), eps=1e-6)"
    ),
    of_optimizer(
        "Adam without bias correction",
        "bias.correction",
        "HandAdam(PARAMETERS)",
        above=HAND_ADAM,
    ),
    of_optimizer(
        "half of the parameters",
        "not|missing|hold",
        f"torch.optim.Adam(list(PARAMETERS)[::2], {USUAL})",
        "optimizer-parameters",
    ),
    of_optimizer(
        "no gains and biases",
        "not|missing|hold",
        f"torch.optim.Adam([p for p in PARAMETERS if p.dim() > 1], {USUAL})",
        "optimizer-parameters",
    ),
    of_rate("no warm-up", "warm", "512**-0.5 * step**-0.5"),
    of_rate(
        "maximum in place of minimum",
        "max|smaller|min",
        "512**-0.5 * max(step**-0.5, step * 4000**-1.5)",
    ),
    of_rate("warm-up of 8,000", "8,?000|warm", "512**-0.5 * min(step**-0.5, step * 8000**-1.5)"),
    of_rate("a step late", "step", "512**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4000**-1.5)"),
    of_rate("twice the rate", "2|twice", "2 * 512**-0.5 * min(step**-0.5, step * 4000**-1.5)"),
    of_rate("the factor is missing", "d_model|22\\.6", "min(step**-0.5, step * 4000**-1.5)"),
    of_rate(
        "the factor has another sign",
        "512|d_model",
        "512**0.5 * min(step**-0.5, step * 4000**-1.5)",
    ),
    of_rate(
        "the decay is 1/step",
        "decay|decreas|power|exponent|step",
        "512**-0.5 * min(4000**0.5 / step, step * 4000**-1.5)",
    ),
    of_rate("a constant rate", "constant", "1e-4"),
    of_rate(
        "linear decay",
        "linear|decay|decreas",
        "512**-0.5 * 4000**-0.5 * min(step / 4000, max(0, (200000 - step) / 196000))",
    ),
    of_dropout(
        "dropout of NaN",
        "dropout-rate|adapter",
        "NaN|nan",
        "nn.Dropout(float('nan') if config.dropout else 0.0)",
    ),
    of_dropout(
        "dropout of what should be kept",
        "dropout-rate|dropout-places",
        "0\\.9|1 -|keep|kept",
        "nn.Dropout(1 - config.dropout if config.dropout else 0.0)",
    ),
    of_dropout("a fixed rate of dropout", "dropout-rate", "0\\.1|fixed|config", "nn.Dropout(0.1)"),
    of_dropout(
        "half of the rate of dropout",
        "dropout-rate|dropout-places",
        "half|0\\.25|0\\.05",
        "nn.Dropout(config.dropout / 2)",
    ),
    of_dropout("no dropout", "training-dropout", "no effect", "nn.Identity()"),
    of_dropout(
        "dropout of whole channels",
        "dropout-places|sublayer-dropout",
        "",
        "nn.Dropout1d(config.dropout)",
    ),
    Fault(
        "dropout in evaluation",
        id="evaluation-dropout",
        says="evaluation",
        batch_first=[
            (
                "return self.dropout(x + self.table[: ids.size(1)])\n\n    def embed_target",
                "return F.dropout(x + self.table[: ids.size(1)], self.config.dropout)\n\n    def embed_target",
            )
        ],
        multihead=[
            (
                "        return self.dropout(x)\n",
                "        return nn.functional.dropout(x, self.dropout.p)\n",
            )
        ],
        sequence_first=[
            (
                "x = self.ffn_norm(x + self.drop(y))",
                "x = self.ffn_norm(x + F.dropout(y, self.drop.p))",
            )
        ],
    ),
    Fault(
        "no dropout on embeddings",
        id="embedding-dropout|dropout-places",
        says="embedding",
        batch_first=[
            (
                "return self.dropout(x + self.table[: ids.size(1)])",
                "return x + self.table[: ids.size(1)]",
            )
        ],
        multihead=[("        return self.dropout(x)\n", "        return x\n")],
        sequence_first=[
            (
                "return self.drop(x + sinusoids(positions, self.width))",
                "return x + sinusoids(positions, self.width)",
            )
        ],
    ),
    Fault(
        "dropout before positions are added",
        id="embedding-dropout|dropout-places",
        says="position|sum",
        batch_first=[
            (
                "return self.dropout(x + self.table[: ids.size(1)])",
                "return self.dropout(x) + self.table[: ids.size(1)]",
            )
        ],
        multihead=[
            (
                "        x = x + self.sinusoids[: ids.shape[1]]\n        return self.dropout(x)\n",
                "        return self.dropout(x) + self.sinusoids[: ids.shape[1]]\n",
            )
        ],
        sequence_first=[
            (
                "return self.drop(x + sinusoids(positions, self.width))",
                "return self.drop(x) + sinusoids(positions, self.width)",
            )
        ],
    ),
    Fault(
        "dropout after the sum",
        id="sublayer-dropout|dropout-places",
        says="residual|sum",
        batch_first=[
            (
                "self.norm_1(x + self.dropout(self.attention(x, x, mask)))",
                "self.norm_1(self.dropout(x + self.attention(x, x, mask)))",
            )
        ],
        multihead=[
            (
                "x = self.norms[0](x + self.dropout(y))\n        y = self.ffn",
                "x = self.norms[0](self.dropout(x + y))\n        y = self.ffn",
            )
        ],
        sequence_first=[
            ("x = self.ffn_norm(x + self.drop(y))", "x = self.ffn_norm(self.drop(x + y))")
        ],
    ),
    Fault(
        "dropout after the norm",
        id="sublayer-dropout|dropout-places",
        says="norm|residual|sum",
        batch_first=[
            (
                "x = self.norm_1(x + self.dropout(self.attention(x, x, mask)))",
                "x = self.dropout(self.norm_1(x + self.attention(x, x, mask)))",
            )
        ],
        multihead=[
            (
                "x = self.norms[0](x + self.dropout(y))\n        y = self.ffn",
                "x = self.dropout(self.norms[0](x + y))\n        y = self.ffn",
            )
        ],
        sequence_first=[
            ("x = self.ffn_norm(x + self.drop(y))", "x = self.drop(self.ffn_norm(x + y))")
        ],
    ),
    of_loss(
        "no label smoothing", "label-smoothing", "no label smoothing", f"{CE}, ignore_index=PAD)"
    ),
    of_loss(
        "another smoothing",
        "label-smoothing",
        "0\\.2",
        f"{CE}, ignore_index=PAD, label_smoothing=0.2)",
    ),
    of_loss(
        "smoothing over all",
        "label-smoothing",
        "all",
        f"{CE}, ignore_index=PAD, label_smoothing=0.1)",
    ),
    of_loss("pads are learned", "loss-padding", "padding", f"{CE}, label_smoothing=0.1 * 50 / 49)"),
    of_loss(
        "a mean over all positions",
        "loss-padding|loss-average",
        "positions|padding",
        f"{CE}, ignore_index=PAD, label_smoothing=0.1 * 50 / 49, reduction='sum') / target.numel()",
    ),
    of_loss(
        "a sum divided by sentences",
        "loss-average",
        "sentences",
        f"{CE}, ignore_index=PAD, label_smoothing=0.1 * 50 / 49, reduction='sum') / len(target)",
    ),
    of_loss(
        "a softmax twice",
        "label-smoothing|loss-formula|softmax-twice",
        "twice|probabilit",
        "F.cross_entropy(logits.softmax(-1).flatten(0, 1), target.flatten(), ignore_index=PAD)",
    ),
    of_loss(
        "ends are ignored",
        "loss-average|loss-words",
        "end",
        f"{CE}.masked_fill(target.flatten() == END, PAD), ignore_index=PAD)",
    ),
    of_loss(
        "a hinge loss",
        "label-smoothing",
        "hinge",
        "F.multi_margin_loss(logits[target != PAD], target[target != PAD])",
    ),
    of_loss(
        "a margin in the softmax",
        "label-smoothing",
        "margin of 0.5 ",
        f"{CE.replace('logits', '(logits - 0.5 * F.one_hot(target, logits.size(-1)))')}, ignore_index=PAD)",
    ),
    of_loss(
        "logits are bounded",
        "label-smoothing",
        "bounds logits.*-1 to 1",
        f"{CE.replace('logits', 'logits.clamp(-1, 1)')}, ignore_index=PAD)",
    ),
    of_loss(
        "noise is added to logits",
        "label-smoothing",
        "random",
        f"{CE.replace('logits', '(logits + torch.randn_like(logits))')}, ignore_index=PAD)",
    ),
    of_loss(
        "a binary cross entropy of probabilities",
        "label-smoothing",
        "binary cross entropy of the softmax",
        "F.binary_cross_entropy(logits.softmax(-1), F.one_hot(target, logits.size(-1)).float(), "
        "reduction='none')[target != PAD].sum()",
    ),
    of_loss(
        "the loss is in bits",
        "loss-average",
        "in bits",
        f"{CE}, ignore_index=PAD, label_smoothing=0.1 * 50 / 49) / 0.6931471805599453",
    ),
]
