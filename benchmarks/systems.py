"""The systems compared, as fairseq's flags: same sizes, same data, same seed."""

from typing import Any, TypeVar

from benchmarks.machine import precisions

SIZES = {
    "narrow": {"layers": 6, "embed_dim": 16, "ffn_embed_dim": 16, "attention_heads": 2},
    "trial": {"layers": 1, "embed_dim": 64, "ffn_embed_dim": 128, "attention_heads": 2},
    "tiny": {"layers": 4, "embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 4},
    "small": {"layers": 3, "embed_dim": 256, "ffn_embed_dim": 1024, "attention_heads": 4},
    "base": {"layers": 6, "embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8},
    "big": {"layers": 6, "embed_dim": 1024, "ffn_embed_dim": 4096, "attention_heads": 16},
}
"""``tiny`` (Multi30k's) and ``small`` are not in the paper; two CPU cores train them in minutes.
``trial`` is for a benchmark's own trial, ``narrow`` for host time."""


def size_flags(size: str) -> list[str]:
    """Return the flags for one of ``SIZES``, the same for both models."""
    flags = ["--dropout", "0.1", "--share-all-embeddings"]
    for side in ("encoder", "decoder"):
        for name, value in SIZES[size].items():
            flags += [f"--{side}-{name.replace('_', '-')}", str(value)]
    return flags


FAIRSEQ_FLAGS = ["--arch", "transformer", "--criterion", "label_smoothed_cross_entropy"]
FAIRSEQ_FLAGS += ["--label-smoothing", "0.1"]
FAIRSEQ_FLAGS += ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9"]
VASWANI_FLAGS = [
    "--arch",
    "vaswani_transformer",
    "--criterion",
    "vaswani_label_smoothed_cross_entropy",
]
VASWANI_FLAGS += ["--optimizer", "vaswani_adam", "--task", "vaswani_translation"]

TUNED = ", glibc tuned"
"""What the name of a system ends with that runs with :data:`KEEPS_MEMORY`."""
KEEPS_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:"
    "glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"
}
"""glibc keeps freed memory, in huge pages where Linux offers them: our task asks for the former by
itself (``vaswani_transformer/fast/malloc.py``), fairseq's trains faster with it too."""

TRAINED: dict[str, dict[str, Any]] = {
    "fairseq": {"flags": FAIRSEQ_FLAGS},
    "ours": {"flags": VASWANI_FLAGS},
    f"fairseq{TUNED}": {"flags": FAIRSEQ_FLAGS, "environment": KEEPS_MEMORY},
    f"ours{TUNED}": {"flags": VASWANI_FLAGS, "environment": KEEPS_MEMORY},
    "fairseq, our bf16 autocast": {
        "flags": FAIRSEQ_FLAGS,
        "autocast": True,
        "cudnn_attention": False,
    },
    "ours, bf16": {"flags": [*VASWANI_FLAGS, "--precision", "bf16"]},
    f"ours, bf16{TUNED}": {
        "flags": [*VASWANI_FLAGS, "--precision", "bf16"],
        "environment": KEEPS_MEMORY,
    },
}
"""Name of a system → how it is trained. The others are compared with fairseq's as it comes, and
with fairseq's tuned.

Newer versions of torch choose cuDNN for attention in half precision on some GPUs, and cuDNN makes a
plan for each new shape: fairseq's model, whose batches nearly all have different ones, then takes
four to nine times as long. ``cudnn_attention``: False is fairseq at its best.
"""

TRAINED_ON_GPU: dict[str, dict[str, Any]] = {
    "fairseq --fp16": {"flags": [*FAIRSEQ_FLAGS, "--fp16"], "cudnn_attention": False},
    "ours --fp16": {"flags": [*VASWANI_FLAGS, "--fp16"]},
}

REFERENCES = {"ratio": "fairseq", f"ratio to fairseq{TUNED}": f"fairseq{TUNED}"}
"""Columns of the records, and the system that each compares with."""

System = TypeVar("System")


def measurable_systems(systems: dict[str, System], device: str) -> dict[str, System]:
    """Return the systems that the device can measure.

    Left out are those in a precision for which it has no units and, on a GPU, those with glibc
    tuned.
    """
    usable = precisions(device)
    return {
        name: system
        for name, system in systems.items()
        if precision_of(name) in usable and (device == "cpu" or not name.endswith(TUNED))
    }


def precision_of(name: str) -> str:
    """Return the precision of a system's products, by its name."""
    return next((half for half in ("bf16", "fp16") if half in name), "fp32")
