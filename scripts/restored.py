"""Measures how much of a text comes back from Moses' tokens, by each version of the rules.

    python scripts/restored.py fa=FILE hi=FILE …
    python scripts/restored.py --from 1001 cs=FILE         without its first 1,000 lines

For each file it prints the lines, how many of a hundred come back as they were, and the BLEU of all
(sacreBLEU's), by each version: what a perfect system would get. Blank lines are left out, spaces in
a row are one, and text is in Unicode's form NFC.
"""

import argparse
from itertools import islice
from pathlib import Path

from vaswani.data.round_trip import bleu, unchanged_share
from vaswani.data.text import read_lines
from vaswani.data.tokenisation import TargetText, cleaner, tokeniser
from vaswani.folders.recipe import TextRecipe
from vaswani_transformer.io import moses


def round_trips(lang: str, path: Path, first: int) -> list[tuple[int, float, float]]:
    """Return a text's round trip by version: number of lines, share that comes back, BLEU.

    Args:
        lang: the language's code
        path: its file
        first: the number of the first line, from 1
    """
    rows = []
    for version in moses.JOINERS:
        recipe = TextRecipe(lang, lang, unicode="NFC", text_rules=version)
        clean = cleaner(recipe, lang)
        split = tokeniser(recipe, lang)
        restore = TargetText(recipe, None).text
        lines = [
            " ".join(clean(line).split()) for line in islice(read_lines(path), first - 1, None)
        ]
        lines = [line for line in lines if line]
        restored = [restore(split(line)) for line in lines]
        rows.append((len(lines), unchanged_share(lines, restored), bleu(restored, lines)))
    return rows


def main() -> None:
    """Print a table with a line for each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", metavar="LANG=FILE", nargs="+")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N")
    args = parser.parse_args()
    versions = "".join(f"{f'version {version}':>18}" for version in moses.JOINERS)
    print(f"{'':<42}{'lines':>6}{versions}    (lines that come back, of 100; BLEU)")
    for text in args.texts:
        lang, _, path = text.partition("=")
        rows = round_trips(lang, Path(path), args.first)
        figures = "".join(f"{share:>10.2f}{score:>8.2f}" for _, share, score in rows)
        print(f"{lang:<5}{Path(path).name:<37}{rows[0][0]:>6,}{figures}", flush=True)


if __name__ == "__main__":
    main()
