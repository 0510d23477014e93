"""The baseline: S over the sentence, and inside it NP, the most frequent label, from each word on.

python right_branching.py TREES > right_branching.ptb
"""

import sys
from pathlib import Path

from vaswani.data.trees import Constituent, penn_brackets, read_trees

for tree in read_trees(Path(sys.argv[1])):
    words = len(tree.words)
    rest = [Constituent("NP", start, words) for start in range(1, words)]
    print(penn_brackets(tree._replace(constituents=[Constituent("S", 0, words), *rest])))
