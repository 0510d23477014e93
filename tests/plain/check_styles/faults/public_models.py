"""Mistakes in models of public repositories and of students, which no other file here has."""

from .embeddings import of_angle, of_columns
from .fault import Fault
from .sharing import of_ends

A_ENCODE = "x = layer(x, source_mask)\n        return x"
A_CROSS = "self.cross(x, memory, source_mask)"
A_CROSS_SUM = "x = self.norm_2(x + self.dropout(self.cross(x, memory, source_mask)))"
A_SELF_SUM = "x = self.norm_1(x + self.dropout(self.attention(x, x, target_mask)))"
A_FIRST = "x = self.norm_1(x + self.dropout(self.attention(x, x, mask)))"
A_SECOND = "return self.norm_2(x + self.dropout(self.ffn(x)))"
A_SCORES = "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))"
A_SOFTMAX = "weights = F.softmax(scores, dim=-1)"
A_END = "self.dropout = nn.Dropout(config.dropout)\n\n    def embed("
M_ENCODE = "x = block(x, source_padding)\n        return x"
M_CROSS = "self.cross_attn(x, memory, memory, key_padding_mask=source_padding)"
M_SELF_SUM = (
    "y, _ = self.self_attn(x, x, x, attn_mask=causal, key_padding_mask=target_padding)\n"
    "        x = self.norms[0](x + self.dropout(y))\n"
)
M_CROSS_SUM = f"y, _ = {M_CROSS}\n        x = self.norms[1](x + self.dropout(y))\n"
M_FIRST = (
    "y, _ = self.self_attn(x, x, x, key_padding_mask=source_padding)\n"
    "        x = self.norms[0](x + self.dropout(y))\n"
)
M_SECOND = "        x = self.norms[1](x + self.dropout(y))\n        return x"
M_END = "return model\n\n\ndef causal"
S_ENCODE = "x = layer(x, hidden)\n        return x, hidden"
S_CROSS = "y = self.cross(x, memory, memory_hidden, cross_cache)"
S_FIRST = "y = self.heads(x, x, hidden, cache)\n        x = self.heads_norm(x + self.drop(y))\n"
S_CROSS_SUM = (
    "        if memory is not None or cross_cache:\n"
    f"            {S_CROSS}\n"
    "            x = self.cross_norm(x + self.drop(y))\n"
)
S_SECOND = "x = self.ffn_norm(x + self.drop(y))"
S_SCORES = 'score = torch.einsum("ibnd,jbnd->ijbn", q, k) * self.scale'
S_SOFTMAX = "weight = F.softmax(score, dim=1)"
S_END = "        self.drop = nn.Dropout(config.dropout)\n\n    def embed("


def of_scores(name: str, id: str, says: str, a: str, s: str) -> Fault:
    """Return a fault with other scores in hand-written attention."""
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[(A_SCORES, f"scores = {a}")],
        sequence_first=[(S_SCORES, f"score = {s}")],
    )


A_PRODUCT = "q @ k.transpose(-2, -1)"
S_PRODUCT = 'torch.einsum("ibnd,jbnd->ijbn", q, k)'

