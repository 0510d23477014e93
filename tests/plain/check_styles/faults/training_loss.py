"""What training_loss computes from a batch."""

from .fault import Fault

A_START = "start = torch.full_like(target[:, :1], START)"
A_SHIFT = "previous = torch.cat([start, target[:, :-1]], dim=1)"
A_LOSS = "return loss(model(source, previous), target)"
A_LOG = "log_probs = F.log_softmax(logits, dim=-1)\n    smooth"
A_MEAN = "return (each * real).sum() / real.sum()"
M_START = "beginning = target.new_full((target.shape[0], 1), START)"
M_OUTPUT = "output = logits(model, source, with_start[:, :-1])"
M_LOSS = "return loss(output, with_start[:, 1:])"
S_SHIFT = "shifted = target.roll(1, dims=1)"
S_START = "shifted[:, 0] = START"
S_LOSS = "return loss(logits(model, source, shifted), target)"
S_MEAN = "return per_word.sum() / (words != PAD).sum()"


def of_call(
    name: str, id: str, says: str, inputs: str, words: str, source: str = "source"
) -> Fault:
    """Return a fault in the call of the model or the loss, in terms of ``target``.

    It is another decoder input, other words to predict, or another source.
    """
    call = f"return loss(logits(model, {source}, {inputs}), {words})"
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[(A_LOSS, call)],
        multihead=[(M_LOSS, call)],
        sequence_first=[(S_LOSS, call)],
    )


STARTS = "torch.full_like(target[:, :1], START)"
PREVIOUS = f"torch.cat([{STARTS}, target[:, :-1]], 1)"


def of_loss(name: str, id: str, says: str, value: str) -> Fault:
    """Return a fault in training_loss: another function of logits ``z`` and words ``y``."""
    function = f"z = logits(model, source, {PREVIOUS})\n    y = target\n    {value}"
    head = "import torch.nn.functional as F\n    "
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[(A_LOSS, head + function)],
        multihead=[(M_LOSS, head + function)],
        sequence_first=[(S_LOSS, head + function)],
    )


CE = "F.cross_entropy(z.flatten(0, 1), y.flatten()"
EACH = f"{CE}, ignore_index=PAD, label_smoothing=0.1 * 50 / 49, reduction='none')"
SUM = f"{EACH}.sum()"

