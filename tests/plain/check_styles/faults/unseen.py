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
    Fault(
        "the mask is viewed in place of transposed between batch and length",
        id="source-padding|batch-independence|source-visible",
        says="\\bview|reshape|transpos|mix|(another|other|wrong|different|neighbour'?s?) (sentence|source|row)|(another|other) sentence'?s|mask of (another|other)|batch and (length|position)|rest of the batch|other sentences",
        sequence_first=[
            (
                "hidden = (source == PAD)[None]",
                "hidden = (source.T == PAD).reshape(len(source), source.size(1))[None]",
            )
        ],
    ),
    Fault(
        "a sentence without padding has a length of zero",
        id="source-padding|source-visible|attention-weights|attention-scale|softmax-dimension|attention|batch-independence",
        says="without padding|no padding|unpadded|not padded|uniform|equal(ly)? |average|\\bmean\\b|(all|every)[^.]*(hidden|masked)|hid(es|den)[^.]*(all|every|whole)|longest|length (of )?(zero|0)|scores? (has|have) no",
        batch_first=[
            (
                "return (source != PAD)[:, None, None, :]",
                "lengths = (source == PAD).int().argmax(1)  # the first pad\n        return (torch.arange(source.size(1)) < lengths[:, None])[:, None, None, :]",
            )
        ],
    ),
    Fault(
        "scores are divided by the fourth root of d_k",
        id="attention-scale",
        says="fourth root|0\\.25|1/4|¼|√√|scal|divi|multipl|factor|d_k|√",
        batch_first=[("/ math.sqrt(q.size(-1))", "/ q.size(-1) ** 0.25")],
    ),
    Fault(
        "einsum sums weights and values apart",
        id="attention-weights|attention-scale|softmax-dimension|causal-mask|source-padding|attention|attention-output",
        says="einsum|\\bsum(s|med)?\\b|equal|uniform|unweighted|not weighted|without weights|average|\\bmean\\b|weights? (has|have|without|with no|do|are)|scores? (has|have|without|with no|do|are) (no|not)|same (for|at|in) (every|all|each)",
        sequence_first=[
            (
                'torch.einsum("ijbn,jbnd->ibnd", weight, v)',
                'torch.einsum("ijbn,kbnd->ibnd", weight, v)',
            )
        ],
    ),
    Fault(
        "each query attends to its four best keys alone",
        id="attention-weights|softmax-dimension|attention-scale|attention|source-visible|target-visible|stray-activation",
        says="top-?k|\\bbest\\b|largest|highest|greatest|sparse|(four|4|few|some) (keys|words|tokens|positions)|weights? (is|are|of) (zero|0)|\\bhard\\b|not (all|every)",
        sequence_first=[
            (
                "        weight = F.softmax(score, dim=1)",
                '        least = score.topk(min(4, score.size(1)), dim=1).values[:, -1:]\n        score = score.masked_fill(score < least, float("-inf"))\n        weight = F.softmax(score, dim=1)',
            )
        ],
    ),
    Fault(
        "a norm is within the feed-forward network",
        id="norm-places|layer-norm|norm|feed-forward|feed-forward-positions|parameter-count|stray-activation|extra-norm|activation",
        says="\\bnorm|LayerNorm",
        batch_first=[
            (
                "        self.w_2 = nn.Linear(config.d_ff, config.d_model)\n",
                "        self.w_2 = nn.Linear(config.d_ff, config.d_model)\n        self.norm = nn.LayerNorm(config.d_ff)\n",
            ),
            ("self.w_2(F.relu(self.w_1(x)))", "self.w_2(self.norm(F.relu(self.w_1(x))))"),
        ],
    ),
    Fault(
        "queries and values share a matrix",
        id="heads|shared-modules",
        says="used several times|quer[^.]*value|value[^.]*quer|values?\\b[^.]*(share|same|unused|not used|no gradient|without|missing|no matrix)|(share|same|unused|not used|no gradient|without|missing)[^.]*value",
        sequence_first=[
            (
                "        self.value = nn.Parameter(torch.empty(config.d_model, config.heads, d_v))\n",
                "",
            ),
            (
                'torch.einsum("jbm,mnd->jbnd", memory, self.value)',
                'torch.einsum("jbm,mnd->jbnd", memory, self.query)',
            ),
        ],
    ),
    Fault(
        "the exponent is divided by the width of a head",
        id="sinusoids|sinusoid-variant",
        says="exponent|\\bheads?\\b|d_k|four times|\\b4 times|10\\^?\\(?16|1e\\+?16|\\bbase\\b",
        sequence_first=[
            (
                "    exponent = torch.arange(0, width, 2.0) / width\n",
                "    exponent = torch.arange(0, width, 2.0) / (width // 4)\n",
            )
        ],
    ),
    Fault(
        "ELU plus one on queries and keys, as in linear attention",
        id="stray-activation|attention-scale|attention",
        says="\\belu|activation|non-?linear|not linear|quer|\\bkeys?\\b|positive",
        batch_first=[
            ("    scores = q @ k", "    q, k = F.elu(q) + 1, F.elu(k) + 1\n    scores = q @ k")
        ],
    ),
    Fault(
        "positions begin at a random place in training",
        id="positions|training-mode|sinusoids|embedding-sum|embedding-dropout|dropout-places|deterministic|training-dropout|extra-dropout|dropout-rate|evaluation-dropout|training-loss|repeatable",
        says="random|position|offset|sinusoid|train(ing)?[^.]*(evaluation|other)",
        multihead=[
            (
                "        x = x + self.sinusoids[: ids.shape[1]]\n",
                "        first = 0\n        if self.training:\n            first = int(torch.randint(max(1, len(self.sinusoids) - ids.shape[1]), ()))\n        x = x + self.sinusoids[first : first + ids.shape[1]]\n",
            )
        ],
    ),
    Fault(
        "embeddings begin with a standard deviation of one",
        id="initialisation|initial-weights|embedding-scale|embedding-sum|embedding-initialisation|output-scale|sinusoids",
        says="standard deviation|\\bstd\\b|initiali|outweigh|N\\(0",
        batch_first=[
            ("        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)\n", "")
        ],
    ),
    Fault(
        "the factor of embeddings is learned",
        id="embedding-scale|parameter-count|embedding-sum|gradients|adapter",
        says="learn|train(ed|able)|parameter|gradient|optimi[sz]er",
        multihead=[
            (
                "self.factor = config.d_model**0.5",
                "self.factor = nn.Parameter(torch.tensor(config.d_model**0.5))",
            )
        ],
    ),
    Fault(
        "positions are multiplied by the root in place of embeddings",
        id="embedding-scale|sinusoids|embedding-sum|positions",
        says="(position|sinusoid)[^.]*(multipl|times|scal|factor|large)|(multipl|times|scal|factor)[^.]*(position|sinusoid)",
        sequence_first=[
            ("F.embedding(ids, self.words) * self.width**0.5", "F.embedding(ids, self.words)"),
            (
                "sinusoids(positions, self.width))",
                "sinusoids(positions, self.width) * self.width**0.5)",
            ),
        ],
    ),
    Fault(
        "embeddings are multiplied by the root of the length",
        id="embedding-scale|embedding-sum",
        says="length|number of (words|tokens|positions)|depends? on|varies|not (a )?constant|differ(s|ent)? (with|for|between)",
        batch_first=[
            (
                "self.embedding(ids) * math.sqrt(self.config.d_model)",
                "self.embedding(ids) * math.sqrt(ids.size(1))",
            )
        ],
    ),
    Fault(
        "the mask is as long as the mean length",
        id="source-padding",
        says="whole batch",
        batch_first=[
            (
                "return (source != PAD)[:, None, None, :]",
                "n = int((source != PAD).sum(1).float().mean())\n        return (torch.arange(source.size(1)) < n).expand(len(source), -1)[:, None, None, :]",
            )
        ],
    ),
    Fault(
        "the masks are sorted by length",
        id="source-padding",
        says="sorted",
        batch_first=[
            (
                "return (source != PAD)[:, None, None, :]",
                "m = (source != PAD)\n        m = m[m.sum(1).argsort(descending=True)]\n        return m[:, None, None, :]",
            )
        ],
    ),
    Fault(
        "scores are doubled",
        id="attention-scale",
        says="2 times",
        batch_first=[
            ("weights = F.softmax(scores, dim=-1)", "weights = F.softmax(scores * 2, dim=-1)")
        ],
    ),
    Fault(
        "a softmax of the softmax",
        id="stray-activation",
        says="softmax",
        batch_first=[
            (
                "weights = F.softmax(scores, dim=-1)",
                "weights = F.softmax(F.softmax(scores, dim=-1), dim=-1)",
            )
        ],
    ),
    Fault(
        "scores are squared",
        id="stray-activation",
        says="square",
        batch_first=[
            (
                "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
                "scores = (q @ k.transpose(-2, -1)) ** 2 / math.sqrt(q.size(-1))",
            )
        ],
    ),
    Fault(
        "positions are concatenated",
        id="embedding-scale",
        says="concatenated",
        batch_first=[
            (
                "x + self.table[: ids.size(1)]",
                "torch.cat([x[..., : x.size(-1) // 2], self.table[: ids.size(1), : x.size(-1) // 2].expand(len(x), -1, -1)], -1)",
            )
        ],
    ),
    Fault(
        "cosines have twice the frequency",
        id="sinusoids",
        says="frequency",
        batch_first=[
            (
                "table[:, 1::2] = torch.cos(position * rates)",
                "table[:, 1::2] = torch.cos(position * rates * 2)",
            )
        ],
    ),
    Fault(
        "cosines are missing",
        id="sinusoids",
        says="dimensions 1, 3, 5",
        batch_first=[("table[:, 1::2] = torch.cos(position * rates)", "pass")],
    ),
    Fault(
        "the source's mask has the target's lengths",
        id="source-padding|source-visible|causal-mask|source-dependence|batch-independence|mask-value",
        says="target|decoder'?s? (input|words?|tokens?|length)|lengths?\\b|\\btrg\\b|\\btgt\\b",
        batch_first=[
            (
                "        source_mask = self.source_mask(source)\n        memory",
                "        lengths = (target != PAD).sum(1)\n        source_mask = (torch.arange(source.size(1)) < lengths[:, None])[:, None, None, :]\n        memory",
            )
        ],
    ),
    Fault(
        "the second half of the batch has the first half's masks",
        id="source-padding|batch-independence|source-visible",
        says="the source mask of sentence|\\bhalf|halves|(another|other|wrong|different|neighbour'?s?) (sentence|source|row)|(another|other) sentence'?s|mask of (another|other)|other sentences|rest of the batch|chunk|modulo",
        batch_first=[
            (
                "return (source != PAD)[:, None, None, :]",
                "mask = (source != PAD)[:, None, None, :]\n        return mask[torch.arange(len(mask)) % ((len(mask) + 1) // 2)]",
            )
        ],
    ),
    Fault(
        "the softmax has powers of two, as exp2 without log2 e",
        id="attention-scale|softmax-dimension|attention-weights|attention",
        says="0?\\.69|0\\.245|4\\.08|1\\.44|\\bln\\b|\\blog_?2?\\b|\\bbase\\b|exp2|2\\^|powers? of",
        sequence_first=[
            (
                "        weight = F.softmax(score, dim=1)",
                "        weight = torch.exp2(score - score.amax(1, keepdim=True))\n        weight = weight / weight.sum(1, keepdim=True)",
            )
        ],
    ),
    Fault(
        "what a norm gives is clipped",
        id="stray-activation|post-norm|layer-norm|norm|norm-places|final-norm|sublayer-output-used",
        says="clip|clamp|\\bcut\\b|bound|satur|limit|at most|hardtanh|1\\.5|largest|maximum|outlier|never (more|above|larger)",
        multihead=[
            ("nn.LayerNorm(config.d_model)", "Clipped(config.d_model)"),
            (
                "class EncoderBlock(nn.Module):",
                "class Clipped(nn.LayerNorm):\n    def forward(self, x):\n        return super().forward(x).clamp(-1.5, 1.5)\n\n\nclass EncoderBlock(nn.Module):",
            ),
        ],
    ),
    Fault(
        "the norm's gain is one number for all dimensions",
        id="norm-gain|norm-affine|layer-norm|norm|parameter-count",
        says="(one|single|same|1) (number|scalar|gain|factor|value|parameter|element|weight)|scalar|\\bshape|(per|each|every|all) dimensions?|gains? (is|has|have|are|of) (one|1|a single|the same|equal|size|shape)",
        batch_first=[
            ("nn.LayerNorm(config.d_model, eps=1e-6)", "ScalarNorm(config.d_model, eps=1e-6)"),
            (
                "class FeedForward(nn.Module):",
                "class ScalarNorm(nn.LayerNorm):\n    def __init__(self, width, eps):\n        super().__init__(width, eps=eps)\n        self.weight = nn.Parameter(torch.ones(1))\n\n    def forward(self, x):\n        return self.weight * F.layer_norm(x, x.shape[-1:], eps=self.eps) + self.bias\n\n\nclass FeedForward(nn.Module):",
            ),
        ],
    ),
    Fault(
        "attention's output matrix is that of values, transposed",
        id="shared-matrix|shared-modules|parameter-count|head-size|attention-output|gradients|heads|attention",
        says="transpos|output (matrix|matrices|projection|weight)|matrix of the output|heads\\.out|\\bW_?\\^?[OV]\\b|\\bvalues?\\b",
        sequence_first=[
            (
                "        self.out = nn.Parameter(torch.empty(config.heads, d_v, config.d_model))\n",
                "",
            ),
            (
                'torch.einsum("ibnd,ndm->ibm", context, self.out)',
                'torch.einsum("ibnd,mnd->ibm", context, self.value)',
            ),
        ],
    ),
    Fault(
        "the sinusoids of a head's width are repeated for each head",
        id="sinusoids|sinusoid-variant",
        says="repeat|\\bheads?\\b|period|again|same (wave|frequenc|sinusoid|number|column|dimension)|every (8|eight)|dimensions? 8\\b|\\b8 dimensions|d_k|first (8|eight|quarter)|cop(y|ies)|equal (columns|dimensions)|\\btile",
        multihead=[
            (
                "pair = torch.arange(config.d_model // 2,",
                "width = config.d_model // config.heads\n        pair = torch.arange(width // 2,",
            ),
            ("-2 * pair / config.d_model", "-2 * pair / width"),
            ("dim=2).flatten(1)", "dim=2).flatten(1).repeat(1, config.heads)"),
        ],
    ),
    Fault(
        "the angle is rounded down",
        id="sinusoids|sinusoid-variant",
        says="rounded|rounds|rounding|round down|floor|(?<!exponent is an )integer|\\bwhole|//|trunc|stairs?|fraction|decimals|constant for|same (for|at) (neighbour|several|consecutive|adjacent)|(several|neighbouring|consecutive|adjacent) positions|\\bint\\b",
        sequence_first=[("positions[:, None] / torch.pow(", "positions[:, None] // torch.pow(")],
    ),
    Fault(
        "the target is turned round in training",
        id="training-loss|target-shift",
        says="turned|revers|flip|backwards?\\b(?! pass)|right.to.left|other way|last (word|token) first|from (the|its) (end|last)|opposite|\\border",
        multihead=[
            (
                "torch.cat([beginning, target], dim=1)",
                "torch.cat([beginning, target.flip(1)], dim=1)",
            )
        ],
    ),
    Fault(
        "training has no causal mask",
        id="training-loss|causal-mask|target-shift",
        says="causal|\\blater\\b|future|ahead|sees?[^.]*(next|labels?|answer|words? to be predicted|words? behind|all words|whole|following)|triangular|\\bleak",
        sequence_first=[
            (
                "    return loss(logits(model, source, shifted), target)",
                "    memory, source_hidden = model.encode(source.T)\n    x = model.embed_target(shifted.T)\n    for layer in model.decoder:\n        x = layer(x, (shifted.T == PAD)[None], memory, source_hidden)\n    return loss((x @ model.words.T).transpose(0, 1), target)",
            )
        ],
    ),
    Fault(
        "training's loss is computed in bfloat16",
        id="training-loss|loss-average|loss-formula|label-smoothing|loss-words",
        says="b?float16|\\bbf16|half.precision|precis|rounded|rounding|rounds\\b|decimal|digits|dtype|inexact|numeric",
        batch_first=[
            (
                "return loss(model(source, previous), target)",
                "return loss(model(source, previous).bfloat16(), target).float()",
            )
        ],
    ),
    Fault(
        "training alone does not mask the source's padding",
        id="training-loss|source-padding|training-source|batch-independence|loss-padding|training-mode",
        says="source[^.]*\\bpad|\\bpad[^.]*(source|encoder|memory)|source'?s? mask|mask (of|for) the (source|memory|encoder)|(source|encoder|memory|cross)[^.]*mask|depends? on (the )?(other|rest|longest|number of pads)|other sentences|rest of the batch",
        multihead=[
            (
                "    output = logits(model, source, with_start[:, :-1])\n",
                '    previous = with_start[:, :-1]\n    memory = model["encoder"](source, None)\n    causal = causal_mask(previous.shape[1])\n    output = model["decoder"](previous, memory, causal, previous == PAD, None)\n',
            )
        ],
    ),
    Fault(
        "Adafactor",
        id="adam|optimizer-parameters",
        says="adafactor|not (an )?adam|(another|other|different) optimi[sz]er",
        batch_first=[
            (
                "torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)",
                "torch.optim.Adafactor(model.parameters(), lr=1.0)",
            )
        ],
    ),
    Fault(
        "gradients are centralised",
        id="adam|optimizer-parameters",
        says="central|cent(re|er)ed|less (its|their|the) (\\w+ )?mean|(minus|subtract)[^.]*mean|mean[^.]*(subtract|removed|taken (off|away)|is zero|of (each|a|the) (row|matrix|gradient))|(other|another|rest|neighbour)[^.]*(element|gradient|number|weight|row)|(rows?|matri(x|ces))[^.]*(gradient|update|vector)|gradients?[^.]*(chang|modif|replac|alter)|(chang|modif|alter)[^.]*gradient",
        multihead=[
            ("torch.optim.Adam(", "Centralised("),
            (
                "def optimizer(model):",
                'class Centralised(torch.optim.Adam):\n    def step(self, closure=None):\n        for group in self.param_groups:\n            for p in group["params"]:\n                if p.grad is not None and p.dim() > 1:\n                    p.grad -= p.grad.mean(dim=tuple(range(1, p.dim())), keepdim=True)\n        return super().step(closure)\n\n\ndef optimizer(model):',
            ),
        ],
    ),
    Fault(
        "a loop leaves out the mask of the batch's last sentence",
        id="source-padding|batch-independence|source-visible",
        says="sentence 5 of a batch|\\b(last|one|another|other|some|certain|final|single|not (all|every|each)|(all|each|every|any)\\b[^.]*\\b(but|except)) (the )?(sentences?|source|row|one|of the batch)|all but|except|sentence (-1|n)\\b|other sentences|rest of the batch|place in the batch|number of (the )?sentence|some (of the )?(sentences|rows)",
        multihead=[
            (
                "    source_padding = source == PAD\n    target_padding",
                "    source_padding = torch.zeros_like(source, dtype=torch.bool)\n    for n in range(len(source) - 1):\n        source_padding[n] = source[n] == PAD\n    target_padding",
            )
        ],
    ),
    Fault(
        "sources are cut to the shortest of the batch",
        id="source-padding|batch-independence|source-visible|source-dependence",
        says="\\bcut|shortest|trunc|trim|(last|later|some|end) (source )?(words?|tokens?)|real (words|tokens)|(words|tokens)\\b[^.]*(hidden|lost|missing|left out|not (seen|read)|no (effect|influence)|behind|beyond|longer)|(hid(es|den)|loses?|miss(es)?|ignores?)[^.]*(words|tokens)|other sentences|rest of the batch|smallest length|minimum",
        sequence_first=[
            (
                "        hidden = (source == PAD)[None]\n",
                "        source = source[: (source != PAD).sum(0).min()]\n        hidden = (source == PAD)[None]\n",
            )
        ],
    ),
    Fault(
        "the encoder is run without gradient in training",
        id="training-loss|gradients|optimizer-parameters|memory",
        says="gradient[^.]*(encoder|source|memory)|(encoder|source|memory)[^.]*(gradient|detach|no_grad|not train|never train|not learn|untrained|frozen|fixed)|detach|no_grad",
        multihead=[
            (
                "    output = logits(model, source, with_start[:, :-1])\n",
                '    previous = with_start[:, :-1]\n    with torch.no_grad():\n        memory = model["encoder"](source, source == PAD)\n    causal = causal_mask(previous.shape[1])\n    output = model["decoder"](previous, memory, causal, previous == PAD, source == PAD)\n',
            )
        ],
    ),
    Fault(
        "the norms' gains and biases are frozen",
        id="gradients|norm-affine|norm-gain|norm-bias|norm|layer-norm|registered-parameters|parameter-count|optimizer-parameters",
        says="norms?\\b[^.]*(frozen|froze|freez|gradient|train|learn|requires_grad|fixed|constant|not (changed|updated))|(frozen|froze|freez|gradient|train|learn|requires_grad|fixed|constant|never updated|not updated)[^.]*(norm|gain|γ|β)|(gain|bias)[^.]*(frozen|gradient|train|learn|requires_grad|fixed|constant|updated)",
        multihead=[
            (
                "    return model\n\n\ndef causal_mask",
                "    for module in model.modules():\n        if isinstance(module, nn.LayerNorm):\n            module.requires_grad_(False)\n    return model\n\n\ndef causal_mask",
            )
        ],
    ),
    Fault(
        "the second moment adds whole squares",
        id="adam",
        says="second moment|\\bv\\b|squares?\\b|1 ?[-−–] ?(β|beta)_?[2₂]|(fifty|50|7\\.07|7) times|× ?(50|7)|\\b7\\.0\\d|\\b0?\\.14\\d?|1/50|√ ?50|adagrad|\\bsum\\b|moving average|too small",
        multihead=[
            ("torch.optim.Adam(", "WrittenAdam("),
            (
                "def optimizer(model):",
                'class WrittenAdam(torch.optim.Optimizer):\n    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):\n        super().__init__(parameters, dict(lr=lr, betas=betas, eps=eps))\n\n    @torch.no_grad()\n    def step(self, closure=None):\n        for group in self.param_groups:\n            b1, b2 = group["betas"]\n            for p in group["params"]:\n                if p.grad is None:\n                    continue\n                g, state = p.grad, self.state[p]\n                if not state:\n                    state.update(n=0, m=torch.zeros_like(p), v=torch.zeros_like(p))\n                n = state["n"] = state["n"] + 1\n                m = state["m"] = b1 * state["m"] + (1 - b1) * g\n                v = state["v"] = b2 * state["v"] + g * g\n                m_hat, v_hat = m / (1 - b1**n), v / (1 - b2**n)\n                p -= group["lr"] * m_hat / (v_hat.sqrt() + group["eps"])\n\n\ndef optimizer(model):',
            ),
        ],
    ),
    Fault(
        "both moments are corrected with the first beta",
        id="adam",
        says="correct|second moment|(β|beta)_?[1₁][^.]*(both|second|v\\b|β_?[2₂])|both[^.]*(β|beta|moment)|1 ?[-−–] ?(β|beta)_?[1₁]",
        sequence_first=[
            ("torch.optim.Adam(", "WrittenAdam("),
            (
                "def optimizer(model):",
                'class WrittenAdam(torch.optim.Optimizer):\n    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):\n        super().__init__(parameters, dict(lr=lr, betas=betas, eps=eps))\n\n    @torch.no_grad()\n    def step(self, closure=None):\n        for group in self.param_groups:\n            b1, b2 = group["betas"]\n            for p in group["params"]:\n                if p.grad is None:\n                    continue\n                g, state = p.grad, self.state[p]\n                if not state:\n                    state.update(n=0, m=torch.zeros_like(p), v=torch.zeros_like(p))\n                n = state["n"] = state["n"] + 1\n                m = state["m"] = b1 * state["m"] + (1 - b1) * g\n                v = state["v"] = b2 * state["v"] + (1 - b2) * g * g\n                m_hat, v_hat = m / (1 - b1**n), v / (1 - b1**n)\n                p -= group["lr"] * m_hat / (v_hat.sqrt() + group["eps"])\n\n\ndef optimizer(model):',
            ),
        ],
    ),
    Fault(
        "positions are added to the memory",
        id="positions-again|sinusoids|attention-inputs|memory|encoder-output|stray-activation|final-norm|cross-inputs|post-norm|norm-places|positions|encoder-input",
        says="position|sinusoid|memory|encoder'?s? output|(added|something|changed|altered|differs?)[^.]*(between|cross|encoder)|(between|cross|encoder)[^.]*(added|something|changed|altered|differs?)",
        sequence_first=[
            (
                "        return x, hidden\n",
                "        positions = torch.arange(len(source), dtype=torch.float)\n        return x + sinusoids(positions, self.width), hidden\n",
            )
        ],
    ),
    Fault(
        "no norm behind the encoder's feed-forward network",
        id="norm-places|post-norm|norm|layer-norm|final-norm|gradients|encoder-output|residual-sums|pre-norm|parameter-count|sublayer-order",
        says="(no|not|without|missing|left out|lacks?|never|unused|n't|lost)\\b[^.]*norm|norm[^.]*(missing|left out|lack|not|never|unused|no gradient|without|n't|lost|forgot)",
        batch_first=[
            (
                "        return self.norm_2(x + self.dropout(self.ffn(x)))\n",
                "        return x + self.dropout(self.ffn(x))\n",
            )
        ],
    ),
]
