"""Compares every line that EVALB prints with ours: GOLD PARSED PRINTED."""

import sys
from pathlib import Path

from tests.unit.test_evalb import line
from vaswani.data.trees import read_trees
from vaswani.scoring.evalb import compare_all

gold, parsed, printed = map(Path, sys.argv[1:])
theirs = [row.split() for row in printed.read_text().splitlines()]
theirs = [row for row in theirs if len(row) == 12 and row[0].isdigit()]
found = compare_all(read_trees(gold), read_trees(parsed))
ours = [line(number, one) for number, one in enumerate(found, 1)]
print(len(theirs), "lines,", sum(a != b for a, b in zip(theirs, ours, strict=True)), "differ")
