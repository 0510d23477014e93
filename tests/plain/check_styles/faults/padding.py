"""Masks of padding, of the source and of the target."""

from .fault import Fault

A_SOURCE = "return (source != PAD)[:, None, None, :]"
A_CROSS = "self.cross(x, memory, source_mask)"
M_SOURCE = "source_padding = source == PAD\n    target_padding"
M_CROSS = "self.cross_attn(x, memory, memory, key_padding_mask=source_padding)"
M_ENCODER = "self.self_attn(x, x, x, key_padding_mask=source_padding)"
S_SOURCE = "hidden = (source == PAD)[None]"
S_CROSS = "x = layer(x, hidden, memory, source_hidden)"


def of_mask(name: str, shown: str, hidden: str, says: str, id: str = "source-padding") -> Fault:
    """Return a fault in the expression that makes the source's mask.

    Args:
        name: of the fault
        shown: true where a word is seen [B, S], in terms of ``source``
        hidden: true where a word is hidden, in terms of ``source`` [B, S]
        says: what the finding says
        id: of the finding
    """
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[(A_SOURCE, f"return ({shown})[:, None, None, :]")],
        multihead=[(M_SOURCE, f"source_padding = {hidden}\n    target_padding")],
        sequence_first=[
            (S_SOURCE, f"source = source.T; hidden = ({hidden}).T[None]; source = source.T")
        ],
    )


