"""Scores, softmax, heads, and what attention reads."""

from .fault import Fault

A_SCALE = "/ math.sqrt(q.size(-1))"
A_SOFTMAX = "F.softmax(scores, dim=-1)"
A_SPLIT = "return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)"
S_SCORE = 'score = torch.einsum("ibnd,jbnd->ijbn", q, k) * self.scale'
S_SOFTMAX = "F.softmax(score, dim=1)"
S_CROSS = "y = self.cross(x, memory, memory_hidden, cross_cache)"
M_CROSS = "y, _ = self.cross_attn(x, memory, memory, key_padding_mask=source_padding)"
A_CROSS = "x = self.norm_2(x + self.dropout(self.cross(x, memory, source_mask)))"
A_CAUSAL = "causal = torch.tril(torch.ones(length, length, dtype=torch.bool))"
M_CAUSAL = "return torch.ones(length, length, dtype=torch.bool).triu(1)"
S_CAUSAL = "later = torch.ones(len(target), len(target)).triu(1).bool()[:, :, None]"


def of_scale(name: str, says: str, a: str, s: str) -> Fault:
    """Return a fault with another factor of the scores."""
    return Fault(
        name,
        id="attention-scale",
        says=says,
        batch_first=[(A_SCALE, a)],
        sequence_first=[("self.scale = d_k**-0.5", f"self.scale = {s}")],
    )


def of_causal(name: str, says: str, change: str, id: str = "target-visible|causal-mask") -> Fault:
    """Return a fault with another mask of later words.

    ``change`` is an expression in ``m``, which is true where a word is hidden.
    """
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[
            (
                A_CAUSAL,
                f"m = torch.ones(length, length, dtype=torch.bool).triu(1)\n        causal = ~({change})",
            )
        ],
        multihead=[
            (
                M_CAUSAL,
                f"m = torch.ones(length, length, dtype=torch.bool).triu(1)\n    return {change}",
            )
        ],
        sequence_first=[
            (
                S_CAUSAL,
                f"m = torch.ones(len(target), len(target)).triu(1).bool()\n        length = len(target)\n        later = ({change})[:, :, None]",
            )
        ],
    )


def of_queries(name: str, says: str, a: str, s: str, id: str = "stray-activation") -> Fault:
    """Return a fault that changes projected queries and keys."""
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[
            (
                "context = attention(q, k, v, mask)",
                f"{a}\n        context = attention(q, k, v, mask)",
            )
        ],
        sequence_first=[(S_SCORE, f"{s}\n        {S_SCORE}")],
    )


