"""Layer normalisation and residual connections."""

from .fault import Edits, Fault

A_NORM = "nn.LayerNorm(config.d_model, eps=1e-6)"
M_NORM = "nn.LayerNorm(config.d_model)"
S_NORM = "return self.gain * (x - mean) / torch.sqrt(variance + self.eps) + self.bias"
A_CLASS = "class EncoderLayer(nn.Module):"
M_CLASS = "class EncoderBlock(nn.Module):"


def of_norm(name: str, id: str, says: str, body: str, s_body: str = "") -> Fault:
    """Return a fault with another norm of x, in terms of ``w`` and ``b``."""
    new = (
        "class Norm(nn.Module):\n"
        "    def __init__(self, width, eps=1e-6):\n"
        "        super().__init__()\n"
        "        self.w = nn.Parameter(torch.ones(width))\n"
        "        self.b = nn.Parameter(torch.zeros(width))\n"
        "        self.eps = eps\n\n"
        "    def forward(self, x):\n"
        f"        {body}\n\n\n"
    )
    swapped = (s_body or body).replace("self.w", "self.gain").replace("self.b", "self.bias")
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[(A_NORM, "Norm(config.d_model)"), (A_CLASS, new + A_CLASS)],
        multihead=[(M_NORM, "Norm(config.d_model)"), (M_CLASS, new + M_CLASS)],
        sequence_first=[(S_NORM, swapped)],
    )


def of_cross(s: str) -> Edits:
    """Return the edit of cross-attention in sequence_first."""
    return [
        (
            "y = self.cross(x, memory, memory_hidden, cross_cache)\n            x = self.cross_norm(x + self.drop(y))",
            f"n, f = self.cross_norm, lambda x: self.drop(self.cross(x, memory, memory_hidden, cross_cache))\n            x = {s}",
        )
    ]


def of_layers(
    name: str, id: str, says: str, a: str, m: str, s: str, with_cross: bool = False
) -> Fault:
    """Return a fault with another sum in the encoder; in sequence_first, in both.

    In it ``n(x)`` is the norm, and ``f(x)`` the sub-layer with its dropout.
    """
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[
            (
                "x = self.norm_1(x + self.dropout(self.attention(x, x, mask)))\n"
                "        return self.norm_2(x + self.dropout(self.ffn(x)))",
                "n, f = self.norm_1, lambda x: self.dropout(self.attention(x, x, mask))\n"
                f"        x = {a}\n"
                "        n, f = self.norm_2, lambda x: self.dropout(self.ffn(x))\n"
                f"        return {a}",
            )
        ],
        multihead=[
            (
                "y, _ = self.self_attn(x, x, x, key_padding_mask=source_padding)\n"
                "        x = self.norms[0](x + self.dropout(y))\n"
                "        y = self.ffn(x)\n"
                "        x = self.norms[1](x + self.dropout(y))\n",
                "n = self.norms[0]\n"
                "        f = lambda x: self.dropout(self.self_attn(x, x, x, key_padding_mask=source_padding)[0])\n"
                f"        x = {m}\n"
                "        n, f = self.norms[1], lambda x: self.dropout(self.ffn(x))\n"
                f"        x = {m}\n",
            )
        ],
        sequence_first=[
            (
                "y = self.heads(x, x, hidden, cache)\n"
                "        x = self.heads_norm(x + self.drop(y))",
                "n, f = self.heads_norm, lambda x: self.drop(self.heads(x, x, hidden, cache))\n"
                f"        x = {s}",
            ),
            *(of_cross(s) if with_cross else ()),
            (
                "y = self.ffn(x)\n        x = self.ffn_norm(x + self.drop(y))",
                f"n, f = self.ffn_norm, lambda x: self.drop(self.ffn(x))\n        x = {s}",
            ),
        ],
    )


PRE = "x + f(n(x))"

