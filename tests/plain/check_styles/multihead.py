# ruff: noqa: ANN001, ANN201, D102, D103, D107
"""A Transformer of nn.MultiheadAttention: encoder and decoder apart, which are given their masks.

A style of the faults in tests/plain/check_styles/faults: each replaces a few lines of this text.
Its three matrices are separate, its norms have torch's ε: common variants.

Shape letters: B batch, S source, T target, L either, D d_model.
"""

import torch
from torch import nn

from transformer_check import Config

PAD, START, END = 3, 0, 1
CONFIG = Config(pad=PAD, start=START, end=END)


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.d_model)
        nn.init.normal_(self.words.weight, std=config.d_model**-0.5)
        self.factor = config.d_model**0.5
        position = torch.arange(config.max_length, dtype=torch.float)
        pair = torch.arange(config.d_model // 2, dtype=torch.float)
        angles = torch.outer(position, 10000 ** (-2 * pair / config.d_model))
        sinusoids = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
        self.register_buffer("sinusoids", sinusoids, persistent=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids):
        x = self.words(ids) * self.factor
        x = x + self.sinusoids[: ids.shape[1]]
        return self.dropout(x)


class EncoderBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(config.d_model, config.heads, batch_first=True)
        self.ffn = nn.Sequential(
            nn.Linear(config.d_model, config.d_ff),
            nn.ReLU(),
            nn.Linear(config.d_ff, config.d_model),
        )
        self.norms = nn.ModuleList([nn.LayerNorm(config.d_model) for _ in range(2)])
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, source_padding):
        y, _ = self.self_attn(x, x, x, key_padding_mask=source_padding)
        x = self.norms[0](x + self.dropout(y))
        y = self.ffn(x)
        x = self.norms[1](x + self.dropout(y))
        return x


class DecoderBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(config.d_model, config.heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(config.d_model, config.heads, batch_first=True)
        self.ffn = nn.Sequential(
            nn.Linear(config.d_model, config.d_ff),
            nn.ReLU(),
            nn.Linear(config.d_ff, config.d_model),
        )
        self.norms = nn.ModuleList([nn.LayerNorm(config.d_model) for _ in range(3)])
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, memory, causal, target_padding, source_padding):
        y, _ = self.self_attn(x, x, x, attn_mask=causal, key_padding_mask=target_padding)
        x = self.norms[0](x + self.dropout(y))
        y, _ = self.cross_attn(x, memory, memory, key_padding_mask=source_padding)
        x = self.norms[1](x + self.dropout(y))
        y = self.ffn(x)
        x = self.norms[2](x + self.dropout(y))
        return x


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList([EncoderBlock(config) for _ in range(config.layers)])

    def forward(self, source, source_padding):
        x = self.embeddings(source)
        for block in self.blocks:
            x = block(x, source_padding)
        return x


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList([DecoderBlock(config) for _ in range(config.layers)])
        self.generator = nn.Linear(config.d_model, config.vocabulary)

    def forward(self, target, memory, causal, target_padding, source_padding):
        x = self.embeddings(target)
        for block in self.blocks:
            x = block(x, memory, causal, target_padding, source_padding)
        return self.generator(x)


def build(config):
    model = nn.ModuleDict({"encoder": Encoder(config), "decoder": Decoder(config)})
    return model


def causal_mask(length):
    """Return the causal mask, which is True where it hides, as in torch."""
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def logits(model, source, target):
    source_padding = source == PAD
    target_padding = target == PAD
    causal = causal_mask(target.shape[1])
    memory = model["encoder"](source, source_padding)
    return model["decoder"](target, memory, causal, target_padding, source_padding)


def embedding(model, ids):
    return model["encoder"].embeddings(ids)


def target_embedding(model, ids):
    return model["decoder"].embeddings(ids)


def encoder_layer(model, x):
    return model["encoder"].blocks[0](x, None)


def decoder_layer(model, x, memory):
    return model["decoder"].blocks[0](x, memory, causal_mask(x.shape[1]), None, None)


def loss(logits, target):
    log_probs = logits.log_softmax(-1)
    right = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    everything = -log_probs.sum(-1)
    epsilon = CONFIG.label_smoothing
    each = (1 - epsilon) * right + epsilon * (everything - right) / (CONFIG.vocabulary - 1)
    each = each[target != PAD]
    return each.sum()


def training_loss(model, source, target):
    beginning = target.new_full((target.shape[0], 1), START)
    with_start = torch.cat([beginning, target], dim=1)
    output = logits(model, source, with_start[:, :-1])
    return loss(output, with_start[:, 1:])


def learning_rate(step):
    warmup, d_model = 4000, 512
    return d_model ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5))


def optimizer(model):
    return torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)


@torch.no_grad()
def search(model, sentence, beam, alpha, limit):
    """Translate one sentence [1, S] with lists of hypotheses."""
    source_padding = sentence == PAD
    memory = model["encoder"](sentence, source_padding)
    live = [([START], 0.0)]
    finished = []
    for _ in range(limit):
        candidates = []
        for ids, score in live:
            target = torch.tensor([ids])
            causal = causal_mask(len(ids))
            output = model["decoder"](target, memory, causal, target == PAD, source_padding)
            log_probs = output[0, -1].log_softmax(-1)
            values, tokens = log_probs.topk(2 * beam)
            for value, token in zip(values.tolist(), tokens.tolist()):
                if token != PAD:
                    candidates.append(([*ids, token], score + value))
        candidates.sort(key=lambda pair: pair[1], reverse=True)
        live = []
        for ids, score in candidates[: 2 * beam]:
            if ids[-1] == END:
                penalty = ((5 + len(ids) - 1) / 6) ** alpha
                finished.append((ids, score / penalty))
            elif len(live) < beam:
                live.append((ids, score))
        best_possible = live[0][1] / ((5 + limit) / 6) ** alpha
        if any(score > best_possible for _, score in finished):
            break
    if not finished:
        finished = live
    best = max(finished, key=lambda pair: pair[1])
    return best[0][1:]


def translate(model, source):
    model.eval()
    translations = []
    for sentence in source:
        length = int((sentence != PAD).sum())
        limit = length + 50
        translations.append(search(model, sentence[None, :length], 4, 0.6, limit))
    return translations