FAULTS = [
    of_scale("scores are not scaled", "not (scaled|divided)|no scale|nothing|unscaled", "", "1.0"),
    of_scale(
        "scores are divided by the root of d_model",
        "d_model",
        "/ math.sqrt(32)",
        "config.d_model**-0.5",
    ),
    of_scale("scores are divided by d_k", "d_k", "/ q.size(-1)", "1 / d_k"),
    of_scale(
        "scores are multiplied by the root of d_k", "multipl", "* math.sqrt(q.size(-1))", "d_k**0.5"
    ),
    Fault(
        "queries are scaled once more",
        id="attention-scale",
        says="twice|d_k",
        batch_first=[("q = self.split(self.w_q(x))", "q = self.split(self.w_q(x)) / math.sqrt(8)")],
        sequence_first=[("+ self.query_bias", "+ self.query_bias\n        q = q * self.scale")],
    ),
    Fault(
        "the softmax is over queries",
        id="softmax-dimension",
        says="quer",
        batch_first=[(A_SOFTMAX, "F.softmax(scores, dim=-2)")],
        sequence_first=[(S_SOFTMAX, "F.softmax(score, dim=0).nan_to_num()")],
    ),
    Fault(
        "the softmax is over heads",
        id="softmax-dimension",
        says="head",
        batch_first=[(A_SOFTMAX, "F.softmax(scores, dim=1)")],
        sequence_first=[(S_SOFTMAX, "F.softmax(score, dim=3).nan_to_num()")],
    ),
    Fault(
        "the softmax is over sentences",
        id="softmax-dimension|batch-independence",
        says="sentence|batch",
        batch_first=[(A_SOFTMAX, "F.softmax(scores, dim=0)")],
        sequence_first=[(S_SOFTMAX, "F.softmax(score, dim=2).nan_to_num()")],
    ),
    Fault(
        "weights are a sigmoid's",
        id="softmax-dimension",
        batch_first=[(A_SOFTMAX, "torch.sigmoid(scores)")],
        sequence_first=[(S_SOFTMAX, "torch.sigmoid(score)")],
    ),
    Fault(
        "weights are raised after the softmax",
        id="stray-activation",
        batch_first=[("return weights @ v", "return weights * 2 @ v")],
        sequence_first=[(S_SOFTMAX, "2 * F.softmax(score, dim=1)")],
    ),
    Fault(
        "all heads are equal",
        id="heads",
        says="alike|equal|same|cop",
        batch_first=[
            (
                "context = attention(q, k, v, mask)",
                "context = attention(q[:, :1].expand_as(q), k[:, :1].expand_as(k), v, mask)",
            )
        ],
        sequence_first=[
            (
                S_SCORE,
                "q = q[:, :, :1].expand_as(q)\n        k = k[:, :, :1].expand_as(k)\n        "
                + S_SCORE,
            )
        ],
    ),
    Fault(
        "one head",
        id="heads|attention-scale",
        says="head",
        batch_first=[("self.heads = config.heads", "self.heads = 1")],
        multihead=[
            (
                "nn.MultiheadAttention(config.d_model, config.heads,",
                "nn.MultiheadAttention(config.d_model, 1,",
            )
        ],
        sequence_first=[
            ("class Heads(nn.Module):", "class Heads(nn.Module):"),
            (
                "d_k, d_v = config.widths()",
                "import dataclasses; config = dataclasses.replace(config, heads=1)\n        d_k, d_v = config.widths()",
            ),
        ],
    ),
    Fault(
        "twice as many heads",
        id="heads|attention-scale",
        says="8|head",
        batch_first=[("self.heads = config.heads", "self.heads = 2 * config.heads")],
        multihead=[
            (
                "nn.MultiheadAttention(config.d_model, config.heads,",
                "nn.MultiheadAttention(config.d_model, 2 * config.heads,",
            )
        ],
    ),
    Fault(
        "heads are split without a transpose",
        id="head-concatenation",
        says="split|join|concat|view|reshape",
        batch_first=[(A_SPLIT, "return x.view(x.size(0), self.heads, x.size(1), -1)")],
    ),
    Fault(
        "heads are joined without a transpose",
        id="head-concatenation",
        says="split|join|concat|view|reshape",
        batch_first=[("self.w_o(context.transpose(1, 2).reshape(", "self.w_o(context.reshape(")],
        sequence_first=[
            (
                'return torch.einsum("ibnd,ndm->ibm", context, self.out) + self.out_bias',
                'i, b, n, d = context.shape\n        context = context.permute(1, 2, 0, 3).reshape(b, i, n, d).transpose(0, 1)\n        return torch.einsum("ibnd,ndm->ibm", context, self.out) + self.out_bias',
            )
        ],
    ),
    Fault(
        "memory is normed again for cross-attention",
        id="attention-inputs|memory|final-norm|norm-places",
        says="norm",
        batch_first=[
            (
                A_CROSS,
                "x = self.norm_2(x + self.dropout(self.cross(x, F.layer_norm(memory, memory.shape[-1:]), source_mask)))",
            )
        ],
        multihead=[
            (
                M_CROSS,
                "m = self.norms[1](memory)\n        y, _ = self.cross_attn(x, m, m, key_padding_mask=source_padding)",
            )
        ],
        sequence_first=[
            (
                S_CROSS,
                "y = self.cross(x, self.cross_norm(memory) if memory is not None else None, memory_hidden, cross_cache)",
            )
        ],
    ),
    Fault(
        "cross-attention attends to the decoder",
        id="source-dependence|cross-inputs|attention-inputs",
        says="source|encoder|memory",
        batch_first=[(A_CROSS, "x = self.norm_2(x + self.dropout(self.cross(x, x, target_mask)))")],
        multihead=[(M_CROSS, "y, _ = self.cross_attn(x, x, x, attn_mask=causal)")],
        sequence_first=[(S_CROSS, "y = self.cross(x, x, hidden)")],
    ),
    of_causal("no causal mask", "later|future", "torch.zeros_like(m)", "causal-mask"),
    of_causal("the causal mask is one too far", "later|future", "m.triu(2)", "causal-mask"),
    of_causal(
        "the causal mask is turned round",
        "later|future|transpos|earlier",
        "m.T & (torch.arange(len(m)) > 0)",
        "causal-mask",
    ),
    of_causal("the mask is a window of three", "3|three", "m | torch.ones_like(m).tril(-3)"),
    of_causal("the mask is a window of ten", "10|ten", "m | torch.ones_like(m).tril(-10)"),
    of_causal(
        "the mask hides the word itself",
        "itself",
        "torch.ones_like(m).triu(0) & ~(torch.eye(len(m), dtype=torch.bool) & (torch.arange(len(m)) == 0))",
    ),
    of_causal(
        "the mask hides the first word",
        "first",
        "m | (torch.arange(len(m)) == 0) & (torch.arange(len(m))[:, None] > 0)",
    ),
    of_causal(
        "the mask hides the word before",
        "before|previous",
        "m | torch.eye(len(m), dtype=torch.bool).roll(-1, 1) & (torch.arange(len(m))[:, None] > 0)",
    ),
    Fault(
        "the causal mask is there in training only",
        id="causal-mask|training-mode",
        says="training",
        batch_first=[("& causal", "& (causal | (not self.training))")],
        multihead=[("attn_mask=causal, key", "attn_mask=causal if self.training else None, key")],
        sequence_first=[("hidden = later |", "hidden = later & self.training |")],
    ),
    Fault(
        "the causal mask is there in evaluation only",
        id="causal-mask|training-mode",
        says="training",
        batch_first=[("& causal", "& (causal | self.training)")],
        multihead=[("attn_mask=causal, key", "attn_mask=None if self.training else causal, key")],
        sequence_first=[("hidden = later |", "hidden = later & (not self.training) |")],
    ),
    Fault(
        "the source's mask is there in training only",
        id="source-padding|training-mode",
        says="training",
        batch_first=[
            (
                "return (source != PAD)[:, None, None, :]",
                "return (source != PAD)[:, None, None, :] if self.training else None",
            )
        ],
        multihead=[
            (
                "source_padding = source == PAD\n    target_padding",
                "source_padding = source == PAD if model.training else None\n    target_padding",
            )
        ],
        sequence_first=[
            (
                "hidden = (source == PAD)[None]",
                "hidden = (source == PAD)[None] if self.training else None",
            )
        ],
    ),
    Fault(
        "the source's mask is there in evaluation only",
        id="source-padding|training-mode",
        says="training",
        batch_first=[
            (
                "return (source != PAD)[:, None, None, :]",
                "return None if self.training else (source != PAD)[:, None, None, :]",
            )
        ],
        multihead=[
            (
                "source_padding = source == PAD\n    target_padding",
                "source_padding = None if model.training else source == PAD\n    target_padding",
            )
        ],
        sequence_first=[
            (
                "hidden = (source == PAD)[None]",
                "hidden = None if self.training else (source == PAD)[None]",
            )
        ],
    ),
    Fault(
        "the encoder has a causal mask",
        id="source-visible",
        says="causal",
        batch_first=[
            (
                "x = layer(x, source_mask)",
                "x = layer(x, source_mask & torch.ones(x.size(1), x.size(1)).tril().bool())",
            )
        ],
        multihead=[
            (
                "y, _ = self.self_attn(x, x, x, key_padding_mask=source_padding)",
                "y, _ = self.self_attn(x, x, x, key_padding_mask=source_padding, attn_mask=causal_mask(x.shape[1]))",
            )
        ],
        sequence_first=[
            (
                "x = layer(x, hidden)\n        return x",
                "x = layer(x, hidden | torch.ones(len(x), len(x)).triu(1).bool()[..., None])\n        return x",
            )
        ],
    ),
    of_queries(
        "ReLU on queries and keys",
        "ReLU",
        "q = F.relu(q)\n        k = F.relu(k)",
        "q, k = q.relu(), k.relu()",
    ),
    of_queries("ReLU on queries", "ReLU", "q = F.relu(q)", "q = q.relu()"),
    of_queries("ReLU on values", "ReLU", "v = F.relu(v)", "v = v.relu()", "stray-activation"),
    of_queries(
        "tanh on queries and keys",
        "tanh|activation",
        "q = torch.tanh(q)\n        k = torch.tanh(k)",
        "q, k = q.tanh(), k.tanh()",
    ),
    of_queries(
        "queries and keys are normalised",
        "norm|unit|length",
        "q = F.normalize(q, dim=-1)\n        k = F.normalize(k, dim=-1)",
        "q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)",
    ),
    Fault(
        "ReLU behind attention",
        id="stray-activation",
        says="ReLU",
        batch_first=[
            (
                "return self.w_o(context.transpose(1, 2).reshape(x.size(0), x.size(1), -1))",
                "return F.relu(self.w_o(context.transpose(1, 2).reshape(x.size(0), x.size(1), -1)))",
            )
        ],
        multihead=[(M_CROSS, M_CROSS + "\n        y = torch.relu(y)")],
        sequence_first=[
            (
                'return torch.einsum("ibnd,ndm->ibm", context, self.out) + self.out_bias',
                'return (torch.einsum("ibnd,ndm->ibm", context, self.out) + self.out_bias).relu()',
            )
        ],
    ),
    Fault(
        "no output matrix of attention",
        id="head-size|gradients|attention-output|parameter-count",
        batch_first=[
            (
                "return self.w_o(context.transpose(1, 2).reshape(x.size(0), x.size(1), -1))",
                "return context.transpose(1, 2).reshape(x.size(0), x.size(1), -1)",
            )
        ],
        sequence_first=[
            (
                'return torch.einsum("ibnd,ndm->ibm", context, self.out) + self.out_bias',
                "return context.flatten(2)",
            )
        ],
    ),
]
