"""Print how many planted faults the report card finds and names: python -m tests.plain.check_styles.score"""

import argparse
import re
import sys
import time
from collections import Counter
from functools import lru_cache

from transformer_check import Card

from .faults import KINDS
from .faults.fault import Fault
from .planting import STYLES, Score, card_of, score


@lru_cache(maxsize=None)
def clean_card(style: str, searches: bool) -> Card:
    """Return the card of a style without a fault."""
    return card_of(style, None, searches)


def chosen_faults(args: argparse.Namespace) -> list[tuple[str, str, Fault]]:
    """Return (style, kind, fault) of what is to be planted, by kind."""
    chosen = []
    for kind in args.kind or KINDS:
        for number, fault in enumerate(KINDS[kind]):
            styles = [style for style in fault.styles() if style in (args.style or STYLES)]
            if args.turns:
                styles = styles[number % len(styles) :][:1] if styles else []
            if re.search(args.name, fault.name):
                chosen += [(style, kind, fault) for style in styles]
    return chosen


def verdict_of(result: Score) -> str:
    """Return how well the card describes a fault."""
    if result.is_named:
        return "named"
    return "found" if result.is_found else "missed"


def total(name: str, count: Counter[str]) -> str:
    """Return the line for a kind or a style."""
    found = count["named"] + count["found"]
    return (
        f"{name}: {count.total()} faults, found {found}, named {count['named']}, "
        f"missed {count['missed']}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--style", choices=STYLES, action="append")
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    parser.add_argument("--name", default="", help="a pattern in a fault's name")
    parser.add_argument(
        "--turns", action="store_true", help="plant each fault in one style, in turns"
    )
    parser.add_argument("--problems", type=int, default=3, help="how many of a card to print")
    parser.add_argument("--quiet", action="store_true", help="print totals alone")
    args = parser.parse_args()
    by_style: dict[str, Counter[str]] = {}
    by_kind: dict[str, Counter[str]] = {}
    for style, kind, fault in chosen_faults(args):
        start = time.process_time()
        result = score(style, fault, clean_card(style, fault.searches))
        seconds = time.process_time() - start
        verdict = verdict_of(result)
        by_style.setdefault(style, Counter())[verdict] += 1
        by_kind.setdefault(kind, Counter())[verdict] += 1
        if args.quiet:
            continue
        said = f" [{fault.id}; {fault.says}]" if verdict != "named" else ""
        print(f"{verdict:<7}{style}: {kind}: {fault.name}{said} ({seconds:.1f} s)", flush=True)
        if verdict != "named":
            for text in result.problems[: args.problems]:
                print(f"         {text}", flush=True)
    for counts in (by_kind, by_style):
        for name, count in counts.items():
            print(total(name, count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
