"""Trains the Transformer of "Attention Is All You Need": read it beside section 5 of the paper.

    python examples/train.py                        the demo's text: 3 minutes on one CPU core
    python examples/train.py data/multi30k_en_de    text that 'vaswani prepare' made
    python examples/train.py --layers 6 --d-model 512 --d-ff 2048 --heads 8 --device cuda
    python examples/train.py --model mine.py:Mine   a variant (docs/extend.md)

It needs torch and sacrebleu, and train_text.py beside it, which reads the text. Losses are in bits
per token. The training loss is smoothed and has dropout; the validation nll has neither.

Shape letters: B sentences, S source, T target, V vocabulary.

(A test replaces eight parts of this file, in which fairseq differs from the paper, and gets the
parameters of fairseq-train bit for bit: tests/parity/test_train.py.)
"""

import argparse
import math
import random
import runpy
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

import sacrebleu
import torch
from torch import Tensor
from train_text import Pair, demo_text, joined, prepared_text

from vaswani_transformer import Transformer, base, beam_search, greedy_decode
from vaswani_transformer.loss import label_smoothed_loss
from vaswani_transformer.schedule import learning_rate
from vaswani_transformer.vocabulary import EOS, PAD

CONFIG = base(layers=2, d_model=128, d_ff=512, heads=4)  # small; the paper's are 6, 512, 2048, 8
SEED = 1
UPDATES = 1800
WARMUP_STEPS = 500
MAX_TOKENS = 1024  # of a batch, per side, padding included
SMOOTHING = 0.1  # ε_ls
CHECKPOINT_EVERY = 100
AVERAGED = 5


# ---- 5.1 Training data and batching --------------------------------------------------------------


class Batch(NamedTuple):
    """Pairs as tensors of ids."""

    source: Tensor  # [B, S]
    shifted: Tensor  # [B, T], the target one place to the right: the decoder's input
    target: Tensor  # [B, T], the tokens to predict


def batches(pairs: Sequence[Pair], seed: int) -> Iterator[list[Pair]]:
    """Return all pairs once, in random order, each in a batch with pairs of similar length."""
    numbers = random.Random(seed)
    order = numbers.sample(pairs, len(pairs))
    order.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
    groups: list[list[Pair]] = [[]]
    for pair in order:
        if not fits([*groups[-1], pair]):
            groups.append([])
        groups[-1].append(pair)
    numbers.shuffle(groups)
    return iter(groups)


def fits(batch: Sequence[Pair]) -> bool:
    """Return whether neither side has more than MAX_TOKENS ids, padding included."""
    return len(batch) * max(len(side) for pair in batch for side in pair) <= MAX_TOKENS


def padded(rows: Sequence[list[int]]) -> Tensor:
    """Return rows of different lengths as one tensor, padded on the right."""
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def collate(pairs: Sequence[Pair]) -> Batch:
    """Return one batch of sentence pairs."""
    sources, targets = zip(*pairs, strict=True)
    shifted = [[EOS, *target[:-1]] for target in targets]
    return Batch(padded(sources), padded(shifted), padded(targets))


# ---- 5.3 Optimizer, 5.4 Regularization -----------------------------------------------------------


