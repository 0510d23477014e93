"""Mistakes that authors who had not seen the checks planted, and that the card then did not name."""

from .fault import Fault

FAULTS = [
    Fault(
        "the norm is over each head's part of the width",
        id="layer-norm|norm",
        says="group|part|head|each (\\d+|quarter|share)|several|not over d_model|GroupNorm|slices?|chunk|segment|quarter",
        batch_first=[
            (
                "nn.LayerNorm(config.d_model, eps=1e-6)",
                "HeadNorm(config.heads, config.d_model, eps=1e-6)",
            ),
            (
                "class FeedForward(nn.Module):",
                "class HeadNorm(nn.GroupNorm):\n    def forward(self, x):\n        return super().forward(x.flatten(0, 1)).view_as(x)\n\n\nclass FeedForward(nn.Module):",
            ),
        ],
        sequence_first=[
            (
                "        mean = x.mean(-1, keepdim=True)\n        variance = x.var(-1, unbiased=False, keepdim=True)\n        return self.gain * (x - mean) / torch.sqrt(variance + self.eps) + self.bias",
                "        parts = x.unflatten(-1, (4, -1))\n        mean = parts.mean(-1, keepdim=True)\n        variance = parts.var(-1, unbiased=False, keepdim=True)\n        parts = (parts - mean) / torch.sqrt(variance + self.eps)\n        return self.gain * parts.flatten(-2) + self.bias",
            )
        ],
    ),
    Fault(
        "the ReLU is clipped at one",
        id="activation|stray-activation",
        says="clip|clamp|cut|at most|bound|\\bmax|satur|hardtanh|above|upper|larger than|min\\(|ReLU1|constant",
        multihead=[("nn.ReLU(),", "nn.Hardtanh(0.0, 1.0),")],
        sequence_first=[("hidden.clamp(min=0)", "hidden.clamp(0, 1)")],
    ),
    Fault(
        "dropout of whole words in the embeddings",
        id="embedding-dropout|dropout-places|dropout-rate",
        says="whole|words?\\b|vectors?|rows?\\b|tokens?|positions? (is|are)|all (of the )?(dimensions|elements|numbers|features)|same (mask|elements)|together|shared mask",
        batch_first=[
            (
                "return self.dropout(x + self.table[: ids.size(1)])",
                "x = x + self.table[: ids.size(1)]\n        return x * self.dropout(torch.ones_like(x[..., :1]))",
            )
        ],
        sequence_first=[
            (
                "return self.drop(x + sinusoids(positions, self.width))",
                "x = x + sinusoids(positions, self.width)\n        return x * self.drop(torch.ones_like(x[..., :1]))",
            )
        ],
    ),
    Fault(
        "scores are bounded with a tanh, as in pointer networks",
        id="stray-activation|attention-scale|softmax-dimension",
        says="tanh|\\bcap|bound|satur|squash|clip|limit|non-?linear|not linear|at most",
        batch_first=[
            (
                "    if mask is not None:\n        scores",
                "    scores = 10 * torch.tanh(scores)\n    if mask is not None:\n        scores",
            )
        ],
        sequence_first=[
            (
                "        if hidden is not None:\n            score = score",
                "        score = 10 * torch.tanh(score)\n        if hidden is not None:\n            score = score",
            )
        ],
    ),
    Fault(
        "sub-layers are multiplied by a learned zero, as in ReZero",
        id="residual-sums|residual-connections|sublayer-output-used|post-norm|parameter-count|gradients",
        says="re-?zero|gate|learn(ed|t)|multipl|\\bzero\\b|times 0|\\b0 ?[·×*]|factor|scal|not used|unused|no effect|not added|without (its|the) sub-?layer",
        batch_first=[
            (
                "        self.norm_2 = nn.LayerNorm",
                "        self.gate = nn.Parameter(torch.zeros(1))\n        self.norm_2 = nn.LayerNorm",
            ),
            ("(x + self.dropout(self.", "(x + self.gate * self.dropout(self."),
        ],
        multihead=[
            (
                "        self.norms = ",
                "        self.gate = nn.Parameter(torch.zeros(1))\n        self.norms = ",
            ),
            ("(x + self.dropout(y))", "(x + self.gate * self.dropout(y))"),
        ],
        sequence_first=[
            (
                "        self.ffn = FFN(config)",
                "        self.gate = nn.Parameter(torch.zeros(1))\n        self.ffn = FFN(config)",
            ),
            ("(x + self.drop(y))", "(x + self.gate * self.drop(y))"),
        ],
    ),
    Fault(
        "all layers begin with the same weights, as deep copies do",
        id="shared-modules|shared-matrix|initial-weights|initialisation|layer-count",
        says="\\bcop(y|ies)|same (initial )?(weights|numbers|values)|equal|identical|initial",
        batch_first=[
            (
                "    return Transformer(config)",
                "    model = Transformer(config)\n    for stack in (model.encoder, model.decoder):\n        for layer in stack:\n            layer.load_state_dict(stack[0].state_dict())\n    return model",
            )
        ],
        multihead=[
            (
                "nn.ModuleList([EncoderBlock(config) for _ in range(config.layers)])",
                "nn.ModuleList(map(copy.deepcopy, [EncoderBlock(config)] * config.layers))",
            ),
            (
                "nn.ModuleList([DecoderBlock(config) for _ in range(config.layers)])",
                "nn.ModuleList(map(copy.deepcopy, [DecoderBlock(config)] * config.layers))",
            ),
            (
                "import torch\nfrom torch import nn",
                "import copy\n\nimport torch\nfrom torch import nn",
            ),
        ],
    ),
    Fault(
        "positions go on where the last call ended",
        id="adapter",
        says="\\bcalls?\\b|state|second time|twice|same input|repeat|two runs|position|run again|earlier batch|previous batch",
        batch_first=[
            (
                "    def embed(self, ids):\n        x = self.embedding(ids) * math.sqrt(self.config.d_model)\n        return self.dropout(x + self.table[: ids.size(1)])",
                "    first = 0\n\n    def embed(self, ids):\n        x = self.embedding(ids) * math.sqrt(self.config.d_model)\n        table = self.table.roll(-self.first, 0)[: ids.size(1)]\n        self.first = (self.first + ids.size(1)) % len(self.table)\n        return self.dropout(x + table)",
            )
        ],
        sequence_first=[
            (
                '        """Embed ids [L, b] → [L, b, m]."""\n',
                '        """Embed ids [L, b] → [L, b, m]."""\n        first = getattr(self, "first", 0)\n        self.first = first + len(ids)\n',
            )
        ],
    ),
    Fault(
        "mean and variance of the norm have no gradient",
        id="gradients|layer-norm|norm",
        says="detach|no_grad|gradient|backprop|backward|derivative|constant",
        batch_first=[
            ("nn.LayerNorm(config.d_model, eps=1e-6)", "Norm(config.d_model, eps=1e-6)"),
            (
                "class FeedForward(nn.Module):",
                "class Norm(nn.LayerNorm):\n    def forward(self, x):\n        with torch.no_grad():\n            mean = x.mean(-1, keepdim=True)\n            variance = x.var(-1, unbiased=False, keepdim=True)\n        return self.weight * (x - mean) / torch.sqrt(variance + self.eps) + self.bias\n\n\nclass FeedForward(nn.Module):",
            ),
        ],
        multihead=[
            ("nn.LayerNorm(config.d_model)", "Norm(config.d_model)"),
            (
                "class EncoderBlock(nn.Module):",
                "class Norm(nn.LayerNorm):\n    def forward(self, x):\n        with torch.no_grad():\n            mean = x.mean(-1, keepdim=True)\n            variance = x.var(-1, unbiased=False, keepdim=True)\n        return self.weight * (x - mean) / torch.sqrt(variance + self.eps) + self.bias\n\n\nclass EncoderBlock(nn.Module):",
            ),
        ],
        sequence_first=[
            ("mean = x.mean(-1, keepdim=True)", "mean = x.detach().mean(-1, keepdim=True)"),
            ("variance = x.var(", "variance = x.detach().var("),
        ],
    ),
    Fault(
        "dropout is on a sub-layer's input in place of its output",
        id="dropout-places|sublayer-dropout|extra-dropout",
        says="inputs?\\b|before|in front of|not (on|of|to|behind|after) (the|its|each|a)? ?(sub-?layer'?s? )?outputs?|outputs? (has|have|get|gets) no",
        batch_first=[
            (
                "self.dropout(self.attention(x, x, mask))",
                "self.attention(*[self.dropout(x)] * 2, mask)",
            ),
            (
                "self.dropout(self.attention(x, x, target_mask))",
                "self.attention(*[self.dropout(x)] * 2, target_mask)",
            ),
            (
                "self.dropout(self.cross(x, memory, source_mask))",
                "self.cross(self.dropout(x), memory, source_mask)",
            ),
            ("self.dropout(self.ffn(x))", "self.ffn(self.dropout(x))"),
        ],
        multihead=[
            ("self.self_attn(x, x, x,", "self.self_attn(*[self.dropout(x)] * 3,"),
            ("self.cross_attn(x, memory", "self.cross_attn(self.dropout(x), memory"),
            ("self.ffn(x)", "self.ffn(self.dropout(x))"),
            ("x + self.dropout(y)", "x + y"),
        ],
        sequence_first=[
            ("self.heads(x, x, hidden, cache)", "self.heads(*[self.drop(x)] * 2, hidden, cache)"),
            ("self.cross(x, memory", "self.cross(self.drop(x), memory"),
            ("self.ffn(x)", "self.ffn(self.drop(x))"),
            ("x + self.drop(y)", "x + y"),
        ],
    ),
    Fault(
        "residual is detached",
        id="gradients",
        says="without gradient|detach",
        batch_first=[("(x + self.dropout(self.ffn", "(x.detach() + self.dropout(self.ffn")],
    ),
]