MASKS = [
    Fault(
        "the first encoder layer alone has a mask",
        id="source-padding",
        says="encoder.*layer 2",
        batch_first=[
            (A_ENCODE, A_ENCODE.replace("\n", "\n            source_mask = None\n", 1)),
        ],
        multihead=[(M_ENCODE, M_ENCODE.replace("\n", "\n            source_padding = None\n", 1))],
        sequence_first=[
            (
                S_ENCODE,
                S_ENCODE.replace(
                    "(x, hidden)", "(x, hidden if layer is self.encoder[0] else None)"
                ),
            )
        ],
    ),
    Fault(
        "padding is zero in the memory, and not masked",
        id="source-padding",
        says="cross-attention",
        batch_first=[
            (A_ENCODE, A_ENCODE + " * (source != PAD)[..., None]"),
            (A_CROSS, "self.cross(x, memory, None)"),
        ],
        multihead=[
            (M_ENCODE, M_ENCODE + " * ~source_padding[..., None]"),
            (M_CROSS, "self.cross_attn(x, memory, memory)"),
        ],
        sequence_first=[
            (
                S_ENCODE,
                S_ENCODE.replace("return x", "return x * (source != PAD)[..., None]"),
            ),
            (
                "x = layer(x, hidden, memory, source_hidden)",
                "x = layer(x, hidden, memory, None)",
            ),
        ],
    ),
    Fault(
        "cross-attention has a causal mask",
        id="source-visible",
        says="causal",
        batch_first=[
            (
                A_CROSS_SUM,
                "late = torch.ones(x.size(1), memory.size(1), dtype=torch.bool).tril()\n"
                "        source_mask = late if source_mask is None else source_mask & late\n"
                f"        {A_CROSS_SUM}",
            )
        ],
        multihead=[
            (
                M_CROSS,
                M_CROSS[:-1]
                + ", attn_mask=torch.ones(x.size(1), memory.size(1), dtype=torch.bool).triu(1))",
            )
        ],
        sequence_first=[
            (
                S_CROSS,
                "late = torch.ones(len(x), len(memory)).triu(1).bool()[..., None]\n"
                "            late = late if memory_hidden is None else late | memory_hidden\n"
                "            y = self.cross(x, memory, late, cross_cache)",
            )
        ],
    ),
]

ATTENTION = [
    Fault(
        "weights are scaled in place of scores",
        id="attention-scale|softmax-dimension|stray-activation",
        says="after the softmax|not (divided|scaled)|sum to",
        batch_first=[
            (A_SCORES, f"scores = {A_PRODUCT}"),
            (A_SOFTMAX, f"{A_SOFTMAX} / math.sqrt(q.size(-1))"),
        ],
        sequence_first=[
            (S_SCORES, f"score = {S_PRODUCT}"),
            (S_SOFTMAX, f"{S_SOFTMAX} * self.scale"),
        ],
    ),
    of_scores(
        "scores are divided by the root of the number of heads",
        "attention-scale",
        "√h|heads|\\b2\\b",
        f"{A_PRODUCT} / math.sqrt(k.size(1))",
        f"{S_PRODUCT} * k.size(2) ** -0.5",
    ),
    of_scores(
        "scores are divided by the root of the length",
        "attention-scale",
        "length|number of keys",
        f"{A_PRODUCT} / math.sqrt(k.size(-2))",
        f"{S_PRODUCT} * k.size(0) ** -0.5",
    ),
    Fault(
        "the softmax is over queries and keys",
        id="softmax-dimension",
        says="queries",
        batch_first=[
            (A_SOFTMAX, "weights = F.softmax(scores.flatten(-2), dim=-1).view(scores.shape)")
        ],
        sequence_first=[
            (S_SOFTMAX, "weight = F.softmax(score.flatten(0, 1), dim=0).view(score.shape)")
        ],
    ),
]

