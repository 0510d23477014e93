"""Small models of the paper's package alone, batches for them, and the demo's folder."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vaswani_transformer import Transformer, TransformerConfig

SIZES = {
    **dict.fromkeys(["encoder_layers", "decoder_layers"], 2),
    **dict.fromkeys(["encoder_embed_dim", "decoder_embed_dim"], 16),
    **dict.fromkeys(["encoder_ffn_embed_dim", "decoder_ffn_embed_dim"], 32),
    **dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 4),
    "dropout": 0.0,
    "max_source_positions": 64,
    "max_target_positions": 64,
}
DEMO = Path(__file__).resolve().parents[2] / "models" / "demo_en_de"
TYPES = 24
PAD, EOS = 1, 2


def small_model(seed: int = 0, **options: Any) -> Transformer:
    """Build a small model with reproducible weights, in float64 and evaluation mode."""
    torch.manual_seed(seed)
    config = TransformerConfig(**{**SIZES, **options})
    return Transformer(config, TYPES, TYPES).double().eval()


def lively_model(seed: int, **options: Any) -> Transformer:
    """Build a model with random weights whose sentences end at different steps."""
    model = small_model(seed, untie_embeddings=True, **options)
    with torch.no_grad():
        model.decoder.output_projection.weight[EOS].mul_(4)
        model.decoder.embedding.tokens.weight.mul_(2)
    return model


def updates_to_learn(model: Transformer, most: int) -> int:
    """Train on one batch until its loss has fallen to a tenth; return the number of updates."""
    source, previous, target = batch()
    adam = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-9)
    model.train()
    first = None
    for update in range(most):
        adam.zero_grad()
        logits = model(source, previous)
        loss = cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
        first = first or loss.item()
        if loss < 0.1 * first:
            return update
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        adam.step()
    raise AssertionError(f"the loss is {loss.item() / first:.2f} of the first")


def batch(seed: int = 0, vocabulary: int = TYPES) -> tuple[Tensor, Tensor, Tensor]:
    """Return three sentences of unequal length as fairseq collates them.

    Returns:
        source [3, 6] padded on the left, previous target tokens [3, 7] and target [3, 7] padded
        on the right. Pad is 1, end of sentence 2.
    """
    generator = torch.Generator().manual_seed(seed)
    source, previous, target = (torch.full((3, n), PAD) for n in (6, 7, 7))
    for row, (source_length, target_length) in enumerate([(6, 5), (3, 7), (4, 2)]):
        words = torch.randint(
            4, vocabulary, (source_length + target_length - 2,), generator=generator
        )
        source[row, 6 - source_length :] = torch.cat(
            [words[: source_length - 1], torch.tensor([EOS])]
        )
        end = torch.cat([words[source_length - 1 :], torch.tensor([EOS])])
        target[row, :target_length] = end
        previous[row, :target_length] = end.roll(1)
    return source, previous, target


def sign(folder: Path) -> None:
    """Let the hashes be those of the files, as somebody would who changed them on purpose."""
    names = [line.partition("  ")[2] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    text = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    (folder / "SHA256SUMS").write_text(text)
