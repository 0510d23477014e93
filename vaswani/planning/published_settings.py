"""Which training settings suit how many sentence pairs: the table behind ``vaswani new``.

Each entry is published; between two, the nearer one applies (in the logarithm of the number of
pairs). What its source does not state is our choice, and is marked as such.

1. Sennrich and Zhang (2019), "Revisiting Low-Resource Neural Machine Translation": with 5,000 pairs
   smaller batches (4,000 to 1,000 tokens), fewer BPE types (14,000 to 2,000) and high dropout help.
2. Multi30k (29,000 pairs), as in ``configs/multi30k_en_de.yaml``: the tiny sizes, 130 epochs at
   most, patience 10, the average of 10 checkpoints. Its batches of 8,192 padded tokens, its warm-up
   of 2,000 updates and its peak of 0.005 are halved here, and tiny's dropout of 0.3 is 0.2, so that
   the first hour already shows results: our choice.
3. IWSLT 2014 German-English (160,000 pairs), fairseq's example: d_model 512, dropout 0.3, weight
   decay 1e-4, batches of 4,096 tokens, warm-up 4,000, peak 5e-4 (here the paper's formula: 7e-4).
4. The paper (5.1 to 6.1) on WMT 2014 English-German (4.5 million pairs): 25,000 tokens, warm-up
   4,000, dropout 0.1 (big: 0.3), 100,000 updates (300,000), the average of 5 checkpoints (20).
5. The paper on English-French (36 million pairs): the same, but with dropout 0.1 for big (6.1).

The tiny model is not in 3 to 5; giving it less dropout (0.1, 0) if there is more text than it can
memorise is our choice, and so are the numbers of epochs in 1 and 3. A value that is not of its
entry's source has its own reason there, which ``vaswani new`` writes above it, with our record
where one bears on it:

- Dropout, 157,000 pairs (``benchmarks/results/nvidia-h100_2026-11-27_tatoeba.md``): of 0.1, 0.2
  and 0.3 the least was the best, with d_model 256 and BPE-dropout, after 12 epochs (one seed each).
- Rate, the same text (``experiments/table2/everyday``): in 500 updates of d_model 128 a peak of
  0.004 was better than 0.002 and 0.008. Tiny's is 0.0028: so short a training can mislead, and
  no longer one has compared the two.
- Label smoothing stays the paper's 0.1: that none is better is not shown
  (``experiments/since2017``).
- BPE-dropout is no part of this: it costs BLEU in short trainings (``experiments/since2017``).
"""

from dataclasses import dataclass, field
from typing import TypeVar

Number = TypeVar("Number", int, float)
PRESETS = ("tiny", "base", "big")
#: for base and big the paper's (5.2), for tiny our choice
MOST_UPDATES: dict[str, int] = {"tiny": 100_000, "base": 100_000, "big": 300_000}
#: training lasts at least this many warm-ups, however small the text: our choice
LEAST_WARMUPS = 3


@dataclass(frozen=True)
class Settings:
    """What suits up to ``pairs`` training pairs; a triple has a value for each of ``PRESETS``."""

    pairs: float
    #: with a GPU; tiny without one
    preset: str
    dropout: tuple[float, float, float]
    #: target tokens that an update sees
    batch_tokens: int
    warmup: tuple[int, int, int]
    #: epochs at most; 0: as many updates as in the paper
    epochs: int
    #: validations without improvement that end training; 0: never
    patience: int
    #: checkpoints that are kept, from which the average is chosen
    average: tuple[int, int, int]
    weight_decay: float
    #: where they come from, in a few words
    source: str
    #: why a value is not the source's: "dropout" for all presets, "tiny dropout" for one
    reasons: dict[str, str] = field(default_factory=dict)

    def updates(self, preset: str, an_epoch: int) -> int:
        """Return after how many updates training ends, unless its patience ends it earlier."""
        most = MOST_UPDATES[preset]
        if not self.epochs:
            return most
        least = LEAST_WARMUPS * value_for(preset, self.warmup)
        return max(least, min(most, self.epochs * an_epoch))

    def reason(self, preset: str, name: str) -> str:
        """Return why a preset's value is what it is: the source, or a reason of its own."""
        general = self.reasons.get(name, self.source)
        return self.reasons.get(f"{preset} {name}", general)