def summed_losses(model: Transformer, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return two sums over target tokens: the smoothed loss, and -log p without smoothing."""
    device = next(model.parameters()).device
    source, shifted, target = (ids.to(device) for ids in batch)
    log_probs = torch.log_softmax(model(source, shifted), dim=-1)  # [B, T, V]
    return label_smoothed_loss(log_probs, target, SMOOTHING, PAD)


def train(
    model: Transformer,
    pairs: Sequence[Pair],
    updates: int = UPDATES,
    warmup_steps: int = WARMUP_STEPS,
) -> Iterator[tuple[int, float]]:
    """Train a model; yield each update's number and smoothed loss in bits per token."""
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    epochs = (batches(pairs, SEED + epoch) for epoch in count(1))
    for step, chosen in enumerate(islice(chain.from_iterable(epochs), updates), start=1):
        batch = collate(chosen)
        tokens = int(batch.target.ne(PAD).sum())
        adam.param_groups[0]["lr"] = learning_rate(step, model.d_model, warmup_steps)
        model.train()
        adam.zero_grad()
        loss, _ = summed_losses(model, batch)
        (loss / tokens).backward()
        adam.step()
        yield step, loss.item() / tokens / math.log(2)


@torch.no_grad()
def validate(model: Transformer, pairs: Sequence[Pair]) -> float:
    """Return -log p per token (nll) in bits, without smoothing and dropout."""
    model.eval()
    total, tokens = 0.0, 0
    for chosen in batches(pairs, SEED):
        batch = collate(chosen)
        total += summed_losses(model, batch)[1].item()
        tokens += int(batch.target.ne(PAD).sum())
    return total / tokens / math.log(2)


def least_smoothed_loss(classes: int) -> float:
    """Return the entropy of the smoothed target (5.4) in bits: a perfect model's smoothed loss."""
    other = SMOOTHING / (classes - 1)
    return -(1 - SMOOTHING) * math.log2(1 - SMOOTHING) - SMOOTHING * math.log2(other)


# ---- 6.1 Averaged checkpoints, beam search -------------------------------------------------------


def average(checkpoints: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each parameter."""
    names = checkpoints[0]
    return {name: torch.stack([saved[name] for saved in checkpoints]).mean(0) for name in names}


def translate(model: Transformer, pairs: Sequence[Pair]) -> list[list[int]]:
    """Return the ids of each sentence's translation."""
    model.eval()
    device = next(model.parameters()).device
    translations = []
    for start in range(0, len(pairs), 50):
        batch = collate(pairs[start : start + 50])
        translations += beam_search(model, batch.source.to(device), beam=4, alpha=0.6)
    return translations


# ---- All of it -----------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return the parser of options: the text, the model's sizes, and the training."""
    options = argparse.ArgumentParser(description="Train a Transformer, translate, and score.")
    options.add_argument("data", nargs="?", type=Path, help="made by 'vaswani prepare'; else: demo")
    options.add_argument("--model", metavar="FILE:CLASS", help="a subclass of Transformer")
    options.add_argument("--layers", type=int, default=CONFIG.encoder_layers, help="N")
    options.add_argument("--d-model", type=int, default=CONFIG.encoder_embed_dim)
    options.add_argument("--d-ff", type=int, default=CONFIG.encoder_ffn_embed_dim)
    options.add_argument("--heads", type=int, default=CONFIG.encoder_attention_heads, help="h")
    options.add_argument("--dropout", type=float, default=CONFIG.dropout, help="P_drop")
    options.add_argument("--updates", type=int, default=UPDATES)
    options.add_argument("--warmup-steps", type=int, default=WARMUP_STEPS)
    options.add_argument("--device", default="cpu", help="such as cuda")
    return options


def model_class(place: str | None) -> type[Transformer]:
    """Return the paper's model, or the class that FILE:CLASS names."""
    if place is None:
        return Transformer
    file, _, name = place.partition(":")
    definitions = runpy.run_path(file)
    if name not in definitions:
        sys.exit(f"{file} defines no {name or 'model'}: give --model FILE:CLASS")
    return definitions[name]


def main() -> None:
    """Train a model, translate the test set, and score the translations."""
    options = parser().parse_args()
    corpus = prepared_text(options.data) if options.data else demo_text()
    vocabulary = corpus.vocabulary
    config = base(
        layers=options.layers,
        d_model=options.d_model,
        d_ff=options.d_ff,
        heads=options.heads,
        dropout=options.dropout,
    )
    torch.manual_seed(SEED)
    model = model_class(options.model)(config, len(vocabulary), len(vocabulary))
    model.to(options.device)
    example = padded([corpus.valid[0][0]]).to(options.device)
    checkpoints: deque[dict[str, Tensor]] = deque(maxlen=AVERAGED)
    least = least_smoothed_loss(len(vocabulary))
    print(f"losses are in bits per token; no smoothed loss is below {least:.3f}", flush=True)
    for step, loss in train(model, corpus.train, options.updates, options.warmup_steps):
        if step % CHECKPOINT_EVERY == 0 or step == options.updates:
            valid = validate(model, corpus.valid)
            (sample,) = greedy_decode(model, example, max_len=30)
            print(
                f"update {step:5,}  smoothed loss {loss:.3f}  validation nll {valid:.3f}  "
                f"{joined(sample, vocabulary)}",
                flush=True,
            )
            checkpoints.append({name: p.clone() for name, p in model.state_dict().items()})
    model.load_state_dict(average(checkpoints))
    translations = [joined(ids, vocabulary) for ids in translate(model, corpus.test)]
    references = [joined(target, vocabulary) for _, target in corpus.test]
    print(sacrebleu.corpus_bleu(translations, [references]))


if __name__ == "__main__":
    main()
