"""Trains the Transformer of "Attention Is All You Need": read it beside section 5 of the paper.

    python examples/train.py                        the demo's text: 3 minutes on one CPU core
    python examples/train.py data/multi30k_en_de    text that 'vaswani prepare' made

It needs torch, subword-nmt and sacrebleu. After each update the parameters are, to the last bit,
those of fairseq-train with this project's plugin, once the few lines in which fairseq differs from
the paper are replaced: tests/parity/test_train.py lists them.

Shape letters: B sentences, S source, T target, V vocabulary.
"""

import io
import lzma
import random
import re
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

import sacrebleu
import torch
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from torch import Tensor

from vaswani_transformer import Transformer, Vocabulary, base, beam_search, greedy_decode
from vaswani_transformer.loss import label_smoothed_loss
from vaswani_transformer.schedule import learning_rate
from vaswani_transformer.vocabulary import EOS, PAD

CONFIG = base(  # made small
    encoder_layers=2,
    encoder_embed_dim=128,
    encoder_ffn_embed_dim=512,
    encoder_attention_heads=4,
    decoder_layers=2,
    decoder_embed_dim=128,
    decoder_ffn_embed_dim=512,
    decoder_attention_heads=4,
)
SEED, UPDATES, WARMUP_STEPS, MAX_TOKENS, SMOOTHING = 1, 1800, 500, 1024, 0.1
CHECKPOINT_EVERY, AVERAGED = 100, 5
DEMO = Path(__file__).parent / "demo_text"
PARTS = ("train", "valid", "test")

Pair = tuple[list[int], list[int]]
"""The ids of a sentence's subwords and of its translation's; each ends with an end of sentence."""


# ---- 5.1 Training data and batching --------------------------------------------------------------


class Corpus(NamedTuple):
    """Text as ids; source and target share one vocabulary, and one matrix (3.4)."""

    vocabulary: Vocabulary
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def demo_text() -> Corpus:
    """The shipped text, split into subwords that are learned here."""
    text = {}
    names = [f"{part}.{language}" for part in PARTS for language in ("en", "de")]
    for name in names:
        with lzma.open(f"{DEMO / name}.xz", "rt", encoding="utf-8") as lines:
            text[name] = [re.sub(r"([.,?])(?= |$)", r" \1", line.rstrip()) for line in lines]
    codes = io.StringIO()
    learn_bpe([*text["train.en"], *text["train.de"]], codes, num_symbols=1000)
    bpe = BPE(io.StringIO(codes.getvalue()))
    split = {name: [bpe.process_line(line).split() for line in text[name]] for name in names}
    counts = Counter(s for name in ("train.en", "train.de") for line in split[name] for s in line)
    return as_ids(split, ["en", "de"], Vocabulary(subword for subword, _ in counts.most_common()))


def prepared_text(folder: Path) -> Corpus:
    """Text and the joint dictionary that 'vaswani prepare' left in a folder."""
    binary = next(folder.glob("data-bin/train.*-*.*.bin"))  # such as train.en-de.en.bin
    languages = binary.name.split(".")[1].split("-")
    split = {}
    for name in (f"{part}.{language}" for part in PARTS for language in languages):
        with open(folder / "bpe" / name, encoding="utf-8") as lines:
            split[name] = [line.split() for line in lines]
    ours, theirs = (Vocabulary.load(folder / f"data-bin/dict.{name}.txt") for name in languages)
    if ours.types != theirs.types:
        sys.exit(f"{folder} has two dictionaries, and this model has one matrix (3.4) for both")
    return as_ids(split, languages, ours)


def as_ids(
    split: dict[str, list[list[str]]], languages: Sequence[str], vocabulary: Vocabulary
) -> Corpus:
    """Subwords → ids."""
    ids = {name: [vocabulary.encode(line) for line in lines] for name, lines in split.items()}
    pairs = [
        list(zip(*(ids[f"{part}.{language}"] for language in languages), strict=True))
        for part in PARTS
    ]
    return Corpus(vocabulary, *pairs)


class Batch(NamedTuple):
    """Pairs as tensors of ids."""

    source: Tensor  # [B, S]
    shifted: Tensor  # [B, T], the target one place to the right: what the decoder has said so far
    target: Tensor  # [B, T], what it is to say next