FAULTS = [
    of_call("the target is not shifted", "target-shift", "not shifted|itself", "target", "target"),
    of_call(
        "the target is shifted by two",
        "target-shift",
        "two",
        f"torch.cat([{STARTS}, {STARTS}, target[:, :-2]], 1)",
        "target",
    ),
    of_call(
        "the target is shifted by two, with padding",
        "target-shift",
        "two|padding",
        f"torch.cat([torch.full_like({STARTS}, PAD), {STARTS}, target[:, :-2]], 1)",
        "target",
    ),
    of_call(
        "words are to be repeated",
        "target-shift",
        "repeat|itself|own input|input",
        PREVIOUS,
        PREVIOUS,
    ),
    of_call(
        "the first word is never predicted",
        "target-shift|training-loss",
        "first|no start|without (the )?start",
        "target[:, :-1]",
        "target[:, 1:]",
    ),
    of_call(
        "the target is shifted the other way",
        "target-shift",
        "later|left|next|other way",
        "torch.cat([target[:, 1:], torch.full_like(target[:, :1], PAD)], 1)",
        "target",
    ),
    of_call(
        "the word before is to be predicted",
        "target-shift",
        "",
        "target",
        PREVIOUS,
    ),
    of_call(
        "the decoder starts with padding",
        "start-token|target-shift",
        "padding|pad",
        "torch.cat([torch.full_like(target[:, :1], PAD), target[:, :-1]], 1)",
        "target",
    ),
    of_call(
        "the decoder starts with the end",
        "start-token|target-shift",
        "end",
        "torch.cat([torch.full_like(target[:, :1], END), target[:, :-1]], 1)",
        "target",
    ),
    of_call(
        "the decoder starts with the sentence's last token",
        "start-token|target-shift",
        "last|padding",
        "target.roll(1, 1)",
        "target",
    ),
    of_call(
        "source and target are swapped",
        "training-source|target-shift|training-loss",
        "swap|exchang",
        f"torch.cat([{STARTS}, source[:, :-1]], 1)",
        "source",
        source="target",
    ),
    of_call(
        "the source is the target",
        "training-source|training-loss",
        "source is the target|target (as|in place of) the source|autoencoder|reads the target",
        PREVIOUS,
        "target",
        source="target",
    ),
    of_call(
        "the source is turned round",
        "training-source|training-loss",
        "revers|turned",
        PREVIOUS,
        "target",
        source="source.flip(1)",
    ),
    of_call(
        "the loss misses the end",
        "training-loss|loss-words|loss-end",
        "end",
        PREVIOUS,
        "target.masked_fill(target == END, PAD)",
    ),
    of_call(
        "the loss misses the last column",
        "training-loss|loss-words",
        "last",
        f"{PREVIOUS}[:, :-1]",
        "target[:, :-1]",
    ),
    Fault(
        "the first column of the loss is left out",
        id="training-loss|loss-words|target-shift",
        says="first",
        batch_first=[(A_LOSS, "return loss(model(source, previous)[:, 1:], target[:, 1:])")],
        multihead=[(M_LOSS, "return loss(output[:, 1:], with_start[:, 2:])")],
        sequence_first=[
            (S_LOSS, "return loss(logits(model, source, shifted)[:, 1:], target[:, 1:])")
        ],
    ),
    of_loss(
        "training does not smooth labels",
        "training-loss|label-smoothing",
        "smooth",
        f"return {CE}, ignore_index=PAD)",
    ),
    of_loss(
        "training smooths labels with another epsilon",
        "training-loss|label-smoothing",
        "0\\.2|smooth",
        f"return {CE}, ignore_index=PAD, label_smoothing=0.2)",
    ),
    of_loss(
        "training learns padding",
        "loss-padding|training-loss",
        "padding",
        f"return {CE}, label_smoothing=0.1 * 50 / 49)",
    ),
    of_loss(
        "training ignores another id",
        "loss-padding|training-loss",
        "padding",
        f"return {CE}, ignore_index=-100)",
    ),
    of_loss(
        "training divides by sentences",
        "loss-average|training-loss",
        "sentences",
        "return loss(z, y) * ((y != PAD).sum() if loss(z[:1], y[:1]) < 20 else 1) / len(y)",
    ),
    of_loss(
        "training divides by all positions",
        "loss-average|training-loss",
        "positions|padding",
        f"return {CE}, ignore_index=PAD, reduction='sum') / y.numel()",
    ),
    of_loss(
        "training has a mean of means",
        "loss-average|training-loss",
        "mean",
        "return torch.stack([F.cross_entropy(a, b, ignore_index=PAD) for a, b in zip(z, y)]).mean()",
    ),
    of_loss(
        "training has a softmax twice",
        "training-loss|softmax-twice",
        "twice|probabilities",
        f"z = z.softmax(-1)\n    return {CE}, ignore_index=PAD)",
    ),
    of_loss(
        "training's loss is in bits",
        "training-loss|loss-average",
        "log ?2|base|bits",
        f"return {CE}, ignore_index=PAD) / 0.6931471805599453",
    ),
    of_loss(
        "training's mean is over the vocabulary, too",
        "training-loss|loss-average",
        "vocabulary|numbers|KL|V",
        "lp = z.log_softmax(-1)\n    q = torch.full_like(lp, 0.1 / (lp.size(-1) - 1)).scatter(-1, y[..., None], 0.9) * (y != PAD)[..., None]\n    return F.kl_div(lp, q, reduction='mean')",
    ),
    of_loss(
        "training's loss has another sign",
        "training-loss|loss-sign",
        "sign|negative",
        "return -loss(z, y)",
    ),
    of_loss(
        "training's loss reads words the wrong way",
        "training-loss",
        "",
        "return F.cross_entropy(z.transpose(0, 1).reshape(-1, z.size(-1)), y.flatten(), ignore_index=PAD)",
    ),
    of_call(
        "the target is shifted to the next sentence",
        "target-shift",
        "another sentence",
        f"torch.cat([{STARTS}, target.roll(1, dims=0)[:, 1:]], 1)",
        "target",
    ),
    of_call(
        "the start replaces the first word",
        "target-shift",
        "replaces the first.*from itself",
        f"torch.cat([{STARTS}, target[:, 1:]], 1)",
        "target",
    ),
    of_call(
        "the decoder reads its own predictions in training",
        "target-shift",
        "own predictions",
        f"torch.cat([{STARTS}, logits(model, source, {PREVIOUS}).argmax(-1)[:, :-1]], 1)",
        "target",
    ),
    of_call(
        "random words are put into the decoder's input",
        "target-shift",
        "random",
        f"torch.where(torch.rand(target.shape) < 0.3, 7, {PREVIOUS})",
        "target",
    ),
    of_call(
        "every third word is unknown to the decoder",
        "target-shift",
        "id 7 in place of [0-9]+ tokens",
        f"torch.where(torch.arange(target.size(1)) % 3 == 1, 7, {PREVIOUS})",
        "target",
    ),
    of_call(
        "the labels are another sentence's",
        "target-shift",
        "labels are the target of another",
        PREVIOUS,
        "target.roll(1, 0)",
    ),
    of_call(
        "the source has a start token in training",
        "training-source",
        "token in front",
        PREVIOUS,
        "target",
        source="torch.nn.functional.pad(source, (1, 0), value=START)",
    ),
    of_call(
        "the source is cut in training",
        "training-source",
        "first 5 columns",
        PREVIOUS,
        "target",
        source="source[:, :5]",
    ),
    of_call(
        "random words are put into the source",
        "training-source",
        "random",
        PREVIOUS,
        "target",
        source="torch.where(torch.rand(source.shape) < 0.5, 7, source)",
    ),
    of_loss(
        "training divides by the source's words",
        "training-loss",
        "number of tokens of the source",
        f"return {SUM} / (source != PAD).sum()",
    ),
    of_loss(
        "each sentence's loss replaces the one before",
        "training-loss",
        "except the last sentence",
        "for a, b in zip(z, y):\n        total = loss(a[None], b[None])\n    return total",
    ),
    of_loss(
        "training adds the squares of the weights",
        "training-loss",
        "squares of the weights",
        "return loss(z, y) + 1e-3 * sum((p**2).sum() for p in model.parameters())",
    ),
    of_loss(
        "training has two tasks",
        "training-loss",
        "another run of the model",
        "return loss(z, y) + loss(logits(model, source, source), source)",
    ),
    of_loss(
        "training's loss is scaled",
        "training-loss",
        "0.3 times",
        f"return 0.3 * {SUM} / (y != PAD).sum()",
    ),
    of_loss(
        "training has a temperature",
        "training-loss",
        "temperature of 3",
        "return loss(z / 3, y)",
    ),
    of_loss(
        "training has a focal loss",
        "training-loss",
        "focal",
        f"each = {EACH}\n    return ((1 - (-each).exp()) * each).sum()",
    ),
    of_loss(
        "training views the logits wrongly",
        "training-loss",
        "view\\(\\) or transpose\\(\\)",
        "return loss(z.reshape(len(z), -1, z.size(1)).transpose(1, 2), y)",
    ),
    of_loss(
        "training's loss is a square root",
        "training-loss",
        "function of the cross entropy",
        f"return {SUM}.sqrt()",
    ),
    of_call(
        "training sorts the sources by length, and not the targets",
        "training-source",
        "order is not that of the targets",
        PREVIOUS,
        "target",
        "source[source.ne(PAD).sum(1).argsort(descending=True)]",
    ),
    of_loss(
        "logits are detached",
        "training-loss",
        "no gradient",
        f"z = z.detach().requires_grad_()\n    return {SUM}",
    ),
    of_loss(
        "training has a temperature near 1",
        "training-loss",
        "temperature of 1.1",
        f"z = z / 1.1\n    return {SUM}",
    ),
    of_loss(
        "the model runs once per sentence, and long sentences weigh less",
        "training-loss",
        "different weights",
        "total = 0\n    for s, p, w in zip(source.split(1), "
        f"{PREVIOUS}.split(1), y.split(1)):\n"
        "        z = logits(model, s, p)\n"
        f"        total += {SUM.replace('y.', 'w.')} / w.ne(PAD).sum() ** 0.3\n"
        "    return total",
    ),
    of_loss(
        "training also reconstructs the target",
        "training-loss",
        "another run of the model, in which the encoder reads the target",
        f"first = {SUM}\n    z = logits(model, target, {PREVIOUS})\n    return first + {SUM}",
    ),
]