ARROWS = [
    Fault(
        "decoder layer n attends to encoder layer n",
        id="encoder-output",
        says="different encoder layers",
        batch_first=[
            (
                f"        for layer in self.encoder:\n            {A_ENCODE}",
                "        every = []\n        for layer in self.encoder:\n"
                "            x = layer(x, source_mask)\n            every.append(x)\n"
                "        return every",
            ),
            (
                "for layer in self.decoder:\n            x = layer(x, memory,",
                "for layer, own in zip(self.decoder, memory):\n            x = layer(x, own,",
            ),
        ],
        multihead=[
            (
                f"        for block in self.blocks:\n            {M_ENCODE}",
                "        every = []\n        for block in self.blocks:\n"
                "            x = block(x, source_padding)\n            every.append(x)\n"
                "        return every",
            ),
            (
                "for block in self.blocks:\n            x = block(x, memory,",
                "for block, own in zip(self.blocks, memory):\n            x = block(x, own,",
            ),
        ],
        sequence_first=[
            (
                f"        for layer in self.encoder:\n            {S_ENCODE}",
                "        every = []\n        for layer in self.encoder:\n"
                "            x = layer(x, hidden)\n            every.append(x)\n"
                "        return every, hidden",
            ),
            (
                "for layer in self.decoder:\n            x = layer(x, hidden, memory,",
                "for layer, own in zip(self.decoder, memory):\n            x = layer(x, hidden, own,",
            ),
        ],
    ),
    Fault(
        "cross-attention comes before self-attention",
        id="sublayer-order",
        says="cross-attention",
        batch_first=[
            (
                f"{A_SELF_SUM}\n        {A_CROSS_SUM}",
                f"{A_CROSS_SUM}\n        {A_SELF_SUM}",
            )
        ],
        multihead=[(f"{M_SELF_SUM}        {M_CROSS_SUM}", f"{M_CROSS_SUM}        {M_SELF_SUM}")],
        sequence_first=[(f"        {S_FIRST}{S_CROSS_SUM}", f"{S_CROSS_SUM}        {S_FIRST}")],
    ),
    Fault(
        "cross-attention's queries are the layer's input",
        id="cross-attention-queries",
        batch_first=[
            (
                f"{A_SELF_SUM}\n        {A_CROSS_SUM}",
                f"first = x\n        {A_SELF_SUM}\n        "
                + A_CROSS_SUM.replace("cross(x,", "cross(first,"),
            )
        ],
        multihead=[
            (
                f"{M_SELF_SUM}        {M_CROSS_SUM}",
                f"first = x\n        {M_SELF_SUM}        "
                + M_CROSS_SUM.replace("attn(x,", "attn(first,"),
            )
        ],
        sequence_first=[
            (f"        {S_FIRST}", f"        first = x\n        {S_FIRST}"),
            (S_CROSS, S_CROSS.replace("(x,", "(first,")),
        ],
    ),
    Fault(
        "the second residual is the layer's input",
        id="residual-connections|sublayer-output-used|residual-sums|feed-forward-place|post-norm",
        says="earlier|layer's input|residual|does not reach",
        batch_first=[
            (
                f"{A_FIRST}\n        {A_SECOND}",
                f"first = x\n        {A_FIRST}\n        "
                + A_SECOND.replace("norm_2(x", "norm_2(first"),
            )
        ],
        multihead=[
            (M_FIRST, f"first = x\n        {M_FIRST}"),
            (M_SECOND, M_SECOND.replace("(x +", "(first +")),
        ],
        sequence_first=[
            (f"        {S_FIRST}", f"        first = x\n        {S_FIRST}"),
            (S_SECOND, S_SECOND.replace("(x +", "(first +")),
        ],
    ),
    Fault(
        "no norm after self-attention",
        id="post-norm|gradients|shared-modules|pre-norm",
        says="norm",
        batch_first=[(A_FIRST, "x = x + self.dropout(self.attention(x, x, mask))")],
        multihead=[
            (M_FIRST, M_FIRST.replace("self.norms[0](x + self.dropout(y))", "x + self.dropout(y)"))
        ],
        sequence_first=[
            (S_FIRST, S_FIRST.replace("self.heads_norm(x + self.drop(y))", "x + self.drop(y)"))
        ],
    ),
    Fault(
        "ReLU behind a norm",
        id="stray-activation|post-norm|final-norm",
        says="ReLU",
        batch_first=[(A_SECOND, "return F.relu(self.norm_2(x + self.dropout(self.ffn(x))))")],
        multihead=[(M_SECOND, M_SECOND.replace("return x", "return torch.relu(x)"))],
        sequence_first=[(S_SECOND, "x = self.ffn_norm(x + self.drop(y)).relu()")],
    ),
    Fault(
        "ReLU behind the feed-forward network",
        id="stray-activation|activation",
        says="ReLU",
        batch_first=[
            ("return self.w_2(F.relu(self.w_1(x)))", "return F.relu(self.w_2(F.relu(self.w_1(x))))")
        ],
        multihead=[
            (
                "nn.Linear(config.d_ff, config.d_model),\n",
                "nn.Linear(config.d_ff, config.d_model),\n            nn.ReLU(),\n",
            )
        ],
        sequence_first=[("return self.outer(hidden)", "return self.outer(hidden).relu()")],
    ),
]

