"""Runs the code in the README.md of an export on the lines of standard input.

python -I card.py FOLDER < source > translations
"""

import sys
from pathlib import Path

card = Path(sys.argv[1], "README.md").read_text(encoding="utf-8")
code, call = card.split("```python\n")[1].split("```")[0].rsplit("print(", 1)
defined: dict = {}
exec(code, defined)
translate = defined["translate"]
lines = sys.stdin.read().splitlines()
if call.startswith("translate(["):  # of pieces: many lines at a time
    for first in range(0, len(lines), 50):
        print("\n".join(translate(lines[first : first + 50])))
else:
    for line in lines:
        print(translate(line))
