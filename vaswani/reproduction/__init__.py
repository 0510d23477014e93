"""The paper's results: each file has its ``Options`` and ``run``, as a verb's file has."""

#: result → its file; the others are in ``full_size.py``
FILES = {"table1": "table1"}
#: what was a result at a small size → its experiment, in a checkout
EXPERIMENTS = {
    "table2": "table2/captions",
    "table2-demo": "table2/demo",
    "table2-tatoeba": "table2/everyday",
    "table3": "table3",
    "table4": "table4",
    "equal-updates": "equal_updates",
}
