"""Embeddings and positions."""

from .fault import Fault

A_TABLE = "rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))"
M_TABLE = "angles = torch.outer(position, 10000 ** (-2 * pair / config.d_model))"
S_TABLE = "angle = positions[:, None] / torch.pow(torch.tensor(10000.0), exponent)"
A_ODD = "table[:, 1::2] = torch.cos(position * rates)"
A_EVEN = "table[:, 0::2] = torch.sin(position * rates)"
M_STACK = "sinusoids = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)"
S_EVEN = "table[:, ::2] = angle.sin()"
S_ODD = "table[:, 1::2] = angle.cos()"
A_EMBED = "x = self.embedding(ids) * math.sqrt(self.config.d_model)"
S_EMBED = "x = F.embedding(ids, self.words) * self.width**0.5"
A_SUM = "return self.dropout(x + self.table[: ids.size(1)])"
M_SUM = "x = x + self.sinusoids[: ids.shape[1]]"
S_SUM = "return self.drop(x + sinusoids(positions, self.width))"


def of_angle(name: str, says: str, angle: str, id: str = "sinusoids") -> Fault:
    """Return a fault with other angles.

    They are an expression in positions ``p`` [L, 1], pairs ``i`` [d/2] and ``d``.
    """
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[
            (
                A_TABLE,
                f"p, i, d = position.float(), torch.arange(width // 2), width\n    position, rates = 1.0, {angle}",
            )
        ],
        multihead=[
            (
                M_TABLE,
                f"p, i, d = position[:, None], pair, config.d_model\n        angles = {angle}",
            )
        ],
        sequence_first=[
            (
                S_TABLE,
                f"p, i, d = positions[:, None], torch.arange(width // 2), width\n    angle = {angle}",
            )
        ],
    )


def of_columns(name: str, says: str, even: str, odd: str, id: str = "sinusoids") -> Fault:
    """Return a fault with other functions of the angle ``a`` in even and odd dimensions."""
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[
            (A_EVEN, f"a = position * rates\n    table[:, 0::2] = {even}"),
            (A_ODD, f"table[:, 1::2] = {odd}"),
        ],
        multihead=[
            (
                M_STACK,
                f"a = angles\n        sinusoids = torch.stack([{even}, {odd}], dim=2).flatten(1)",
            )
        ],
        sequence_first=[
            (S_EVEN, f"a = angle\n    table[:, ::2] = {even}"),
            (S_ODD, f"table[:, 1::2] = {odd}"),
        ],
    )


def of_table(name: str, id: str, says: str, change: str) -> Fault:
    """Return a fault that changes the table ``t`` [L, D] before it is added to ``x``."""
    a = change.replace("t", "self.table[: ids.size(1)]", 1) if change.startswith("t") else change
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[
            (A_SUM, f"t = self.table[: ids.size(1)]\n        return self.dropout({change})")
        ],
        multihead=[(M_SUM, f"t = self.sinusoids[: ids.shape[1]]\n        x = {change}")],
        sequence_first=[
            (
                S_SUM,
                f"t = sinusoids(positions, self.width)\n        return self.drop({change.replace('[LENGTH', '[LENGTH')})",
            )
        ],
    )


def of_factor(name: str, id: str, says: str, factor: str) -> Fault:
    """Return a fault with another factor of the embedding; ``d`` is d_model."""
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=[
            (A_EMBED, f"d = self.config.d_model\n        x = self.embedding(ids) * {factor}")
        ],
        multihead=[
            (
                "self.factor = config.d_model**0.5",
                f"d = config.d_model\n        self.factor = {factor}",
            )
        ],
        sequence_first=[
            (S_EMBED, f"d = self.width\n        x = F.embedding(ids, self.words) * {factor}")
        ],
    )