EMBEDDINGS = [
    Fault(
        "the decoder has no positions",
        id="target-order|sinusoids",
        says="position|order",
        batch_first=[
            (
                "return self.dropout(x + self.table[: ids.size(1)])\n\n    def source_mask",
                "return self.dropout(x)\n\n    def source_mask",
            )
        ],
        multihead=[
            (
                "x = self.embeddings(target)",
                "x = self.embeddings.dropout(self.embeddings.words(target) * self.embeddings.factor)",
            ),
            (
                'return model["decoder"].embeddings(ids)',
                'own = model["decoder"].embeddings\n'
                "    return own.dropout(own.words(ids) * own.factor)",
            ),
        ],
        sequence_first=[
            (
                "return self.drop(x + sinusoids(positions, self.width))\n\n    def encode",
                "return self.drop(x)\n\n    def encode",
            )
        ],
    ),
    Fault(
        "positions are added again in later layers",
        id="sinusoids|permutation|positions-again|self-attention-inputs",
        says="position",
        batch_first=[
            (
                A_ENCODE,
                A_ENCODE.replace(
                    "(x, source_mask)",
                    "(x if layer is self.encoder[0] else x + self.table[: x.size(1)], source_mask)",
                ),
            )
        ],
        multihead=[
            (
                M_ENCODE,
                "again = self.embeddings.sinusoids[: x.shape[1]]\n            "
                + M_ENCODE.replace("(x,", "(x if block is self.blocks[0] else x + again,"),
            )
        ],
        sequence_first=[
            (
                S_ENCODE,
                "again = sinusoids(torch.arange(len(x)).float(), self.width)\n            "
                + S_ENCODE.replace("(x,", "(x if layer is self.encoder[0] else x + again,"),
            )
        ],
    ),
    Fault(
        "an even index is doubled, and one is added for cosines",
        id="sinusoids",
        says="2j/d_model",
        batch_first=[
            (
                "table[:, 0::2] = torch.sin(position * rates)",
                "i = torch.arange(0, width, 2)\n"
                "    table[:, 0::2] = torch.sin(position / 10000 ** (2 * i / width))",
            ),
            (
                "table[:, 1::2] = torch.cos(position * rates)",
                "table[:, 1::2] = torch.cos(position / 10000 ** (2 * (i + 1) / width))",
            ),
        ],
        multihead=[
            (
                "sinusoids = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)",
                "d = config.d_model\n"
                "        even = torch.outer(position, 10000 ** (-4 * pair / d))\n"
                "        odd = torch.outer(position, 10000 ** (-(4 * pair + 2) / d))\n"
                "        sinusoids = torch.stack([even.sin(), odd.cos()], dim=2).flatten(1)",
            )
        ],
        sequence_first=[
            (
                "table[:, ::2] = angle.sin()",
                "i = torch.arange(0, width, 2)\n"
                "    table[:, ::2] = (positions[:, None] / 10000 ** (2 * i / width)).sin()",
            ),
            (
                "table[:, 1::2] = angle.cos()",
                "table[:, 1::2] = (positions[:, None] / 10000 ** (2 * (i + 1) / width)).cos()",
            ),
        ],
    ),
    of_columns("the cosine of the sine", "sine", "a.sin()", "a.sin().cos()"),
    of_angle(
        "the exponent is an integer",
        "same|equal|one wavelength|integer|//",
        "p / 10000 ** (2 * i // d)",
    ),
    of_angle("the logarithm is of base 10", "base|54", "p * 2.718281828 ** (-8 * i / d)"),
    Fault(
        "a linear layer between embedding and encoder",
        id="embedding-scale|embedding-norm|parameter-count|sinusoids",
        says="linear|matrix|parameters",
        batch_first=[
            ("x = self.embed(source)", "x = self.lift(self.embed(source))"),
            (
                A_END,
                A_END.replace(
                    "\n\n", "\n        self.lift = nn.Linear(config.d_model, config.d_model)\n\n", 1
                ),
            ),
            ("return model.embed(ids)", "return model.lift(model.embed(ids))"),
        ],
        multihead=[
            (
                "x = self.embeddings(source)",
                "x = self.lift(self.embeddings(source))",
            ),
            (
                "self.blocks = nn.ModuleList([EncoderBlock",
                "self.lift = nn.Linear(config.d_model, config.d_model)\n"
                "        self.blocks = nn.ModuleList([EncoderBlock",
            ),
            (
                'return model["encoder"].embeddings(ids)',
                'return model["encoder"].lift(model["encoder"].embeddings(ids))',
            ),
        ],
        sequence_first=[
            ("x = self.embed(source)", "x = self.lift(self.embed(source))"),
            (
                S_END,
                S_END.replace(
                    "\n\n", "\n        self.lift = nn.Linear(config.d_model, config.d_model)\n\n", 1
                ),
            ),
            (
                "return model.embed(ids.T).transpose(0, 1)",
                "return model.lift(model.embed(ids.T)).transpose(0, 1)",
            ),
        ],
    ),
]

