"""Modules and matrices that are used more than once, missing, or of another kind."""

from .fault import Fault

A_ENCODER = "nn.ModuleList([EncoderLayer(config) for _ in range(config.layers)])"
A_DECODER = "nn.ModuleList([DecoderLayer(config) for _ in range(config.layers)])"
M_ENCODER = "nn.ModuleList([EncoderBlock(config) for _ in range(config.layers)])"
M_DECODER = "nn.ModuleList([DecoderBlock(config) for _ in range(config.layers)])"
S_ENCODER = "nn.ModuleList(Block(config, False) for _ in range(config.layers))"
S_DECODER = "nn.ModuleList(Block(config, True) for _ in range(config.layers))"
A_END = "self.dropout = nn.Dropout(config.dropout)\n\n    def embed("
S_END = "self.drop = nn.Dropout(config.dropout)\n\n    def embed("


def of_ends(
    name: str, says: str, a: str, m: tuple[str, str], s: str, id: str = "shared-modules"
) -> Fault:
    """Return a fault with more lines at the end of the constructor.

    In them ``layers`` are those of the encoder or decoder.
    """
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[(A_END, A_END.replace("\n\n", f"\n        {a}\n\n", 1))],
        multihead=[m],
        sequence_first=[(S_END, S_END.replace("\n\n", f"\n        {s}\n\n", 1))],
    )


