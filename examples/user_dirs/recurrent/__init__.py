"""A recurrent encoder–decoder, with or without attention, to compare the paper's model with.

    fairseq-train DATA --user-dir examples/user_dirs/recurrent --arch recurrent_translation \
        --cell lstm --hidden-size 200 --attention-score additive …

The encoder reads the sentence in both directions; the decoder starts from its last states and
writes one word after another. ``--attention-score`` weighs the encoder's states for each word:

    additive   vᵀ tanh(W q + U k)   Bahdanau, Cho and Bengio (2015)
    dot        q · k                Luong, Pham and Manning (2015), "dot"
    none       no weights: the decoder gets only the last states, as in Sutskever, Vinyals and
               Le (2014)

As in Luong et al., the query is the decoder's newest state, so that a whole sentence is trained in
one call of the cell; Bahdanau et al. use the state before it. The cells are torch's. Nothing here
subclasses the plugin's model, but the plugin's loss and schedule (with ``--d-model``) work with it.

Shape letters: B batch, S source, T target, H hidden size, N layers, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import (
    FairseqEncoder,
    FairseqEncoderDecoderModel,
    FairseqIncrementalDecoder,
    register_model,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_plugin.config import ConfigError

CELLS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
STATE = "recurrent_state"
"""The key of the cells' states in fairseq's incremental state: tensors [N, B, H]."""


@dataclass
class RecurrentConfig(FairseqDataclass):
    """Sizes for a small corpus, such as Multi30k."""

    cell: ChoiceEnum(list(CELLS)) = field(  # type: ignore[valid-type]
        default="lstm", metadata={"help": "the recurrent cell (rnn: tanh)"}
    )
    attention_score: ChoiceEnum(["additive", "dot", "none"]) = field(  # type: ignore[valid-type]
        default="additive", metadata={"help": "how a target word weighs the source's states"}
    )
    embed_dim: int = field(default=128, metadata={"help": "width of the embeddings"})
    hidden_size: int = field(
        default=200, metadata={"help": "H, even: half of it for each direction of the encoder"}
    )
    layers: int = field(default=2, metadata={"help": "N, of the encoder and of the decoder"})
    dropout: float = field(
        default=0.2, metadata={"help": "of embeddings, between layers, and before the softmax"}
    )


def cells_of(cfg: RecurrentConfig, hidden_size: int, both: bool = False) -> nn.RNNBase:
    """Return N layers of cells with dropout between them; with ``both``, in both directions.

    Gates that keep the state (forget, z) start with a bias of 1 (Gers et al. 2000).
    """
    between = cfg.dropout if cfg.layers > 1 else 0.0  # torch warns about dropout of one layer
    sizes = cfg.embed_dim, hidden_size, cfg.layers
    cells = CELLS[str(cfg.cell)](*sizes, batch_first=True, bidirectional=both, dropout=between)
    for name, bias in cells.named_parameters():
        if name.startswith("bias_ih") and str(cfg.cell) != "rnn":
            nn.init.ones_(bias.data[hidden_size : 2 * hidden_size])
    return cells


def embedded(tokens: nn.Embedding, words: Tensor) -> Tensor:
    """Return embeddings [B, T, embed_dim] of ids [B, T], times √embed_dim as in 3.4.

    The table is also the output matrix.
    """
    return tokens(words) * tokens.embedding_dim**0.5


class RecurrentEncoder(FairseqEncoder):
    """Reads a sentence forwards and backwards; ``tokens``: the table of embeddings."""

    def __init__(self, cfg: RecurrentConfig, dictionary: Any, tokens: nn.Embedding) -> None:
        super().__init__(dictionary)
        self.tokens = tokens
        self.dropout = nn.Dropout(cfg.dropout)
        self.cells = cells_of(cfg, cfg.hidden_size // 2, both=True)

    def forward(self, src_tokens: Tensor, src_lengths: Any = None) -> dict[str, Any]:
        """Return the states of a source [B, S], padded on either side.

        The dictionary has

        - ``memory``: one tensor, the top layer's outputs [B, S, H]
        - ``encoder_padding_mask``: one tensor, true at pads [B, S]
        - ``states``: the last states of all layers [N, B, H] (LSTM: hidden and cell states)
        """
        pads = src_tokens.eq(self.tokens.padding_idx)
        lengths = (~pads).sum(1)
        # cells must not read pads, so pads are moved behind the words, and back afterwards
        behind = pads.int().argsort(dim=1, stable=True)  # [B, S]
        x = self.dropout(embedded(self.tokens, src_tokens.gather(1, behind)))
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, states = self.cells(packed)
        x, _ = pad_packed_sequence(outputs, batch_first=True, total_length=src_tokens.size(1))
        x = x.gather(1, behind.argsort(dim=1)[:, :, None].expand_as(x))
        last = states if isinstance(states, tuple) else (states,)
        return {
            "memory": [self.dropout(x)],
            "encoder_padding_mask": [pads],
            "states": [both_directions(state) for state in last],
        }

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Put the sentences into ``new_order`` [B'], for fairseq's beam search."""
        dims = {"memory": 0, "encoder_padding_mask": 0, "states": 1}
        return {
            name: [tensor.index_select(dim, new_order) for tensor in encoder_out[name]]
            for name, dim in dims.items()
        }