PARAMETERS = [
    of_ends(
        "encoder and decoder share self-attention",
        "attention|attn|heads",
        "for one, two in zip(self.encoder, self.decoder):\n            two.attention = one.attention",
        (
            M_END,
            'for one, two in zip(model["encoder"].blocks, model["decoder"].blocks):\n'
            f"        two.self_attn = one.self_attn\n    {M_END}",
        ),
        "for one, two in zip(self.encoder, self.decoder):\n            two.heads = one.heads",
    ),
    Fault(
        "embeddings are frozen",
        id="gradients|registered-parameters|optimizer-parameters",
        says="embedding|words",
        batch_first=[
            (
                "self.output.weight = self.embedding.weight",
                "self.output.weight = self.embedding.weight\n"
                "        self.embedding.weight.requires_grad_(False)",
            )
        ],
        multihead=[
            (
                "self.factor = config.d_model**0.5",
                "self.words.weight.requires_grad_(False)\n"
                "        self.factor = config.d_model**0.5",
            )
        ],
        sequence_first=[
            (
                "nn.init.normal_(self.words, std=config.d_model**-0.5)",
                "nn.init.normal_(self.words, std=config.d_model**-0.5)\n"
                "        self.words.requires_grad_(False)",
            )
        ],
    ),
    Fault(
        "two parameters share their numbers",
        id="shared-matrix|shared-modules|parameter-count",
        says="\\.data|storage|memory",
        batch_first=[
            (
                "self.output.weight = self.embedding.weight",
                "self.output.weight.data = self.embedding.weight.data",
            )
        ],
        multihead=[
            (
                M_END,
                'model["decoder"].generator.weight.data = model["decoder"].embeddings.words.weight.data'
                f"\n    {M_END}",
            )
        ],
        sequence_first=[
            (
                "self.encoder = nn.ModuleList(",
                "self.out = nn.Parameter(self.words.data)\n        self.encoder = nn.ModuleList(",
            ),
            ("x @ self.words.T", "x @ self.out.T"),
        ],
    ),
    Fault(
        "dropout twice behind a sub-layer",
        id="dropout-places|sublayer-dropout",
        says="once|twice",
        batch_first=[
            ("self.dropout(self.ffn(x))", "self.dropout(self.dropout(self.ffn(x)))"),
        ],
        multihead=[("y = self.ffn(x)\n", "y = self.dropout(self.ffn(x))\n")],
        sequence_first=[("y = self.ffn(x)\n", "y = self.drop(self.ffn(x))\n")],
    ),
]

FAULTS = [*MASKS, *ATTENTION, *ARROWS, *EMBEDDINGS, *PARAMETERS]
