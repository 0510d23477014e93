"""The systems that are compared: with attention, and without."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from experiments.harness import HERE
from vaswani.configuration.plugin import load_user_dir
from vaswani_transformer import Transformer, base
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.initialisation import initialise
from vaswani_transformer.vocabulary import PAD

KEYS = NAMES = 64
FIRST = 4
"""The first key, after the special symbols; the names follow the keys."""
TYPES = FIRST + KEYS + NAMES
WIDTH = 64


class System(NamedTuple):
    """One of the systems compared.

    Attributes:
        build: makes a model that takes source and target, as fairseq's and ours do
        floats: what it knows of a source of k pairs, in numbers
    """

    build: Callable[[], nn.Module]
    floats: Callable[[int], int]


def example(name: str) -> Any:
    """Import a module of examples/ once, as fairseq imports a user-dir."""
    load_user_dir(str(HERE.parent / "examples" / "user_dirs" / name))
    return importlib.import_module(name)


class Sequential(nn.Module):
    """A recurrent encoder and decoder as one module: source and target to logits."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        recurrent = example("recurrent")
        cfg = recurrent.RecurrentConfig(embed_dim=WIDTH, dropout=0.0, **changes)
        tokens = nn.Embedding(TYPES, WIDTH, PAD)
        nn.init.normal_(tokens.weight, std=WIDTH**-0.5)
        self.encoder = recurrent.RecurrentEncoder(cfg, None, tokens)
        self.decoder = recurrent.RecurrentDecoder(cfg, None, tokens)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits [B, T, V] from source [B, S] and target [B, T]."""
        return self.decoder(target, self.encoder(source))[0]


def transformer(relative: bool = False) -> nn.Module:
    """Build the paper's model; if ``relative``, with relative_positions' self-attention."""
    config = base(layers=2, d_model=WIDTH, d_ff=256, heads=4, dropout=0.0)
    model = Transformer(config, TYPES, TYPES)
    if relative:
        attention = example("relative_positions").RelativeSelfAttention
        for layer in [*model.encoder.layers, *model.decoder.layers]:
            layer.self_attention = attention(WIDTH, 4, max_distance=16)
        initialise(model, "fairseq")
    return use_fast_kernels(model)


def lstm(hidden_size: int, score: str = "none") -> System:
    """Return an LSTM system, with attention if it has a score.

    Its state is h and c of two layers and, with attention, the encoder's output.
    """
    state = 2 * 2 * hidden_size
    each = 0 if score == "none" else 2 * hidden_size
    return System(
        lambda: Sequential(hidden_size=hidden_size, attention_score=score),
        lambda k: state + k * each,
    )


SYSTEMS = {
    "LSTM": lstm(96),
    "LSTM, half the state": lstm(48),
    "LSTM, dot attention": lstm(92, "dot"),
    "ours": System(transformer, lambda k: 2 * k * WIDTH),
    "ours, relative positions": System(lambda: transformer(relative=True), lambda k: 2 * k * WIDTH),
}


COMMON_RATES = (0.001, 0.003, 0.009)
RATES: dict[str, tuple[float, ...]] = dict.fromkeys(SYSTEMS, COMMON_RATES)
RATES["ours"] = (0.0003, *COMMON_RATES)
RATES["LSTM"] = (*COMMON_RATES, 0.027)
RATES["LSTM, dot attention"] = (0.003, 0.009)
RATES["ours, relative positions"] = (0.003,)
"""Those that were tried. Beyond the edge at which its best rate lay, one more was tried of ours and
of the LSTM; not of the LSTM with attention, and the relative model has one rate alone."""
