"""Mistakes in a model that trains all the same, and is a little worse."""

from .fault import Fault

A_MEMORY = "memory = self.encode(source, source_mask)"
M_MEMORY = 'memory = model["encoder"](source, source_padding)'
S_MEMORY = "memory, source_hidden = self.encode(source)"
A_ENCODER_PARALLEL = """x = self.norm_1(x + self.dropout(self.attention(x, x, mask)))
        return self.norm_2(x + self.dropout(self.ffn(x)))"""
M_ENCODER_PARALLEL = """x = self.norms[0](x + self.dropout(y))
        y = self.ffn(x)
        x = self.norms[1](x + self.dropout(y))
        return x


class DecoderBlock"""
S_PARALLEL = """y = self.ffn(x)
        x = self.ffn_norm(x + self.drop(y))"""
A_NETWORK = "self.w_2 = nn.Linear(config.d_ff, config.d_model)"
M_NETWORK = """nn.ReLU(),
            nn.Linear(config.d_ff, config.d_model),"""
S_NETWORK = "self.outer = nn.Linear(config.d_ff, config.d_model)"
A_CROSS = "x = self.norm_2(x + self.dropout(self.cross(x, memory, source_mask)))"
A_DECODER_LAYERS = "[DecoderLayer(config) for _ in range(config.layers)]"
M_CROSS = """y, _ = self.cross_attn(x, memory, memory, key_padding_mask=source_padding)
        x = self.norms[1](x + self.dropout(y))"""
S_CROSS = """x = layer(x, hidden, memory, source_hidden)
        return x @ self.words.T"""
A_EMBED_SOURCE = """    def embed(self, ids):
        x = self.embedding(ids) * math.sqrt(self.config.d_model)"""
A_EMBED_TARGET = """    def embed_target(self, ids):
        x = self.embedding(ids) * math.sqrt(self.config.d_model)"""
M_DECODER_EMBEDDINGS = """super().__init__()
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList([DecoderBlock"""
S_EMBED_SOURCE = """    def embed(self, ids, first=0):
        \"\"\"Ids [L, b] → [L, b, m].\"\"\"
        x = F.embedding(ids, self.words) * self.width**0.5"""
S_EMBED_TARGET = """    def embed_target(self, ids, first=0):
        x = F.embedding(ids, self.words) * self.width**0.5"""
A_MASK = "return (source != PAD)[:, None, None, :]"
A_TABLE = 'self.register_buffer("table", positional_table(config.max_length + 2, config.d_model))'
M_TABLE = 'self.register_buffer("sinusoids", sinusoids, persistent=False)'
S_WORDS = "self.words = nn.Parameter(torch.empty(config.vocabulary, config.d_model))"
S_SINUSOIDS = "sinusoids(positions, self.width)"
S_INIT = "nn.init.normal_(self.words, std=config.d_model**-0.5)"

