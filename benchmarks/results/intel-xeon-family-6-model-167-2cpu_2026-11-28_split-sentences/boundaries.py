"""How many sentence ends are found: python boundaries.py LANG FILE, one sentence on a line.

Three consecutive lines that end like sentences are joined. Some lines hold two sentences, whose
boundary counts as a wrong one here.
"""

import re
import sys
from pathlib import Path

from sentencex import segment

from vaswani.decoding.sentences import SentenceSplitter

lang, file = sys.argv[1:]
lines = [line.strip() for line in Path(file).read_text(encoding="utf-8").split("\n")]
lines = [line for line in lines if re.search(r"[.!?][\"”»“]?$", line)]
groups = [lines[first : first + 3] for first in range(0, min(len(lines), 3000) - 3, 3)]


def ends(sentences: list[str]) -> set[int]:
    """After how many characters, spaces not counted, each sentence but the last ends."""
    lengths = [len("".join(sentence.split())) for sentence in sentences]
    return {sum(lengths[:count]) for count in range(1, len(lengths))}


def sentencex(line: str) -> list[str]:
    """What sentencex alone does."""
    return list(segment(lang, line))


for name, split in (("sentencex", sentencex), ("and Moses", SentenceSplitter(lang))):
    right = wrong = missed = 0
    for group in groups:
        expected, found = ends(group), ends(split(" ".join(group)))
        right += len(expected & found)
        wrong += len(found - expected)
        missed += len(expected - found)
    precision, recall = right / (right + wrong), right / (right + missed)
    print(f"{lang} {name:<12} precision {precision:.4f}  recall {recall:.4f}  wrong {wrong:3}")