FAULTS = [
    of_norm(
        "RMSNorm",
        "layer-norm",
        "RMS",
        "return self.w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) + self.b",
    ),
    of_norm(
        "RMSNorm without a bias",
        "layer-norm",
        "RMS",
        "return self.w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)",
    ),
    of_norm(
        "the mean is not subtracted",
        "layer-norm",
        "mean",
        "return self.w * x / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + self.eps) + self.b",
    ),
    of_norm(
        "only the mean is subtracted",
        "layer-norm",
        "varian|divid",
        "return self.w * (x - x.mean(-1, keepdim=True)) + self.b",
    ),
    of_norm(
        "the norm divides by the variance",
        "layer-norm",
        "varian",
        "return self.w * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + self.eps) + self.b",
    ),
    of_norm(
        "the norm divides by a sample's deviation",
        "norm-variance",
        "sample|d - 1|unbiased",
        "return self.w * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.b",
    ),
    of_norm(
        "the norm is over the length",
        "layer-norm",
        "length|position|sentence",
        "d = x.dim() - 2\n        return self.w * (x - x.mean(d, keepdim=True)) / torch.sqrt(x.var(d, keepdim=True, unbiased=False) + self.eps) + self.b",
        "return self.w * (x - x.mean(0, keepdim=True)) / torch.sqrt(x.var(0, keepdim=True, unbiased=False) + self.eps) + self.b",
    ),
    of_norm(
        "the norm is over length and width",
        "layer-norm",
        "length|position|sentence|token",
        "return self.w * (x - x.mean((-2, -1), keepdim=True)) / torch.sqrt(x.var((-2, -1), keepdim=True, unbiased=False) + self.eps) + self.b",
        "return self.w * (x - x.mean((0, 2), keepdim=True)) / torch.sqrt(x.var((0, 2), keepdim=True, unbiased=False) + self.eps) + self.b",
    ),
    of_norm(
        "the norm is over the batch",
        "layer-norm|norm|batch-independence",
        "batch|sentence",
        "return self.w * (x - x.mean((0, 1), keepdim=True)) / torch.sqrt(x.var((0, 1), keepdim=True, unbiased=False) + self.eps) + self.b",
    ),
    of_norm(
        "the norm is over everything",
        "layer-norm|norm|batch-independence",
        "batch|sentence",
        "return self.w * (x - x.mean()) / torch.sqrt(x.var(unbiased=False) + self.eps) + self.b",
    ),
    of_norm(
        "the norm is of unit length",
        "layer-norm",
        "length|unit|L2|varian|norm",
        "return self.w * x / (x.norm(dim=-1, keepdim=True) + self.eps) + self.b",
    ),
    of_norm(
        "the norm has no gain and no bias",
        "layer-norm|norm|norm-affine|norm-gain",
        "gain",
        "return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + self.eps)",
    ),
    of_norm(
        "the norm has no gain",
        "layer-norm|norm|norm-affine|norm-gain",
        "gain",
        "return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + self.eps) + self.b",
    ),
    of_norm(
        "the norm has no bias",
        "layer-norm|norm|norm-affine|norm-bias|gradients",
        "bias",
        "return self.w * (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + self.eps)",
    ),
    of_norm(
        "the epsilon of the norm is 0.1",
        "layer-norm|norm-epsilon",
        "0\\.1|1e-01",
        "return self.w * (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 0.1) + self.b",
    ),
    of_norm("the norm does nothing", "layer-norm|norm|post-norm", "", "return x"),
    Fault(
        "BatchNorm",
        id="layer-norm|norm|batch-independence",
        says="batch",
        batch_first=[
            (A_NORM, "Batch(config.d_model)"),
            (
                A_CLASS,
                "class Batch(nn.BatchNorm1d):\n    def forward(self, x):\n        return super().forward(x.transpose(1, 2)).transpose(1, 2)\n\n\n"
                + A_CLASS,
            ),
        ],
        multihead=[
            (M_NORM, "Batch(config.d_model)"),
            (
                M_CLASS,
                "class Batch(nn.BatchNorm1d):\n    def forward(self, x):\n        return super().forward(x.transpose(1, 2)).transpose(1, 2)\n\n\n"
                + M_CLASS,
            ),
        ],
        sequence_first=[
            (
                S_NORM,
                "return F.batch_norm(x.permute(1, 2, 0), None, None, self.gain, self.bias, True).permute(2, 0, 1)",
            )
        ],
    ),
    Fault(
        "one norm for all sums of a layer",
        id="shared-modules",
        says="norm",
        batch_first=[
            ("self.norm_2 = " + A_NORM, "self.norm_2 = self.norm_1"),
            ("self.norm_3 = " + A_NORM, "self.norm_3 = self.norm_1"),
        ],
        multihead=[
            (
                "[nn.LayerNorm(config.d_model) for _ in range(2)]",
                "[nn.LayerNorm(config.d_model)] * 2",
            ),
            (
                "[nn.LayerNorm(config.d_model) for _ in range(3)]",
                "[nn.LayerNorm(config.d_model)] * 3",
            ),
        ],
        sequence_first=[
            ("self.cross_norm = Norm(config.d_model)", "self.cross_norm = self.heads_norm"),
            ("self.ffn_norm = Norm(config.d_model)", "self.ffn_norm = self.heads_norm"),
        ],
    ),
    Fault(
        "one norm for all layers",
        id="shared-modules",
        says="norm",
        batch_first=[
            (
                "self.dropout = nn.Dropout(config.dropout)\n\n    def embed(",
                "self.dropout = nn.Dropout(config.dropout)\n        for layer in self.encoder:\n            layer.norm_1 = self.encoder[0].norm_1\n\n    def embed(",
            )
        ],
        multihead=[
            (
                "[EncoderBlock(config) for _ in range(config.layers)])",
                "[EncoderBlock(config) for _ in range(config.layers)])\n        for block in self.blocks:\n            block.norms[0] = self.blocks[0].norms[0]",
            )
        ],
        sequence_first=[
            ("self.width = config.d_model\n", "self.width = config.d_model\n"),
            (
                "        self.drop = nn.Dropout(config.dropout)\n\n    def embed(",
                "        self.drop = nn.Dropout(config.dropout)\n        for layer in self.encoder:\n            layer.ffn_norm = self.encoder[0].ffn_norm\n\n    def embed(",
            ),
        ],
    ),
    of_layers(
        "a norm of each sub-layer's output",
        "post-norm",
        "output|x \\+ (LN|LayerNorm|norm)",
        "x + n(f(x))",
        "x + n(f(x))",
        "x + n(f(x))",
    ),
    of_layers(
        "a norm of the input is added",
        "post-norm|residual-connections|residual-sums",
        "",
        "n(x) + f(n(x))",
        "n(x) + f(n(x))",
        "n(x) + f(n(x))",
    ),
    of_layers(
        "a doubled residual in pre-norm",
        "residual-sums|post-norm|residual-connections",
        "twice|double",
        "2 * x + f(n(x))",
        "2 * x + f(n(x))",
        "2 * x + f(n(x))",
    ),
    of_layers(
        "a doubled residual",
        "residual-sums|post-norm|residual-connections",
        "twice|double",
        "n(x + x + f(x))",
        "n(x + x + f(x))",
        "n(x + x + f(x))",
    ),
    of_layers(
        "half a residual",
        "residual-sums|post-norm|residual-connections",
        "half",
        "n(0.5 * x + f(x))",
        "n(0.5 * x + f(x))",
        "n(0.5 * x + f(x))",
    ),
    of_layers(
        "a sub-layer's output is doubled",
        "residual-sums|post-norm|residual-connections",
        "twice|double",
        "n(x + 2 * f(x))",
        "n(x + 2 * f(x))",
        "n(x + 2 * f(x))",
    ),
    of_layers(
        "no residual connection",
        "residual-connections|post-norm",
        "residual",
        "n(f(x))",
        "n(f(x))",
        "n(f(x))",
    ),
    of_layers(
        "no norm",
        "post-norm|shared-modules|pre-norm",
        "no norm",
        "x + f(x)",
        "x + f(x)",
        "x + f(x)",
    ),
    of_layers(
        "two norms",
        "post-norm|shared-modules|pre-norm",
        "norm",
        "n(x + f(n(x)))",
        "n(x + f(n(x)))",
        "n(x + f(n(x)))",
    ),
    of_layers(
        "the residual is the normed input in pre-norm",
        "post-norm|residual-connections|residual-sums",
        "",
        "n(x) + f(n(x))",
        "n(x) + f(n(x))",
        "n(x) + f(n(x))",
    ),
    of_layers(
        "pre-norm without a last norm",
        "post-norm|final-norm",
        "last|final",
        *3 * [PRE],
        with_cross=True,
    ),
    of_layers(
        "the residual is subtracted",
        "residual-sums|post-norm|residual-connections",
        "subtract|sign|minus",
        "n(x - f(x))",
        "n(x - f(x))",
        "n(x - f(x))",
    ),
    of_layers(
        "sub-layers are multiplied",
        "post-norm|residual-connections|residual-sums",
        "",
        "n(x * f(x))",
        "n(x * f(x))",
        "n(x * f(x))",
    ),
    of_norm(
        "one is added to the norm's gain of one",
        "layer-norm",
        r"by 2\b",
        "return (1 + self.w) * (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + self.eps) + self.b",
    ),
    of_layers(
        "the residual is multiplied by 1.41, as in DeepNorm",
        "residual-sums",
        "1\\.41 times its input",
        *3 * ["n(2**0.5 * x + f(x))"],
    ),
    of_layers(
        "a sub-layer's output is divided by ten",
        "residual-sums",
        "0\\.1 times the sub-layer's output",
        *3 * ["n(x + 0.1 * f(x))"],
    ),
    of_layers(
        "both terms of a sum are multiplied",
        "residual-sums",
        "0\\.8 x \\+ 0\\.6 Sublayer",
        *3 * ["n(0.8 * x + 0.6 * f(x))"],
    ),
    of_layers(
        "a residual is multiplied in pre-norm",
        "residual-sums",
        "1\\.41 times its input",
        *3 * ["2**0.5 * x + f(n(x))"],
    ),
]