def value_for(preset: str, values: tuple[Number, Number, Number]) -> Number:
    """Return a preset's value from a triple."""
    return values[PRESETS.index(preset)]


SMALL_TEXT = "Sennrich and Zhang (2019), 5,000 pairs"
MULTI30K = "Multi30k (29,000 pairs), batch and warm-up halved"
IWSLT = "fairseq's example for IWSLT 2014, 160,000 pairs"
ENGLISH_GERMAN = "the paper, 4.5 million pairs"
ENGLISH_FRENCH = "the paper, 36 million pairs"

OUR_CHOICE = "our choice"
PAPERS_WARMUP = "the paper's 4,000"
#: of records that bear on our choices; a test sees that the files are there
TATOEBA = "benchmarks/results/nvidia-h100_2026-11-27_tatoeba.md"
EVERYDAY = "experiments/table2/everyday"
SINCE_2017 = "experiments/since2017"
BPE_DROPOUT = f"the text has BPE-dropout, which costs BLEU in a short training ({SINCE_2017})"
TINY_DROPOUT = (
    "our choice; of 0.1, 0.2 and 0.3 the best in a larger model, with BPE-dropout, after 12 epochs "
    f"of 157,000 pairs, one seed each ({TATOEBA})"
)
TINY_WARMUP = (
    "our choice; 0.004 was the best of three peaks in 500 updates of a model as wide, on 157,000 "
    f"pairs ({EVERYDAY})"
)

TABLE = (
    Settings(
        pairs=12_000,
        preset="tiny",
        dropout=(0.3, 0.3, 0.3),
        batch_tokens=2_000,
        warmup=(1000, 4000, 4000),
        epochs=130,
        patience=10,
        average=(10, 10, 10),
        weight_decay=1e-4,
        source=SMALL_TEXT,
        reasons={
            "warmup": PAPERS_WARMUP,
            "tiny warmup": OUR_CHOICE,
            "epochs": OUR_CHOICE,
            "weight_decay": IWSLT,
        },
    ),
    Settings(
        pairs=70_000,
        preset="tiny",
        dropout=(0.2, 0.3, 0.3),
        batch_tokens=4_000,
        warmup=(1000, 4000, 4000),
        epochs=130,
        patience=10,
        average=(10, 10, 10),
        weight_decay=0.0,
        source=MULTI30K,
        reasons={
            "tiny dropout": "our choice; Multi30k's 0.3 shows results later",
            "warmup": PAPERS_WARMUP,
            "tiny warmup": MULTI30K,
        },
    ),
    Settings(
        pairs=850_000,
        preset="base",
        dropout=(0.1, 0.3, 0.3),
        batch_tokens=4_000,
        warmup=(1000, 4000, 4000),
        epochs=60,
        patience=10,
        average=(10, 10, 10),
        weight_decay=1e-4,
        source=IWSLT,
        reasons={
            "tiny dropout": TINY_DROPOUT,
            "tiny warmup": TINY_WARMUP,
            "epochs": OUR_CHOICE,
        },
    ),
    Settings(
        pairs=12_000_000,
        preset="base",
        dropout=(0.1, 0.1, 0.3),
        batch_tokens=25_000,
        warmup=(4000, 4000, 4000),
        epochs=0,
        patience=0,
        average=(5, 5, 20),
        weight_decay=0.0,
        source=ENGLISH_GERMAN,
    ),
    Settings(
        pairs=float("inf"),
        preset="base",
        dropout=(0.0, 0.1, 0.1),
        batch_tokens=25_000,
        warmup=(4000, 4000, 4000),
        epochs=0,
        patience=0,
        average=(5, 5, 20),
        weight_decay=0.0,
        source=ENGLISH_FRENCH,
        reasons={"tiny dropout": OUR_CHOICE},
    ),
)


def settings_for(pairs: float) -> Settings:
    """Return the row of the table for this many training pairs."""
    return next(settings for settings in TABLE if pairs <= settings.pairs)
