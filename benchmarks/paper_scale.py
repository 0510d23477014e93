"""How much :mod:`benchmarks.paper_size` does on a GPU, and in a trial on a CPU."""

import sys
from typing import NamedTuple

from benchmarks.systems import FAIRSEQ_FLAGS, VASWANI_FLAGS

LENGTHS_OF_8 = ["--compile", "--required-seq-len-multiple", "8"]


class Scale(NamedTuple):
    """How much is done on a device. Times are in seconds."""

    size: str
    max_tokens: int
    warmup: int
    speed_systems: dict[str, list[str]]
    """Name → flags; fairseq's first."""
    trained_systems: dict[str, list[str]]
    rounds: int
    updates: int
    """Timed updates of each system in a round."""
    compiling_updates: int
    products: int
    """Timed matrix products, the best of which is the peak."""
    interval: int
    """Updates between two recorded losses, and between two kept models."""
    compiling_seconds: int
    """To start all systems and to compile one."""
    measuring_seconds: int
    training_seconds: int
    averaging_seconds: int
    """The part of ``training_seconds`` for averages and their losses."""
    scoring_seconds: int
    decoding_seconds: int
    scored_sentences: int
    """Sentences of the validation set that are translated for BLEU."""
    timed_sentences: int
    sentences_at_a_time: int
    pairs: int
    merges: int


ON_GPU = Scale(
    size="base",
    max_tokens=25000,
    warmup=2000,
    speed_systems={
        "fairseq --fp16": [*FAIRSEQ_FLAGS, "--fp16"],
        "ours, bf16": [*VASWANI_FLAGS, "--precision", "bf16"],
        "ours --fp16": [*VASWANI_FLAGS, "--fp16"],
        "ours, bf16, --compile, lengths of 8": [
            *VASWANI_FLAGS,
            "--precision",
            "bf16",
            *LENGTHS_OF_8,
        ],
    },
    trained_systems={
        "fairseq --fp16": [*FAIRSEQ_FLAGS, "--fp16"],
        "ours, bf16": [*VASWANI_FLAGS, "--precision", "bf16"],
    },
    rounds=3,
    updates=8,
    compiling_updates=16,
    products=20,
    interval=100,
    compiling_seconds=120,
    measuring_seconds=60,
    training_seconds=470,
    averaging_seconds=30,
    scoring_seconds=50,
    decoding_seconds=60,
    scored_sentences=sys.maxsize,
    timed_sentences=500,
    sentences_at_a_time=128,
    pairs=240000,
    merges=32000,
)
ON_CPU = ON_GPU._replace(
    size="trial",
    max_tokens=512,
    speed_systems={
        "fairseq": FAIRSEQ_FLAGS,
        "ours": VASWANI_FLAGS,
        "ours, --compile, lengths of 8": [*VASWANI_FLAGS, *LENGTHS_OF_8],
    },
    trained_systems={"fairseq": FAIRSEQ_FLAGS, "ours": VASWANI_FLAGS},
    rounds=2,
    updates=2,
    compiling_updates=2,
    products=1,
    interval=5,
    compiling_seconds=500,
    measuring_seconds=200,
    training_seconds=400,
    averaging_seconds=250,
    scoring_seconds=200,
    decoding_seconds=200,
    scored_sentences=12,
    timed_sentences=8,
    sentences_at_a_time=4,
    pairs=3000,
    merges=1000,
)