FAULTS = [
    Fault(
        "the source's padding is not masked",
        id="source-padding",
        says="no mask|not masked|attends? to",
        batch_first=[(A_SOURCE, "return None")],
        multihead=[(M_SOURCE, "source_padding = None\n    target_padding")],
        sequence_first=[(S_SOURCE, "hidden = None")],
    ),
    Fault(
        "cross-attention sees the source's padding",
        id="source-padding",
        says="cross-attention",
        batch_first=[(A_CROSS, "self.cross(x, memory, None)")],
        multihead=[(M_CROSS, "self.cross_attn(x, memory, memory)")],
        sequence_first=[(S_CROSS, "x = layer(x, hidden, memory, None)")],
    ),
    Fault(
        "the encoder sees the source's padding",
        id="source-padding",
        says="encoder",
        batch_first=[("x = layer(x, source_mask)", "x = layer(x, None)")],
        multihead=[(M_ENCODER, "self.self_attn(x, x, x)")],
        sequence_first=[
            ("x = layer(x, hidden)\n        return x", "x = layer(x, None)\n        return x")
        ],
    ),
    of_mask(
        "the mask is the first sentence's",
        shown="source[:1] != PAD",
        hidden="(source[:1] == PAD).expand(len(source), -1)",
        says="first sentence",
    ),
    of_mask(
        "the mask is the last sentence's",
        shown="source[-1:] != PAD",
        hidden="(source[-1:] == PAD).expand(len(source), -1)",
        says="last sentence|another sentence",
    ),
    of_mask(
        "the mask is turned round",
        shown="(source != PAD).flip(1)",
        hidden="(source == PAD).flip(1)",
        says="revers|flipped|wrong (side|end)",
    ),
    of_mask(
        "the mask is inverted",
        shown="source == PAD",
        hidden="source != PAD",
        says="inverted",
    ),
    of_mask(
        "the mask hides the end, too",
        shown="(source != PAD) & (source != END)",
        hidden="(source == PAD) | (source == END)",
        says="end",
        id="source-padding|source-visible",
    ),
    of_mask(
        "the mask hides the end in place of padding",
        shown="source != END",
        hidden="source == END",
        says="end",
        id="source-padding|source-visible",
    ),
    of_mask(
        "the mask looks for another id",
        shown="source != START",
        hidden="source == START",
        says="padding",
    ),
    of_mask(
        "the mask shows one pad",
        shown="torch.arange(source.size(1)) <= (source != PAD).sum(1, keepdim=True)",
        hidden="torch.arange(source.size(1)) > (source != PAD).sum(1, keepdim=True)",
        says="one (pad|position|token)",
    ),
    of_mask(
        "the mask hides the last token",
        shown="torch.arange(source.size(1)) < (source != PAD).sum(1, keepdim=True) - 1",
        hidden="torch.arange(source.size(1)) >= (source != PAD).sum(1, keepdim=True) - 1",
        says="last (token|word)|end",
        id="source-padding|source-visible",
    ),
    of_mask(
        "the mask hides the first token",
        shown="(source != PAD) & (torch.arange(source.size(1)) > 0)",
        hidden="(source == PAD) | (torch.arange(source.size(1)) == 0)",
        says="first (token|word)",
        id="source-padding|source-visible",
    ),
    of_mask(
        "a word is hidden where any sentence is padded",
        shown="(source != PAD).all(0, keepdim=True)",
        hidden="(source == PAD).any(0, keepdim=True).expand(len(source), -1)",
        says="shortest|any sentence|one mask",
    ),
    of_mask(
        "padding is hidden only where all sentences are padded",
        shown="(source != PAD).any(0, keepdim=True)",
        hidden="(source == PAD).all(0, keepdim=True).expand(len(source), -1)",
        says="longest|every sentence|all sentences|one mask",
    ),
    of_mask(
        "each sentence has its neighbour's mask",
        shown="(source != PAD).roll(1, 0)",
        hidden="(source == PAD).roll(1, 0)",
        says="another sentence|neighbour",
    ),
    Fault(
        "the mask hides queries in place of keys",
        id="source-padding",
        says="quer",
        batch_first=[
            (A_SOURCE, "return (source != PAD)[:, None, :, None]"),
            (
                A_CROSS,
                "self.cross(x, memory, None if source_mask is None else source_mask.transpose(-1, -2))",
            ),
        ],
        sequence_first=[
            (
                "x = layer(x, hidden)\n        return x",
                "x = layer(x, hidden.transpose(0, 1))\n        return x",
            ),
        ],
    ),
    Fault(
        "a hidden score is zero",
        id="source-padding|mask-value",
        says="0|zero",
        batch_first=[("masked_fill(mask == 0, -1e9)", "masked_fill(mask == 0, 0)")],
        sequence_first=[('hidden[..., None], float("-inf")', "hidden[..., None], 0.0")],
    ),
    Fault(
        "a hidden score is a small number",
        id="source-padding|mask-value",
        says="1e-0?9|e-9|0|small",
        batch_first=[("masked_fill(mask == 0, -1e9)", "masked_fill(mask == 0, 1e-9)")],
        sequence_first=[('hidden[..., None], float("-inf")', "hidden[..., None], -1e-9")],
    ),
    Fault(
        "hidden scores are only ten lower",
        id="source-padding|mask-value",
        says="-?10",
        batch_first=[("scores.masked_fill(mask == 0, -1e9)", "scores - 10.0 * (mask == 0)")],
        sequence_first=[
            (
                'score.masked_fill(hidden[..., None], float("-inf"))',
                "score - 10.0 * hidden[..., None]",
            )
        ],
    ),
    Fault(
        "the mask is added as zeros and ones",
        id="source-padding|mask-value",
        says="1|added",
        batch_first=[("scores.masked_fill(mask == 0, -1e9)", "scores + mask")],
        multihead=[
            (M_SOURCE, "source_padding = (source != PAD).float()\n    target_padding"),
        ],
        sequence_first=[
            ('score.masked_fill(hidden[..., None], float("-inf"))', "score + (~hidden[..., None])")
        ],
    ),
    Fault(
        "the mask is multiplied behind the softmax",
        id="source-padding|mask-value|softmax-dimension",
        says="after the softmax|behind the softmax",
        batch_first=[
            ("scores = scores.masked_fill(mask == 0, -1e9)", "keep = mask"),
            ("return weights @ v", "return (weights if mask is None else weights * keep) @ v"),
        ],
        sequence_first=[
            ('score = score.masked_fill(hidden[..., None], float("-inf"))', "pass"),
            (
                "weight = F.softmax(score, dim=1)",
                "weight = F.softmax(score, dim=1)\n        if hidden is not None:\n            weight = weight * ~hidden[..., None]",
            ),
        ],
    ),
    Fault(
        "masks of heads and sentences are mixed",
        id="source-padding",
        says="another sentence|heads",
        multihead=[
            (
                M_ENCODER,
                "self.self_attn(x, x, x, attn_mask=None if source_padding is None else source_padding[:, None].expand(-1, x.size(1), -1).repeat(self.self_attn.num_heads, 1, 1))",
            ),
        ],
        batch_first=[
            (
                "scores = scores.masked_fill(mask == 0, -1e9)",
                "b, h, t, s = scores.shape\n        mask = mask.expand(b, -1, t, s)[:, 0].repeat(h, 1, 1).view(b, h, t, s)\n        scores = scores.masked_fill(mask == 0, -1e9)",
            ),
            (
                "return model.decoder[0](x, memory, causal, None)",
                "return model.decoder[0](x, memory, causal[None, None], None)",
            ),
        ],
    ),
    Fault(
        "the target's padding is hidden in place of later words",
        id="causal-mask",
        batch_first=[
            (
                "return (target != PAD)[:, None, None, :] & causal",
                "return (target != PAD)[:, None, None, :] | causal",
            )
        ],
        multihead=[
            ("attn_mask=causal, key_padding_mask=target_padding", "key_padding_mask=target_padding")
        ],
        sequence_first=[
            ("hidden = later | (target == PAD)[None]", "hidden = later & (target == PAD)[None]")
        ],
    ),
    Fault(
        "the first word of the target is hidden as padding",
        id="target-visible",
        says="first",
        batch_first=[
            (
                "return (target != PAD)[:, None, None, :] & causal",
                "return ((target != PAD) & (target != START))[:, None, None, :] & causal | torch.eye(length, dtype=torch.bool)",
            )
        ],
        multihead=[
            (
                "    target_padding = target == PAD\n    causal = causal_mask(target.shape[1])",
                "    target_padding = (target == PAD)\n    causal = causal_mask(target.shape[1])\n    causal[1:, 0] = True",
            )
        ],
        sequence_first=[
            (
                "hidden = later | (target == PAD)[None]",
                "hidden = later | (target == PAD)[None] | (target == START)[None] & ~torch.eye(len(target), dtype=torch.bool)[..., None]",
            )
        ],
    ),
    Fault(
        "the encoder's positions count padding of the longest sentence",
        id="source-padding|batch-independence|positions-padding",
        batch_first=[
            (
                "return self.dropout(x + self.table[: ids.size(1)])\n\n    def embed_target",
                "shift = (ids == PAD).sum(1, keepdim=True)\n        return self.dropout(x + self.table[torch.arange(ids.size(1)) + shift])\n\n    def embed_target",
            )
        ],
        sequence_first=[
            (
                "return self.drop(x + sinusoids(positions, self.width))\n\n    def embed_target",
                "shift = (ids == PAD).sum(0)\n        table = sinusoids(torch.arange(200.0), self.width)[:, 0]\n        return self.drop(x + table[torch.arange(len(ids))[:, None] + shift])\n\n    def embed_target",
            )
        ],
    ),
    Fault(
        "an encoder's layers average over padding",
        id="source-padding|batch-independence|norm",
        batch_first=[
            (
                "x = layer(x, source_mask)\n        return x",
                "x = layer(x, source_mask)\n        return x - x.mean(1, keepdim=True)",
            )
        ],
        multihead=[
            (
                "x = block(x, source_padding)\n        return x",
                "x = block(x, source_padding)\n        return x - x.mean(1, keepdim=True)",
            )
        ],
        sequence_first=[
            (
                "x = layer(x, hidden)\n        return x, hidden",
                "x = layer(x, hidden)\n        return x - x.mean(0), hidden",
            )
        ],
    ),
    Fault(
        "padded queries see nothing, and are NaN",
        id="source-padding",
        says="NaN: in encoder self-attention, queries that are padding",
        batch_first=[
            (
                "scores = scores.masked_fill(mask == 0, -1e9)",
                'scores = scores.masked_fill(mask == 0, float("-inf"))',
            ),
            (
                "for layer in self.encoder:\n            x = layer(x, source_mask)\n        return x",
                "for layer in self.encoder:\n            x = layer(x, source_mask & source_mask.transpose(2, 3))\n        return x",
            ),
        ],
        multihead=[
            (
                "y, _ = self.self_attn(x, x, x, key_padding_mask=source_padding)\n",
                "both = None\n        if source_padding is not None:\n            both = source_padding[:, None, :] | source_padding[:, :, None]\n            both = both.repeat_interleave(self.self_attn.num_heads, dim=0)\n        y, _ = self.self_attn(x, x, x, attn_mask=both)\n",
            )
        ],
        sequence_first=[
            (
                "for layer in self.encoder:\n            x = layer(x, hidden)\n        return x, hidden",
                "for layer in self.encoder:\n            x = layer(x, hidden | hidden.transpose(0, 1))\n        return x, hidden",
            )
        ],
    ),
    Fault(
        "the causal mask is added as zeros and ones",
        id="mask-value",
        says="later tokens by 1",
        batch_first=[
            (
                "    if mask is not None:\n        scores = scores.masked_fill(mask == 0, -1e9)",
                "    if mask is not None and mask.is_floating_point():\n        scores = scores + mask\n    elif mask is not None:\n        scores = scores.masked_fill(mask == 0, -1e9)",
            ),
            (
                "return (target != PAD)[:, None, None, :] & causal",
                "return ((target != PAD)[:, None, None, :] & causal).float()",
            ),
            (
                "causal = torch.tril(torch.ones(x.size(1), x.size(1), dtype=torch.bool))",
                "causal = torch.tril(torch.ones(x.size(1), x.size(1)))",
            ),
        ],
        multihead=[
            (
                "return torch.ones(length, length, dtype=torch.bool).triu(1)",
                "return torch.ones(length, length).tril()",
            )
        ],
        sequence_first=[
            (
                '        if hidden is not None:\n            score = score.masked_fill(hidden[..., None], float("-inf"))',
                '        if hidden is not None and hidden.is_floating_point():\n            score = score + hidden[..., None]\n        elif hidden is not None:\n            score = score.masked_fill(hidden[..., None], float("-inf"))',
            ),
            (
                "hidden = later | (target == PAD)[None]",
                "hidden = 1.0 - (later | (target == PAD)[None]).float()",
            ),
            (
                "later = torch.ones(x.size(1), x.size(1)).triu(1).bool()[:, :, None]",
                "later = torch.ones(x.size(1), x.size(1)).tril()[:, :, None]",
            ),
        ],
    ),
]