FAULTS = [
    of_angle("the exponent is doubled", "4i|twice|doubled|factor 2", "p / 10000 ** (4 * i / d)"),
    of_angle("the exponent is halved", "i/d|half|halved", "p / 10000 ** (i / d)"),
    of_angle("another base", "1,?000\\b|base", "p / 1000 ** (2 * i / d)"),
    of_angle("a base of 100,000", "100,?000|base", "p / 100000 ** (2 * i / d)"),
    of_angle("a base of e", "base", "p / 2.718281828 ** (2 * i / d)"),
    of_angle("positions are multiplied", "another sign", "p * 10000 ** (2 * i / d)"),
    of_angle("the exponent has another sign and factor", "sign", "p * 10000 ** (4 * i / d)"),
    of_angle("frequencies are 1 / i", "1, 0.5, 0.333", "p / (i + 1)"),
    of_angle(
        "sinusoids are computed in bfloat16",
        "bfloat16",
        "(p.bfloat16() * (10000 ** (-2 * i / d)).bfloat16()).float()",
    ),
    of_table("a constant vector is added", "sinusoids", "constant", "x + t + 0.5"),
    of_angle("positions begin with 1", "start at 1", "(p + 1) / 10000 ** (2 * i / d)"),
    of_angle("positions begin with 2", "start at 2", "(p + 2) / 10000 ** (2 * i / d)"),
    of_angle("positions are halved", "halve", "p / 2 / 10000 ** (2 * i / d)"),
    of_angle("positions are twice as far apart", "twice|2", "2 * p / 10000 ** (2 * i / d)"),
    of_angle(
        "positions are a share of the length",
        "share|scale|/|0\\.0",
        "p / 128 / 10000 ** (2 * i / d)",
    ),
    of_angle(
        "positions are degrees",
        "360|degree|π|6\\.28|2π",
        "2 * 3.14159265 * p / 10000 ** (2 * i / d)",
    ),
    of_angle(
        "wavelengths are one pair late",
        "2\\(i ?\\+ ?1\\)|2i ?\\+ ?2|pair",
        "p / 10000 ** ((2 * i + 2) / d)",
    ),
    of_angle(
        "the exponent is 2i / (d - 2)",
        "d_model - 2",
        "p / 10000 ** (2 * i / (d - 2))",
        "sinusoids|sinusoid-variant",
    ),
    of_columns("sines alone", "sine|cos", "a.sin()", "a.sin()"),
    of_columns("cosines alone", "cosine|sin", "a.cos()", "a.cos()"),
    of_columns(
        "cosines first",
        "cosines?( come)? first|cosines, then|swapped|cosines and sines",
        "a.cos()",
        "a.sin()",
        "sinusoids|sinusoid-variant",
    ),
    of_columns("negative cosines", "sign|negative|-", "a.sin()", "-a.cos()"),
    of_columns("squares", "", "a.sin() ** 2", "a.cos() ** 2"),
    Fault(
        "each dimension has a wavelength of its own",
        id="sinusoids|sinusoid-variant",
        says="odd|own|2i ?\\+ ?1",
        batch_first=[
            (
                A_ODD,
                "table[:, 1::2] = torch.cos(position * torch.exp(torch.arange(1, width, 2) * (-math.log(10000.0) / width)))",
            )
        ],
        multihead=[
            (
                M_STACK,
                "sinusoids = torch.stack([angles.sin(), (angles * 10000 ** (-1 / config.d_model)).cos()], dim=2).flatten(1)",
            )
        ],
        sequence_first=[(S_ODD, "table[:, 1::2] = (angle * 10000 ** (-1 / width)).cos()")],
    ),
    of_columns(
        "sines and cosines are factors of two", "2|twice|factor", "2 * a.sin()", "2 * a.cos()"
    ),
    of_table(
        "positions are not added",
        "sinusoids|source-order|target-order",
        "no position",
        "x + 0 * t",
    ),
    of_table(
        "positions are multiplied with words",
        "sinusoids|embedding-scale|embedding-sum",
        "multipl",
        "x * t",
    ),
    of_table("positions are added twice", "sinusoids", "2|twice", "x + t + t"),
    of_table(
        "positions are turned round", "sinusoids", "revers|order|last|turned", "x + t.flip(0)"
    ),
    of_table(
        "positions are clamped",
        "sinusoids|positions-clamped",
        "clamp|same|10",
        "x + t[torch.arange(len(t)).clamp(max=10)]",
    ),
    of_table(
        "positions begin again",
        "sinusoids|positions-clamped",
        "again|repeat|period|16",
        "x + t[torch.arange(len(t)) % 16]",
    ),
    of_table(
        "one position for all words",
        "sinusoids|source-order|target-order",
        "same|one|constant",
        "x + t[:1]",
    ),
    of_table(
        "the sum is multiplied",
        "embedding-scale|sinusoids",
        "sum|position|both|5\\.6|√d_model",
        "(x / 32**0.5 + t) * 32**0.5",
    ),
    of_table(
        "a norm between embedding and layer",
        "embedding-norm|embedding-scale|embedding-sum",
        "norm",
        "torch.nn.functional.layer_norm(x + t, x.shape[-1:])",
    ),
    of_table(
        "an activation between embedding and layer",
        "stray-activation|embedding-norm|embedding-scale|embedding-sum",
        "",
        "torch.relu(x + t)",
    ),
    Fault(
        "a norm module between embedding and layer",
        id="embedding-norm|embedding-scale|embedding-sum",
        says="norm",
        batch_first=[
            ("x = self.embed(source)", "x = self.norm(self.embed(source))"),
            (
                "self.dropout = nn.Dropout(config.dropout)\n\n    def embed(",
                "self.dropout = nn.Dropout(config.dropout)\n        self.norm = nn.LayerNorm(config.d_model)\n\n    def embed(",
            ),
            ("return model.embed(ids)", "return model.norm(model.embed(ids))"),
        ],
        multihead=[
            (
                "x = x + self.sinusoids[: ids.shape[1]]\n        return self.dropout(x)",
                "x = x + self.sinusoids[: ids.shape[1]]\n        return self.dropout(self.norm(x))",
            ),
            (
                "self.dropout = nn.Dropout(config.dropout)\n\n    def forward(self, ids)",
                "self.dropout = nn.Dropout(config.dropout)\n        self.norm = nn.LayerNorm(config.d_model)\n\n    def forward(self, ids)",
            ),
        ],
        sequence_first=[
            ("x = self.embed(source)", "x = self.norm(self.embed(source))"),
            (
                "        self.drop = nn.Dropout(config.dropout)\n\n    def embed(",
                "        self.drop = nn.Dropout(config.dropout)\n        self.norm = Norm(config.d_model)\n\n    def embed(",
            ),
            (
                "return model.embed(ids.T).transpose(0, 1)",
                "return model.norm(model.embed(ids.T)).transpose(0, 1)",
            ),
        ],
    ),
    of_factor(
        "embeddings are not multiplied", "embedding-scale", "√d_model|5\\.66|std|initialis", "1"
    ),
    of_factor("embeddings are divided", "embedding-scale", "√d_model|divided", "d**-0.5"),
    of_factor("embeddings are multiplied by d_model", "embedding-scale", "d_model", "d"),
    of_factor(
        "embeddings are multiplied by another number", "embedding-scale", "√d_model|5\\.6", "10"
    ),
    Fault(
        "learned positions",
        id="learned-positions",
        says="learned|trained",
        batch_first=[
            (
                'self.register_buffer("table", positional_table(config.max_length + 2, config.d_model))',
                "self.table = nn.Parameter(torch.randn(config.max_length + 2, config.d_model))",
            )
        ],
        multihead=[
            (
                'self.register_buffer("sinusoids", sinusoids, persistent=False)',
                "self.sinusoids = nn.Parameter(torch.randn_like(sinusoids))",
            )
        ],
        sequence_first=[
            (
                "self.width = config.d_model\n",
                "self.width = config.d_model\n        self.positions = nn.Parameter(torch.randn(200, 1, config.d_model))\n",
            ),
            (S_SUM, "return self.drop(x + self.positions[: len(ids)])"),
        ],
    ),
    Fault(
        "random positions that are not learned",
        id="sinusoids",
        says="random|no dimension is a sine",
        batch_first=[
            (
                'self.register_buffer("table", positional_table(config.max_length + 2, config.d_model))',
                'self.register_buffer("table", torch.randn(config.max_length + 2, config.d_model))',
            )
        ],
        multihead=[
            (
                'self.register_buffer("sinusoids", sinusoids, persistent=False)',
                'self.register_buffer("sinusoids", torch.randn_like(sinusoids))',
            )
        ],
        sequence_first=[
            (
                "self.width = config.d_model\n",
                "self.width = config.d_model\n        self.register_buffer('positions', torch.randn(200, 1, config.d_model))\n",
            ),
            (S_SUM, "return self.drop(x + self.positions[: len(ids)])"),
        ],
    ),
    Fault(
        "positions by the sentence's number",
        id="sinusoids|batch-independence|positions",
        says="batch|sentence",
        batch_first=[(A_SUM, "return self.dropout(x + self.table[: ids.size(0)][:, None])")],
        multihead=[(M_SUM, "x = x + self.sinusoids[: ids.shape[0]][:, None]")],
        sequence_first=[
            (
                "positions = torch.arange(first, first + len(ids), dtype=torch.float)",
                "positions = torch.arange(ids.shape[1], dtype=torch.float)",
            ),
            (S_SUM, "return self.drop(x + sinusoids(positions, self.width).transpose(0, 1))"),
        ],
    ),
    Fault(
        "logits are multiplied",
        id="output-scale",
        says="√d_model|multipl",
        batch_first=[
            ("return self.output(x)", "return self.output(x) * math.sqrt(self.config.d_model)")
        ],
        multihead=[("return self.generator(x)", "return self.generator(x) * 32**0.5")],
        sequence_first=[
            ("return x @ self.words.T\n", "return x @ self.words.T * self.width**0.5\n")
        ],
    ),
    Fault(
        "logits are divided",
        id="output-scale",
        says="√d_model|divid",
        batch_first=[
            ("return self.output(x)", "return self.output(x) / math.sqrt(self.config.d_model)")
        ],
        multihead=[("return self.generator(x)", "return self.generator(x) / 32**0.5")],
        sequence_first=[
            ("return x @ self.words.T\n", "return x @ self.words.T / self.width**0.5\n")
        ],
    ),
    Fault(
        "a ReLU before the output",
        id="stray-activation|output-scale|final-norm",
        says="ReLU|norm",
        batch_first=[("return self.output(x)", "return self.output(F.relu(x))")],
        multihead=[("return self.generator(x)", "return self.generator(torch.relu(x))")],
        sequence_first=[("return x @ self.words.T\n", "return x.relu() @ self.words.T\n")],
    ),
    Fault(
        "GELU",
        id="activation",
        says="GELU",
        batch_first=[("F.relu(self.w_1(x))", "F.gelu(self.w_1(x))")],
        multihead=[("nn.ReLU()", "nn.GELU()")],
        sequence_first=[("hidden = hidden.clamp(min=0)", "hidden = F.gelu(hidden)")],
    ),
    Fault(
        "no activation",
        id="activation",
        says="no activation|linear",
        batch_first=[("F.relu(self.w_1(x))", "self.w_1(x)")],
        multihead=[("nn.ReLU()", "nn.Identity()")],
        sequence_first=[("hidden = hidden.clamp(min=0)", "pass")],
    ),
]