def both_directions(state: Tensor) -> Tensor:
    """Join states of both directions: [N·2, B, H/2], in turn, → [N, B, H]."""
    directions, batch, half = state.shape
    layers = state.view(directions // 2, 2, batch, half)
    return layers.transpose(1, 2).reshape(directions // 2, batch, 2 * half)


class Attention(nn.Module):
    """Weighs the source's states [B, S, H] for each state of the decoder [B, T, H].

    Args:
        hidden_size: H
        score: ``additive`` or ``dot``
    """

    def __init__(self, hidden_size: int, score: str) -> None:
        super().__init__()
        self.additive = score == "additive"
        if self.additive:
            self.query = nn.Linear(hidden_size, hidden_size, bias=False)  # W
            self.key = nn.Linear(hidden_size, hidden_size, bias=False)  # U
            self.score = nn.Linear(hidden_size, 1, bias=False)  # v

    def forward(self, query: Tensor, states: Tensor, pads: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted mean of the states [B, T, H], and the weights [B, T, S]."""
        if self.additive:
            hidden = torch.tanh(self.query(query)[:, :, None] + self.key(states)[:, None])
            scores = self.score(hidden).squeeze(-1)  # [B, T, S]
        else:
            scores = query @ states.transpose(1, 2)
        weights = scores.masked_fill(pads[:, None], float("-inf")).softmax(dim=-1)
        return weights @ states, weights


class RecurrentDecoder(FairseqIncrementalDecoder):
    """Writes one target word after another; ``tokens`` is also the matrix before the softmax."""

    def __init__(self, cfg: RecurrentConfig, dictionary: Any, tokens: nn.Embedding) -> None:
        super().__init__(dictionary)
        self.tokens = tokens
        self.dropout = nn.Dropout(cfg.dropout)
        self.cells = cells_of(cfg, cfg.hidden_size)
        score = str(cfg.attention_score)
        self.attention = None if score == "none" else Attention(cfg.hidden_size, score)
        width = cfg.hidden_size * (1 if self.attention is None else 2)  # state and context
        self.combine = nn.Linear(width, cfg.embed_dim)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return logits [B, T, V] (or features [B, T, embed_dim]), and ``attn`` [B, T, S].

        With ``incremental_state`` only the last of the T tokens is new: then T is 1 in the result.
        """
        features, weights = self.extract_features(
            prev_output_tokens, encoder_out, incremental_state
        )
        return (features if features_only else self.output_layer(features)), {"attn": [weights]}

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return features [B, T, embed_dim], and the weights of attention [B, T, S] or None."""
        states = tuple(encoder_out["states"])
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
            states = incremental_state.get(STATE, states)
        x = self.dropout(embedded(self.tokens, prev_output_tokens))
        start = tuple(state.contiguous() for state in states)
        x, states = self.cells(x, start if len(start) == 2 else start[0])
        if incremental_state is not None:
            incremental_state[STATE] = states if isinstance(states, tuple) else (states,)
        weights = None
        if self.attention is not None:
            memory, pads = encoder_out["memory"][0], encoder_out["encoder_padding_mask"][0]
            context, weights = self.attention(x, memory, pads)
            x = torch.cat([x, context], dim=-1)
        return self.dropout(torch.tanh(self.combine(x))), weights

    def output_layer(self, features: Tensor) -> Tensor:
        """Return the logits [B, T, V] of features [B, T, embed_dim]."""
        return nn.functional.linear(features, self.tokens.weight)

    def reorder_incremental_state(
        self, incremental_state: dict[str, Any], new_order: Tensor
    ) -> None:
        """Replace the state of hypothesis i by that of hypothesis ``new_order[i]``."""
        if STATE in incremental_state:
            states = incremental_state[STATE]
            incremental_state[STATE] = tuple(s.index_select(1, new_order) for s in states)


@register_model("recurrent_translation", dataclass=RecurrentConfig)
class RecurrentModel(FairseqEncoderDecoderModel):
    """A recurrent encoder–decoder whose embeddings and output matrix are one table (as in 3.4)."""

    @classmethod
    def build_model(cls, cfg: RecurrentConfig, task: Any) -> "RecurrentModel":
        """Build the model for a task with a joined dictionary.

        Raises:
            ConfigError: the dictionaries differ, or the sizes cannot work.
        """
        source, target = task.source_dictionary, task.target_dictionary
        if source != target:
            raise ConfigError(
                "the source and the target dictionary differ, but the model shares one embedding "
                "matrix between them: run fairseq-preprocess with --joined-dictionary"
            )
        if cfg.layers < 1:
            raise ConfigError(f"--layers is {cfg.layers}, but must be at least 1")
        if cfg.hidden_size < 2 or cfg.hidden_size % 2:
            raise ConfigError(
                f"--hidden-size is {cfg.hidden_size}, but must be even: half of it is for each "
                "direction of the encoder"
            )
        tokens = nn.Embedding(len(source), cfg.embed_dim, source.pad())
        nn.init.normal_(tokens.weight, std=cfg.embed_dim**-0.5)
        nn.init.zeros_(tokens.weight[source.pad()])
        return cls(RecurrentEncoder(cfg, source, tokens), RecurrentDecoder(cfg, target, tokens))