FAULTS = [
    Fault(
        "one encoder layer n times",
        id="shared-modules",
        says="encoder",
        batch_first=[(A_ENCODER, "nn.ModuleList([EncoderLayer(config)] * config.layers)")],
        multihead=[(M_ENCODER, "nn.ModuleList([EncoderBlock(config)] * config.layers)")],
        sequence_first=[(S_ENCODER, "nn.ModuleList([Block(config, False)] * config.layers)")],
    ),
    Fault(
        "one decoder layer n times",
        id="shared-modules",
        says="decoder",
        batch_first=[(A_DECODER, "nn.ModuleList([DecoderLayer(config)] * config.layers)")],
        multihead=[(M_DECODER, "nn.ModuleList([DecoderBlock(config)] * config.layers)")],
        sequence_first=[(S_DECODER, "nn.ModuleList([Block(config, True)] * config.layers)")],
    ),
    Fault(
        "the first layer is called n times",
        id="shared-modules",
        says="encoder",
        batch_first=[
            (
                "x = layer(x, source_mask)\n        return x",
                "x = self.encoder[0](x, source_mask)\n        return x",
            )
        ],
        multihead=[
            (
                "x = block(x, source_padding)\n        return x",
                "x = self.blocks[0](x, source_padding)\n        return x",
            )
        ],
        sequence_first=[
            (
                "x = layer(x, hidden)\n        return x",
                "x = self.encoder[0](x, hidden)\n        return x",
            )
        ],
    ),
    of_ends(
        "one feed-forward network for all layers",
        "ffn|feed-forward",
        "for layer in self.encoder:\n            layer.ffn = self.encoder[0].ffn",
        (
            M_ENCODER,
            M_ENCODER
            + "\n        for block in self.blocks:\n            block.ffn = self.blocks[0].ffn",
        ),
        "for layer in self.encoder:\n            layer.ffn = self.encoder[0].ffn",
    ),
    of_ends(
        "one self-attention for all layers",
        "attention|attn|heads",
        "for layer in self.encoder:\n            layer.attention = self.encoder[0].attention",
        (
            M_ENCODER,
            M_ENCODER
            + "\n        for block in self.blocks:\n            block.self_attn = self.blocks[0].self_attn",
        ),
        "for layer in self.encoder:\n            layer.heads = self.encoder[0].heads",
    ),
    of_ends(
        "self-attention is also cross-attention",
        "attention|attn|heads",
        "for layer in self.decoder:\n            layer.cross = layer.attention",
        (
            M_DECODER,
            M_DECODER
            + "\n        for block in self.blocks:\n            block.cross_attn = block.self_attn",
        ),
        "for layer in self.decoder:\n            layer.cross = layer.heads",
    ),
    of_ends(
        "encoder and decoder share their networks",
        "ffn|feed-forward",
        "for one, two in zip(self.encoder, self.decoder):\n            two.ffn = one.ffn",
        (
            "return model\n\n\ndef causal",
            "for one, two in zip(model['encoder'].blocks, model['decoder'].blocks):\n        two.ffn = one.ffn\n    return model\n\n\ndef causal",
        ),
        "for one, two in zip(self.encoder, self.decoder):\n            two.ffn = one.ffn",
    ),
    of_ends(
        "layers share their first matrix",
        "w_1|inner|ffn",
        "for layer in self.encoder:\n            layer.ffn.w_1.weight = self.encoder[0].ffn.w_1.weight",
        (
            M_ENCODER,
            M_ENCODER
            + "\n        for block in self.blocks:\n            block.ffn[0].weight = self.blocks[0].ffn[0].weight",
        ),
        "for layer in self.encoder:\n            layer.ffn.inner.weight = self.encoder[0].ffn.inner.weight",
    ),
    Fault(
        "queries and keys share a matrix",
        id="shared-modules",
        says="w_q|query|w_k|key",
        batch_first=[
            ("self.w_k = nn.Linear(config.d_model, config.heads * d_k)", "self.w_k = self.w_q")
        ],
        sequence_first=[
            (
                "self.key = nn.Parameter(torch.empty(config.d_model, config.heads, d_k))",
                "self.key = self.query",
            )
        ],
    ),
    Fault(
        "keys are values",
        id="shared-modules|attention-inputs|head-size|gradients|heads",
        says="w_v|value|w_k|key",
        batch_first=[("v = self.split(self.w_v(memory))", "v = self.split(self.w_k(memory))")],
        sequence_first=[
            ('v = torch.einsum("jbm,mnd->jbnd", memory, self.value) + self.value_bias', "v = k")
        ],
    ),
    Fault(
        "the output's matrix is the source's",
        id="shared-matrix",
        says="source's matrix",
        batch_first=[
            (
                "self.output.weight = self.embedding.weight",
                "self.output.weight = self.embedding.weight\n        self.target_embedding = nn.Embedding(config.vocabulary, config.d_model)\n        nn.init.normal_(self.target_embedding.weight, std=config.d_model**-0.5)",
            ),
            (
                "def embed_target(self, ids):\n        x = self.embedding(ids)",
                "def embed_target(self, ids):\n        x = self.target_embedding(ids)",
            ),
        ],
        multihead=[
            (
                "return model\n\n\ndef causal",
                "model['decoder'].generator.weight = model['encoder'].embeddings.words.weight\n    return model\n\n\ndef causal",
            )
        ],
        sequence_first=[
            (
                "nn.init.normal_(self.words, std=config.d_model**-0.5)",
                "nn.init.normal_(self.words, std=config.d_model**-0.5)\n        self.target_words = nn.Parameter(torch.randn_like(self.words) * config.d_model**-0.5)",
            ),
            (
                "def embed_target(self, ids, first=0):\n        x = F.embedding(ids, self.words)",
                "def embed_target(self, ids, first=0):\n        x = F.embedding(ids, self.target_words)",
            ),
        ],
    ),
    Fault(
        "layers are in a plain list",
        id="registered-parameters|parameter-count|optimizer-parameters",
        says="registered|list|ModuleList",
        batch_first=[(A_ENCODER, "[EncoderLayer(config) for _ in range(config.layers)]")],
        multihead=[(M_ENCODER, "[EncoderBlock(config) for _ in range(config.layers)]")],
        sequence_first=[(S_ENCODER, "[Block(config, False) for _ in range(config.layers)]")],
    ),
    Fault(
        "one layer more in the encoder",
        id="layer-count|parameter-count|heads",
        says="layer",
        batch_first=[(A_ENCODER, A_ENCODER.replace("config.layers", "config.layers + 1"))],
        multihead=[(M_ENCODER, M_ENCODER.replace("config.layers", "config.layers + 1"))],
        sequence_first=[(S_ENCODER, S_ENCODER.replace("config.layers", "config.layers + 1"))],
    ),
    Fault(
        "the last encoder layer is not called",
        id="layer-count|gradients",
        says="layer",
        batch_first=[
            (
                "for layer in self.encoder:\n            x = layer",
                "for layer in self.encoder[:-1]:\n            x = layer",
            )
        ],
        multihead=[
            (
                "for block in self.blocks:\n            x = block(x, source_padding)",
                "for block in self.blocks[:-1]:\n            x = block(x, source_padding)",
            )
        ],
        sequence_first=[
            (
                "for layer in self.encoder:\n            x = layer",
                "for layer in self.encoder[:-1]:\n            x = layer",
            )
        ],
    ),
    Fault(
        "all heads have the same keys and values",
        id="heads",
        says="same keys and values",
        batch_first=[
            (
                "self.w_k = nn.Linear(config.d_model, config.heads * d_k)",
                "self.w_k = nn.Linear(config.d_model, d_k)",
            ),
            (
                "self.w_v = nn.Linear(config.d_model, config.heads * d_v)",
                "self.w_v = nn.Linear(config.d_model, d_v)",
            ),
            ("k = self.split(self.w_k(memory))", "k = self.w_k(memory)[:, None]"),
            ("v = self.split(self.w_v(memory))", "v = self.w_v(memory)[:, None]"),
        ],
        sequence_first=[
            (
                "self.key = nn.Parameter(torch.empty(config.d_model, config.heads, d_k))",
                "self.key = nn.Parameter(torch.empty(config.d_model, 1, d_k))",
            ),
            (
                "self.value = nn.Parameter(torch.empty(config.d_model, config.heads, d_v))",
                "self.value = nn.Parameter(torch.empty(config.d_model, 1, d_v))",
            ),
            (
                "self.key_bias = nn.Parameter(torch.zeros(config.heads, d_k))",
                "self.key_bias = nn.Parameter(torch.zeros(1, d_k))",
            ),
            (
                "self.value_bias = nn.Parameter(torch.zeros(config.heads, d_v))",
                "self.value_bias = nn.Parameter(torch.zeros(1, d_v))",
            ),
            (
                'score = torch.einsum("ibnd,jbnd->ijbn", q, k) * self.scale',
                'score = torch.einsum("ibnd,jbnd->ijbn", q, k.expand(-1, -1, q.size(2), -1)) * self.scale',
            ),
            (
                'context = torch.einsum("ijbn,jbnd->ibnd", weight, v)',
                'context = torch.einsum("ijbn,jbnd->ibnd", weight, v.expand(-1, -1, q.size(2), -1))',
            ),
        ],
    ),
    Fault(
        "heads are averaged in place of joined",
        id="heads",
        says="averaged",
        batch_first=[
            (
                "self.w_o = nn.Linear(config.heads * d_v, config.d_model)",
                "self.w_o = nn.Linear(d_v, config.d_model)",
            ),
            (
                "self.w_o(context.transpose(1, 2).reshape(x.size(0), x.size(1), -1))",
                "self.w_o(context.mean(dim=1))",
            ),
        ],
        sequence_first=[
            ("torch.empty(config.heads, d_v, config.d_model)", "torch.empty(d_v, config.d_model)"),
            (
                'return torch.einsum("ibnd,ndm->ibm", context, self.out) + self.out_bias',
                'return torch.einsum("ibd,dm->ibm", context.mean(2), self.out) + self.out_bias',
            ),
        ],
    ),
    Fault(
        "each encoder layer reads the embeddings",
        id="sublayer-output-used",
        says="layer 2 reads the same input as layer 1",
        batch_first=[
            (
                "for layer in self.encoder:\n            x = layer(x, source_mask)\n        return x",
                "for layer in self.encoder:\n            y = layer(x, source_mask)\n        return y",
            )
        ],
        multihead=[
            (
                "for block in self.blocks:\n            x = block(x, source_padding)\n        return x",
                "for block in self.blocks:\n            y = block(x, source_padding)\n        return y",
            )
        ],
        sequence_first=[
            (
                "for layer in self.encoder:\n            x = layer(x, hidden)\n        return x, hidden",
                "for layer in self.encoder:\n            y = layer(x, hidden)\n        return y, hidden",
            )
        ],
    ),
    Fault(
        "each decoder layer reads the embeddings",
        id="sublayer-output-used",
        says="decoder layer 1",
        batch_first=[
            (
                "x = layer(x, memory, target_mask, source_mask)\n        return self.output(x)",
                "y = layer(x, memory, target_mask, source_mask)\n        return self.output(y)",
            )
        ],
        multihead=[
            (
                "x = block(x, memory, causal, target_padding, source_padding)\n        return self.generator(x)",
                "y = block(x, memory, causal, target_padding, source_padding)\n        return self.generator(y)",
            )
        ],
        sequence_first=[
            (
                "x = layer(x, hidden, memory, source_hidden)\n        return x @",
                "y = layer(x, hidden, memory, source_hidden)\n        return y @",
            )
        ],
    ),
    Fault(
        "decoder layers have no feed-forward network",
        id="feed-forward-size",
        says="no feed-forward network.*decoder",
        batch_first=[
            ("return self.norm_3(x + self.dropout(self.ffn(x)))", "return x"),
            (
                "        self.cross = MultiHeadAttention(config)\n        self.ffn = FeedForward(config)\n",
                "        self.cross = MultiHeadAttention(config)\n",
            ),
            ("        self.norm_3 = nn.LayerNorm(config.d_model, eps=1e-6)\n", ""),
        ],
        multihead=[
            (
                "        y = self.ffn(x)\n        x = self.norms[2](x + self.dropout(y))\n        return x",
                "        return x",
            ),
            (
                "batch_first=True)\n        self.ffn = nn.Sequential(\n            nn.Linear(config.d_model, config.d_ff),\n            nn.ReLU(),\n            nn.Linear(config.d_ff, config.d_model),\n        )\n        self.norms = nn.ModuleList([nn.LayerNorm(config.d_model) for _ in range(3)])",
                "batch_first=True)\n        self.norms = nn.ModuleList([nn.LayerNorm(config.d_model) for _ in range(2)])",
            ),
        ],
        sequence_first=[
            (
                "        self.ffn = FFN(config)\n        self.ffn_norm = Norm(config.d_model)\n",
                "        if not has_cross:\n            self.ffn = FFN(config)\n            self.ffn_norm = Norm(config.d_model)\n",
            ),
            (
                "        y = self.ffn(x)\n        x = self.ffn_norm(x + self.drop(y))\n",
                "        if not hasattr(self, 'ffn'):\n            return x\n        y = self.ffn(x)\n        x = self.ffn_norm(x + self.drop(y))\n",
            ),
        ],
    ),
    Fault(
        "the feed-forward network is gated",
        id="feed-forward-size",
        says="gated",
        batch_first=[
            (
                "self.w_1 = nn.Linear(config.d_model, config.d_ff)",
                "self.w_1 = nn.Linear(config.d_model, config.d_ff)\n        self.w_3 = nn.Linear(config.d_model, config.d_ff)",
            ),
            ("self.w_2(F.relu(self.w_1(x)))", "self.w_2(F.silu(self.w_1(x)) * self.w_3(x))"),
        ],
        multihead=[
            (
                "nn.Sequential(\n            nn.Linear(config.d_model, config.d_ff),\n            nn.ReLU(),\n            nn.Linear(config.d_ff, config.d_model),\n        )",
                "Gated(config)",
            ),
            (
                "class EncoderBlock(nn.Module):",
                "class Gated(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.w_1 = nn.Linear(config.d_model, config.d_ff)\n        self.w_2 = nn.Linear(config.d_ff, config.d_model)\n        self.w_3 = nn.Linear(config.d_model, config.d_ff)\n\n    def forward(self, x):\n        return self.w_2(nn.functional.silu(self.w_1(x)) * self.w_3(x))\n\n\nclass EncoderBlock(nn.Module):",
            ),
        ],
        sequence_first=[
            (
                "self.inner = nn.Linear(config.d_model, config.d_ff)",
                "self.inner = nn.Linear(config.d_model, config.d_ff)\n        self.gate = nn.Linear(config.d_model, config.d_ff)",
            ),
            ("hidden = hidden.clamp(min=0)", "hidden = hidden * F.silu(self.gate(x))"),
        ],
    ),
    Fault(
        "the feed-forward network is gated by halves of one matrix",
        id="feed-forward-size",
        says="gated",
        batch_first=[
            ("self.ffn = FeedForward(config)", "self.ffn = Gated(config)"),
            (
                "class EncoderLayer(",
                "class Gated(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.w_1 = nn.Linear(config.d_model, 2 * config.d_ff)\n        self.w_2 = nn.Linear(config.d_ff, config.d_model)\n        \n    def forward(self, x):\n        a, b = self.w_1(x).chunk(2, -1)\n        return self.w_2(nn.functional.gelu(a) * b)\n\n\nclass EncoderLayer(",
            ),
        ],
        multihead=[
            (
                "nn.Sequential(\n            nn.Linear(config.d_model, config.d_ff),\n            nn.ReLU(),\n            nn.Linear(config.d_ff, config.d_model),\n        )",
                "Gated(config)",
            ),
            (
                "class EncoderBlock(nn.Module):",
                "class Gated(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.w_1 = nn.Linear(config.d_model, 2 * config.d_ff)\n        self.w_2 = nn.Linear(config.d_ff, config.d_model)\n        \n    def forward(self, x):\n        a, b = self.w_1(x).chunk(2, -1)\n        return self.w_2(nn.functional.gelu(a) * b)\n\n\nclass EncoderBlock(nn.Module):",
            ),
        ],
        sequence_first=[
            ("self.ffn = FFN(config)", "self.ffn = Gated(config)"),
            (
                "class Block(",
                "class Gated(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.w_1 = nn.Linear(config.d_model, 2 * config.d_ff)\n        self.w_2 = nn.Linear(config.d_ff, config.d_model)\n        \n    def forward(self, x):\n        a, b = self.w_1(x).chunk(2, -1)\n        return self.w_2(nn.functional.gelu(a) * b)\n\n\nclass Block(",
            ),
        ],
    ),
    Fault(
        "the feed-forward network is a convolution of three words",
        id="position-wise",
        says="network.*convolution",
        batch_first=[
            (
                "self.w_1 = nn.Linear(config.d_model, config.d_ff)",
                "self.w_1 = nn.Conv1d(config.d_model, config.d_ff, 3, padding=1)",
            ),
            (
                "self.w_2(F.relu(self.w_1(x)))",
                "self.w_2(F.relu(self.w_1(x.transpose(1, 2)).transpose(1, 2)))",
            ),
        ],
        multihead=[
            (
                "nn.Sequential(\n            nn.Linear(config.d_model, config.d_ff),\n            nn.ReLU(),\n            nn.Linear(config.d_ff, config.d_model),\n        )",
                "Convolution(config)",
            ),
            (
                "class EncoderBlock(nn.Module):",
                "class Convolution(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.w_1 = nn.Conv1d(config.d_model, config.d_ff, 3, padding=1)\n        self.w_2 = nn.Linear(config.d_ff, config.d_model)\n\n    def forward(self, x):\n        return self.w_2(self.w_1(x.transpose(1, 2)).transpose(1, 2).relu())\n\n\nclass EncoderBlock(nn.Module):",
            ),
        ],
        sequence_first=[
            (
                "self.inner = nn.Linear(config.d_model, config.d_ff)",
                "self.inner = nn.Conv1d(config.d_model, config.d_ff, 3, padding=1)",
            ),
            ("hidden = self.inner(x)", "hidden = self.inner(x.permute(1, 2, 0)).permute(2, 0, 1)"),
        ],
    ),
]
