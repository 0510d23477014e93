"""Joins pairs of two files to lines of several sentences: python join.py PREFIX OUT."""

import random
import sys
from pathlib import Path

LINES = 300
prefix, out = sys.argv[1], Path(sys.argv[2])
sides = [Path(f"{prefix}.{lang}").read_text(encoding="utf-8").split("\n") for lang in ("en", "de")]
pairs = [pair for pair in zip(*sides, strict=True) if all(pair)]
random.Random(1).shuffle(pairs)
out.mkdir(exist_ok=True)
for count in (2, 3, 4):
    groups = [pairs[first : first + count] for first in range(0, count * LINES, count)]
    for side, lang in enumerate(("en", "de")):
        lines = [" ".join(pair[side] for pair in group) + "\n" for group in groups]
        (out / f"joined{count}.{lang}").write_text("".join(lines), encoding="utf-8")
