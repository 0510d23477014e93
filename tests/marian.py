"""transformers' Marian written from its description, in plain torch: what an export must suit.

It reads ``config.json`` and ``model.safetensors`` and nothing else of the project.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, silu, softmax

ACTIVATIONS = {"relu": torch.relu, "gelu": gelu, "swish": silu}
EPSILON = 1e-5  # cannot be set


class Marian:
    """The model in a folder.

    Args:
        folder: with config.json and model.safetensors
    """

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.state = load_file(str(folder / "model.safetensors"))
        self.read = set()  # the parameters that were used

    def parameter(self, name: str) -> Tensor:
        self.read.add(name)
        return self.state[name]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.parameter(f"{name}.weight").T + self.parameter(f"{name}.bias")

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = (self.parameter(f"{name}.{kind}") for kind in ("weight", "bias"))
        return layer_norm(x, weight.shape, weight, bias, EPSILON)

    def embed(self, side: str, tokens: Tensor) -> Tensor:
        """Embed [B, L] to [B, L, d]: rows times √d, plus all sines, then all cosines."""
        shared = self.config["share_encoder_decoder_embeddings"]
        name = "model.shared.weight" if shared else f"model.{side}.embed_tokens.weight"
        width = self.config["d_model"]
        assert self.config["scale_embedding"] and "static_position_embeddings" not in self.config
        place = torch.arange(tokens.size(1), dtype=torch.float64)[:, None]
        angles = place / 10000 ** (2 * torch.arange(width // 2) / width)
        table = torch.cat([angles.sin(), angles.cos()], dim=1).float()
        return self.parameter(name)[tokens] * math.sqrt(width) + table

    def attention(self, name: str, heads: int, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
        """Attend from x [B, L, d] to memory [B, M, d] where seen [B, L or 1, M]."""
        batch, length, width = x.shape

        def split(part: str, of: Tensor) -> Tensor:
            return self.linear(f"{name}.{part}", of).view(batch, -1, heads, width // heads)

        q, k, v = split("q_proj", x), split("k_proj", memory), split("v_proj", memory)
        scores = torch.einsum("blhd,bmhd->bhlm", q, k) / math.sqrt(width // heads)
        weights = softmax(scores.masked_fill(~seen[:, None], -math.inf), dim=-1)
        heads_together = torch.einsum("bhlm,bmhd->blhd", weights, v).reshape(batch, length, width)
        return self.linear(f"{name}.out_proj", heads_together)

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.config["activation_function"]]
        x = x + self.linear(f"{name}.fc2", activation(self.linear(f"{name}.fc1", x)))
        return self.norm(f"{name}.final_layer_norm", x)

    def logits(self, source: Tensor, previous: Tensor) -> Tensor:
        """Compute logits [B, T, types] from [B, S] and [B, T], both padded on the right."""
        config = self.config
        seen = source.ne(self.config["pad_token_id"])[:, None]
        memory = self.embed("encoder", source)
        for number in range(config["encoder_layers"]):
            name = f"model.encoder.layers.{number}"
            heads = config["encoder_attention_heads"]
            found = self.attention(f"{name}.self_attn", heads, memory, memory, seen)
            memory = self.norm(f"{name}.self_attn_layer_norm", memory + found)
            memory = self.feed_forward(name, memory)
        x = self.embed("decoder", previous)
        length = previous.size(1)
        earlier = torch.ones(length, length).tril().bool()[None]
        for number in range(config["decoder_layers"]):
            name = f"model.decoder.layers.{number}"
            heads = config["decoder_attention_heads"]
            found = self.attention(f"{name}.self_attn", heads, x, x, earlier)
            x = self.norm(f"{name}.self_attn_layer_norm", x + found)
            found = self.attention(f"{name}.encoder_attn", heads, x, memory, seen)
            x = self.norm(f"{name}.encoder_attn_layer_norm", x + found)
            x = self.feed_forward(name, x)
        head = "model.shared.weight" if config["tie_word_embeddings"] else "lm_head.weight"
        return x @ self.parameter(head).T + self.parameter("final_logits_bias")