def batches(pairs: Sequence[Pair], seed: int) -> Iterator[list[Pair]]:
    """All pairs once, in random order, each in a batch with others of its length."""
    numbers = random.Random(seed)
    order = numbers.sample(pairs, len(pairs))
    order.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
    found: list[list[Pair]] = [[]]
    for pair in order:
        if not fits([*found[-1], pair]):
            found.append([])
        found[-1].append(pair)
    numbers.shuffle(found)
    return iter(found)


def fits(batch: Sequence[Pair]) -> bool:
    """Whether neither side has more than MAX_TOKENS ids, padding included."""
    return len(batch) * max(len(side) for pair in batch for side in pair) <= MAX_TOKENS


def padded(rows: Sequence[list[int]]) -> Tensor:
    """Rows of different lengths as one tensor."""
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def collate(pairs: Sequence[Pair]) -> Batch:
    """One batch of these pairs."""
    sources, targets = zip(*pairs, strict=True)
    shifted = [[EOS, *target[:-1]] for target in targets]
    return Batch(padded(sources), padded(shifted), padded(targets))


# ---- 5.3 Optimizer, 5.4 Regularization -----------------------------------------------------------


def summed_loss(model: Transformer, batch: Batch) -> Tensor:
    """The label-smoothed loss of all the target's tokens together."""
    log_probs = torch.log_softmax(model(batch.source, batch.shifted), dim=-1)  # [B, T, V]
    return label_smoothed_loss(log_probs, batch.target, SMOOTHING, PAD)[0]


def train(
    model: Transformer, pairs: Sequence[Pair], updates: int = UPDATES
) -> Iterator[tuple[int, float]]:
    """Train; after each update, give its number, from 1, and the loss per token in nats."""
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    epochs = (batches(pairs, SEED + epoch) for epoch in count(1))
    for step, chosen in enumerate(islice(chain.from_iterable(epochs), updates), start=1):
        batch = collate(chosen)
        tokens = int(batch.target.ne(PAD).sum())
        adam.param_groups[0]["lr"] = learning_rate(step, CONFIG.encoder_embed_dim, WARMUP_STEPS)
        model.train()
        adam.zero_grad()
        loss = summed_loss(model, batch)
        (loss / tokens).backward()
        adam.step()
        yield step, loss.item() / tokens


# ---- 6.1 Averaged checkpoints, beam search -------------------------------------------------------


def average(checkpoints: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each parameter."""
    names = checkpoints[0]
    return {name: torch.stack([saved[name] for saved in checkpoints]).mean(0) for name in names}


def text(ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """Subwords joined into words, and punctuation joined to the word before it."""
    words = " ".join(vocabulary.decode(ids)).replace("@@ ", "")
    return re.sub(r" ([.,?])(?= |$)", r"\1", words)


def main() -> None:
    """Train, translate the test set, and score that."""
    corpus = prepared_text(Path(sys.argv[1])) if sys.argv[1:] else demo_text()
    vocabulary = corpus.vocabulary
    torch.manual_seed(SEED)
    model = Transformer(CONFIG, len(vocabulary), len(vocabulary))
    example = padded([corpus.valid[0][0]])
    checkpoints: deque[dict[str, Tensor]] = deque(maxlen=AVERAGED)
    for step, loss in train(model, corpus.train):
        if step % CHECKPOINT_EVERY == 0:
            (sample,) = greedy_decode(model.eval(), example, max_len=30)
            print(f"update {step:5,}  loss {loss:.3f}  {text(sample, vocabulary)}", flush=True)
            checkpoints.append({name: p.clone() for name, p in model.state_dict().items()})
    model.load_state_dict(average(checkpoints))
    translations = []
    for chosen in (corpus.test[n : n + 50] for n in range(0, len(corpus.test), 50)):
        found = beam_search(model.eval(), collate(chosen).source, beam=4, alpha=0.6)
        translations += [text(ids, vocabulary) for ids in found]
    references = [text(target, vocabulary) for _, target in corpus.test]
    print(sacrebleu.corpus_bleu(translations, [references]))


if __name__ == "__main__":
    main()