FAULTS = [
    Fault(
        "the memory is detached",
        id="gradients",
        says="encoder",
        batch_first=[(A_MEMORY, f"{A_MEMORY}.detach()")],
        multihead=[(M_MEMORY, f"{M_MEMORY}.detach()")],
        sequence_first=[(S_MEMORY, f"{S_MEMORY}\n        memory = memory.detach()")],
    ),
    Fault(
        "padding_idx is the start token",
        id="gradients",
        says="start|padding_idx|row",
        batch_first=[
            (
                "nn.Embedding(config.vocabulary, config.d_model)",
                "nn.Embedding(config.vocabulary, config.d_model, padding_idx=1)",
            ),
            ("self.output.weight = self.embedding.weight", "pass"),
        ],
        multihead=[
            (
                "nn.Embedding(config.vocabulary, config.d_model)",
                "nn.Embedding(config.vocabulary, config.d_model, padding_idx=0)",
            )
        ],
        sequence_first=[
            (
                S_EMBED_TARGET,
                S_EMBED_TARGET.replace("self.words)", "self.words, padding_idx=START)"),
            ),
            (S_WORDS, f"{S_WORDS}\n        self.last = nn.Parameter(self.words.clone())"),
            (S_INIT, f"{S_INIT}\n        nn.init.normal_(self.last, std=config.d_model**-0.5)"),
            ("x @ self.words.T", "x @ self.last.T"),
        ],
    ),
    Fault(
        "the source's embeddings are added to the memory",
        id="encoder-output|final-norm|attention-inputs",
        says="embedding|sum|added|does not end|norm",
        batch_first=[(A_MEMORY, f"{A_MEMORY} + self.embed(source)")],
        multihead=[(M_MEMORY, f'{M_MEMORY} + model["encoder"].embeddings(source)')],
        sequence_first=[
            (S_MEMORY, f"{S_MEMORY}\n        memory = memory + self.embed(source)"),
        ],
    ),
    Fault(
        "attention and network are side by side",
        id="feed-forward-place|feed-forward-input|post-norm",
        says="parallel|side by side|input of attention|same input|layer's input|layer input",
        batch_first=[
            (
                A_ENCODER_PARALLEL,
                "both = self.dropout(self.attention(x, x, mask)) + self.dropout(self.ffn(x))\n"
                "        return self.norm_2(x + both)",
            )
        ],
        multihead=[
            (
                M_ENCODER_PARALLEL,
                "x = self.norms[1](x + self.dropout(y) + self.dropout(self.ffn(x)))\n"
                "        return x\n\n\nclass DecoderBlock",
            )
        ],
        sequence_first=[
            (
                "y = self.heads(x, x, hidden, cache)\n        x = self.heads_norm(x + self.drop(y))",
                "first = x\n        y = self.heads(x, x, hidden, cache)\n"
                "        x = self.heads_norm(x + self.drop(y))",
            ),
            (
                S_PARALLEL,
                "is_encoder = memory is None and not cross_cache\n"
                "        z = self.ffn(first if is_encoder else x)\n"
                "        x = first + self.drop(y) if is_encoder else x\n"
                "        x = self.ffn_norm(x + self.drop(z))",
            ),
        ],
    ),
    Fault(
        "the feed-forward network has three matrices",
        id="feed-forward-size|parameter-count",
        says="three|3 matrices|matrices",
        batch_first=[
            (A_NETWORK, f"{A_NETWORK}\n        self.w = nn.Linear(config.d_ff, config.d_ff)"),
            ("self.w_2(F.relu(self.w_1(x)))", "self.w_2(F.relu(self.w(F.relu(self.w_1(x)))))"),
        ],
        multihead=[
            (
                M_NETWORK,
                "nn.ReLU(),\n            nn.Linear(config.d_ff, config.d_ff),\n            "
                + M_NETWORK,
            )
        ],
        sequence_first=[
            (S_NETWORK, f"{S_NETWORK}\n        self.middle = nn.Linear(config.d_ff, config.d_ff)"),
            (
                "hidden = hidden.clamp(min=0)",
                "hidden = self.middle(hidden.clamp(min=0)).clamp(min=0)",
            ),
        ],
    ),
    Fault(
        "the first decoder layer alone has cross-attention",
        id="layer-count|encoder-output|parameter-count|gradients|shared-modules|sublayer-order",
        says="cross-attention",
        batch_first=[
            (A_CROSS, f"if self.is_first:\n            {A_CROSS}"),
            (
                "self.norm_3 = nn",
                "self.is_first = is_first\n        self.norm_3 = nn",
            ),
            (
                "class DecoderLayer(nn.Module):\n    def __init__(self, config):",
                "class DecoderLayer(nn.Module):\n    def __init__(self, config, is_first):",
            ),
            (
                A_DECODER_LAYERS,
                A_DECODER_LAYERS.replace("(config) for _", "(config, _ == 0) for _"),
            ),
        ],
        multihead=[
            (
                M_CROSS,
                "if source_padding is not False:\n            " + M_CROSS.replace("\n", "\n    "),
            ),
            (
                "x = block(x, memory, causal, target_padding, source_padding)",
                "x = block(x, memory, causal, target_padding, source_padding)\n"
                "            source_padding = False",
            ),
        ],
        sequence_first=[
            (
                S_CROSS,
                "x = layer(x, hidden, memory, source_hidden)\n            memory = None\n"
                "        return x @ self.words.T",
            )
        ],
    ),
    Fault(
        "the source's embeddings alone are multiplied",
        id="embedding-scale",
        says="target|decoder",
        batch_first=[
            (A_EMBED_TARGET, A_EMBED_TARGET.replace(" * math.sqrt(self.config.d_model)", ""))
        ],
        multihead=[
            (
                M_DECODER_EMBEDDINGS,
                M_DECODER_EMBEDDINGS.replace(
                    "        self.blocks",
                    "        self.embeddings.factor = 1.0\n        self.blocks",
                ),
            )
        ],
        sequence_first=[(S_EMBED_TARGET, S_EMBED_TARGET.replace(" * self.width**0.5", ""))],
    ),
    Fault(
        "the sinusoids are trained",
        id="learned-positions",
        says="trained|learned",
        batch_first=[
            (
                A_TABLE,
                "self.table = nn.Parameter(positional_table(config.max_length + 2, config.d_model))",
            )
        ],
        multihead=[(M_TABLE, "self.sinusoids = nn.Parameter(sinusoids)")],
        sequence_first=[
            (
                S_WORDS,
                S_WORDS + "\n        self.table = nn.Parameter("
                "sinusoids(torch.arange(400.0), config.d_model))",
            ),
            (f"self.drop(x + {S_SINUSOIDS})", "self.drop(x + self.table[positions.long()])"),
        ],
    ),
    Fault(
        "the output's matrix is a copy",
        id="shared-matrix",
        says="output",
        batch_first=[
            (
                "self.output.weight = self.embedding.weight",
                "self.output.weight = nn.Parameter(self.embedding.weight.clone())",
            )
        ],
        sequence_first=[
            (S_INIT, f"{S_INIT}\n        self.last = nn.Parameter(self.words.detach().clone())"),
            ("x @ self.words.T", "x @ self.last.T"),
        ],
    ),
    Fault(
        "each head has the full width",
        id="head-size|attention-scale",
        says="d_model|32",
        batch_first=[("d_k, d_v = config.widths()", "d_k = d_v = config.d_model")],
        sequence_first=[("d_k, d_v = config.widths()", "d_k = d_v = config.d_model")],
    ),
    Fault(
        "dropout on the memory",
        id="dropout-places|extra-dropout",
        says="memory|encoder",
        batch_first=[(A_MEMORY, f"memory = self.dropout({A_MEMORY[9:]})")],
        multihead=[
            (
                "x = block(x, source_padding)\n        return x",
                "x = block(x, source_padding)\n        return block.dropout(x)",
            )
        ],
        sequence_first=[("return x, hidden", "return self.drop(x), hidden")],
    ),
    Fault(
        "the mask of an earlier batch is used again",
        id="source-padding|batch-independence",
        says="earlier|previous|cache|first",
        batch_first=[
            (
                A_MASK,
                "if self.mask.size(0) != source.size(0) or self.mask.size(-1) != source.size(1):\n"
                "            self.mask = (source != PAD)[:, None, None, :]\n"
                "        return self.mask",
            ),
            (
                "self.config = config",
                "self.config = config\n        self.mask = torch.ones(0, 1, 1, 0)",
            ),
        ],
        multihead=[
            (
                "source_padding = source == PAD\n    target_padding",
                'model.mask = getattr(model, "mask", source == PAD)\n'
                "    if model.mask.shape != source.shape:\n"
                "        model.mask = source == PAD\n"
                "    source_padding = model.mask\n    target_padding",
            )
        ],
        sequence_first=[
            (
                "hidden = (source == PAD)[None]",
                'self.mask = getattr(self, "mask", source == PAD)\n'
                "        if self.mask.shape != source.shape:\n"
                "            self.mask = source == PAD\n"
                "        hidden = self.mask[None]",
            )
        ],
    ),
    Fault(
        "masked scores are thrown away",
        id="equation-1-mask|source-padding",
        says="ignores its mask|not masked",
        batch_first=[
            ("scores = scores.masked_fill(mask == 0, -1e9)", "scores.masked_fill(mask == 0, -1e9)")
        ],
        sequence_first=[
            (
                'score = score.masked_fill(hidden[..., None], float("-inf"))',
                'score.masked_fill(hidden[..., None], float("-inf"))',
            )
        ],
    ),
    Fault(
        "the first decoder layer alone has a causal mask",
        id="causal-mask",
        says="in layer 2",
        batch_first=[
            (
                "x = layer(x, memory, target_mask, source_mask)",
                "x = layer(x, memory, target_mask, source_mask)\n            target_mask = target_mask[..., -1:, :]",
            )
        ],
        multihead=[
            (
                "x = block(x, memory, causal, target_padding, source_padding)",
                "x = block(x, memory, causal, target_padding, source_padding)\n            causal = None",
            )
        ],
        sequence_first=[
            (
                "x = layer(x, hidden, memory, source_hidden)",
                "x = layer(x, hidden, memory, source_hidden)\n            hidden = hidden[-1:]",
            )
        ],
    ),
    Fault(
        "embeddings have a norm of at most one",
        id="embedding-scale",
        says="max_norm",
        batch_first=[
            (
                "self.embedding = nn.Embedding(config.vocabulary, config.d_model)",
                "self.embedding = nn.Embedding(config.vocabulary, config.d_model, max_norm=1.0)",
            )
        ],
        multihead=[
            (
                "self.words = nn.Embedding(config.vocabulary, config.d_model)",
                "self.words = nn.Embedding(config.vocabulary, config.d_model, max_norm=1.0)",
            )
        ],
        sequence_first=[
            ("F.embedding(ids, self.words)", "F.embedding(ids, self.words, max_norm=1.0)")
        ],
    ),
    Fault(
        "cross-attention alone is not scaled",
        id="attention-scale",
        says="of cross-attention are not divided",
        batch_first=[
            ("def attention(q, k, v, mask):", "def attention(q, k, v, mask, scale=None):"),
            (
                "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
                "scores = q @ k.transpose(-2, -1) * (q.size(-1) ** -0.5 if scale is None else scale)",
            ),
            (
                "context = attention(q, k, v, mask)",
                "context = attention(q, k, v, mask, None if x is memory else 1.0)",
            ),
        ],
        sequence_first=[
            (
                "self.cross = Heads(config)",
                "self.cross = Heads(config)\n            self.cross.scale = 1.0",
            )
        ],
    ),
    Fault(
        "each query also attends to a zero vector",
        id="softmax-dimension",
        says="no token",
        batch_first=[
            (
                "weights = F.softmax(scores, dim=-1)",
                "weights = F.softmax(F.pad(scores, (1, 0)), dim=-1)[..., 1:]",
            )
        ],
        multihead=[
            ("config.heads, batch_first=True", "config.heads, batch_first=True, add_zero_attn=True")
        ],
        sequence_first=[
            (
                "weight = F.softmax(score, dim=1)",
                "weight = F.softmax(F.pad(score, (0, 0, 0, 0, 1, 0)), dim=1)[:, 1:]",
            )
        ],
    ),
    Fault(
        "a last norm is behind the stacks of post-norm layers",
        id="final-norm",
        says="two LayerNorms",
        batch_first=[
            (
                "self.output.weight = self.embedding.weight",
                "self.encoder_norm = nn.LayerNorm(config.d_model, eps=1e-6)\n        self.decoder_norm = nn.LayerNorm(config.d_model, eps=1e-6)\n        self.output.weight = self.embedding.weight",
            ),
            (
                "for layer in self.encoder:\n            x = layer(x, source_mask)\n        return x",
                "for layer in self.encoder:\n            x = layer(x, source_mask)\n        return self.encoder_norm(x)",
            ),
            ("return self.output(x)", "return self.output(self.decoder_norm(x))"),
        ],
        multihead=[
            (
                "self.blocks = nn.ModuleList([EncoderBlock(config) for _ in range(config.layers)])",
                "self.blocks = nn.ModuleList([EncoderBlock(config) for _ in range(config.layers)])\n        self.norm = nn.LayerNorm(config.d_model)",
            ),
            (
                "for block in self.blocks:\n            x = block(x, source_padding)\n        return x",
                "for block in self.blocks:\n            x = block(x, source_padding)\n        return self.norm(x)",
            ),
            (
                "self.generator = nn.Linear(config.d_model, config.vocabulary)",
                "self.generator = nn.Linear(config.d_model, config.vocabulary)\n        self.norm = nn.LayerNorm(config.d_model)",
            ),
            ("return self.generator(x)", "return self.generator(self.norm(x))"),
        ],
        sequence_first=[
            (
                "self.words = nn.Parameter(torch.empty(config.vocabulary, config.d_model))",
                "self.words = nn.Parameter(torch.empty(config.vocabulary, config.d_model))\n        self.encoder_norm = Norm(config.d_model)\n        self.decoder_norm = Norm(config.d_model)",
            ),
            (
                "for layer in self.encoder:\n            x = layer(x, hidden)\n        return x, hidden",
                "for layer in self.encoder:\n            x = layer(x, hidden)\n        return self.encoder_norm(x), hidden",
            ),
            ("x @ self.words.T", "self.decoder_norm(x) @ self.words.T"),
        ],
    ),
    Fault(
        "the decoder alone is pre-norm",
        id="pre-norm",
        says="decoder alone",
        batch_first=[
            (
                "self.output.weight = self.embedding.weight",
                "self.decoder_norm = nn.LayerNorm(config.d_model, eps=1e-6)\n        self.output.weight = self.embedding.weight",
            ),
            (
                "self.norm_1(x + self.dropout(self.attention(x, x, target_mask)))",
                "self.norm_1(x)\n        x = residual + self.dropout(self.attention(y, y, target_mask))",
            ),
            ("x = self.norm_1(x)\n        x = residual", "y = self.norm_1(x)\n        x = x"),
            (
                "self.norm_2(x + self.dropout(self.cross(x, memory, source_mask)))",
                "x + self.dropout(self.cross(self.norm_2(x), memory, source_mask))",
            ),
            (
                "self.norm_3(x + self.dropout(self.ffn(x)))",
                "x + self.dropout(self.ffn(self.norm_3(x)))",
            ),
            ("return self.output(x)", "return self.output(self.decoder_norm(x))"),
        ],
        multihead=[
            (
                "y, _ = self.self_attn(x, x, x, attn_mask=causal, key_padding_mask=target_padding)\n        x = self.norms[0](x + self.dropout(y))\n        y, _ = self.cross_attn(x, memory, memory, key_padding_mask=source_padding)\n        x = self.norms[1](x + self.dropout(y))\n        y = self.ffn(x)\n        x = self.norms[2](x + self.dropout(y))\n        return x",
                "z = self.norms[0](x)\n        y, _ = self.self_attn(\n            z, z, z, attn_mask=causal, key_padding_mask=target_padding\n        )\n        x = x + self.dropout(y)\n        z = self.norms[1](x)\n        y, _ = self.cross_attn(z, memory, memory, key_padding_mask=source_padding)\n        x = x + self.dropout(y)\n        return x + self.dropout(self.ffn(self.norms[2](x)))",
            ),
            (
                "self.generator = nn.Linear(config.d_model, config.vocabulary)",
                "self.generator = nn.Linear(config.d_model, config.vocabulary)\n        self.norm = nn.LayerNorm(config.d_model)",
            ),
            ("return self.generator(x)", "return self.generator(self.norm(x))"),
        ],
        sequence_first=[
            (
                "y = self.heads(x, x, hidden, cache)\n        x = self.heads_norm(x + self.drop(y))\n        if memory is not None or cross_cache:\n            y = self.cross(x, memory, memory_hidden, cross_cache)\n            x = self.cross_norm(x + self.drop(y))\n        y = self.ffn(x)\n        x = self.ffn_norm(x + self.drop(y))\n        return x",
                "if hasattr(self, 'cross'):\n            z = self.heads_norm(x)\n            x = x + self.drop(self.heads(z, z, hidden, cache))\n            z = self.cross_norm(x)\n            x = x + self.drop(self.cross(z, memory, memory_hidden, cross_cache))\n            return x + self.drop(self.ffn(self.ffn_norm(x)))\n        y = self.heads(x, x, hidden, cache)\n        x = self.heads_norm(x + self.drop(y))\n        if memory is not None or cross_cache:\n            y = self.cross(x, memory, memory_hidden, cross_cache)\n            x = self.cross_norm(x + self.drop(y))\n        y = self.ffn(x)\n        x = self.ffn_norm(x + self.drop(y))\n        return x",
            ),
            (
                "self.words = nn.Parameter(torch.empty(config.vocabulary, config.d_model))",
                "self.words = nn.Parameter(torch.empty(config.vocabulary, config.d_model))\n        self.decoder_norm = Norm(config.d_model)",
            ),
            ("x @ self.words.T", "self.decoder_norm(x) @ self.words.T"),
        ],
    ),
    Fault(
        "a dense layer with GELU comes before the output, as in BERT",
        id="output-scale",
        says="matrix.*before|matrix comes between",
        batch_first=[
            (
                "self.output.weight = self.embedding.weight",
                "self.transform = nn.Sequential(\n            nn.Linear(config.d_model, config.d_model),\n            nn.GELU(),\n            nn.LayerNorm(config.d_model),\n        )\n        self.output.weight = self.embedding.weight",
            ),
            ("return self.output(x)", "return self.output(self.transform(x))"),
        ],
        multihead=[
            (
                "self.generator = nn.Linear(config.d_model, config.vocabulary)",
                "self.transform = nn.Sequential(\n            nn.Linear(config.d_model, config.d_model),\n            nn.GELU(),\n            nn.LayerNorm(config.d_model),\n        )\n        self.generator = nn.Linear(config.d_model, config.vocabulary)",
            ),
            ("return self.generator(x)", "return self.generator(self.transform(x))"),
        ],
        sequence_first=[
            (
                "self.words = nn.Parameter(torch.empty(config.vocabulary, config.d_model))",
                "self.transform = nn.Sequential(\n            nn.Linear(config.d_model, config.d_model),\n            nn.GELU(),\n            nn.LayerNorm(config.d_model),\n        )\n        self.words = nn.Parameter(torch.empty(config.vocabulary, config.d_model))",
            ),
            ("x @ self.words.T", "self.transform(x) @ self.words.T"),
        ],
    ),
]
