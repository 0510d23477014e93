"""Print how many planted faults the report card finds and names: python -m tests.plain.check_styles.score"""

import argparse
import sys
import time
from collections import Counter

from .faults import KINDS
from .planting import STYLES, card_of, score


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--style", choices=STYLES, action="append")
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    parser.add_argument("--name", default="", help="part of a fault's name")
    parser.add_argument("--problems", type=int, default=3, help="how many of a card to print")
    parser.add_argument("--quiet", action="store_true", help="print totals alone")
    args = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    for style in args.style or STYLES:
        clean = {}
        for searches in (False, True):
            clean[searches] = card_of(style, None, searches)
        counts[style] = Counter()
        for kind in args.kind or KINDS:
            for fault in KINDS[kind]:
                if style not in fault.styles() or args.name not in fault.name:
                    continue
                start = time.monotonic()
                result = score(style, fault, clean[fault.searches])
                seconds = time.monotonic() - start
                verdict = "named" if result.is_named else "found" if result.is_found else "missed"
                counts[style][verdict] += 1
                counts[style]["all"] += 1
                if not args.quiet and verdict != "named":
                    print(
                        f"{verdict:<7}{style}: {kind}: {fault.name} [{fault.id}; {fault.says}] ({seconds:.1f} s)"
                    )
                    for text in result.problems[: args.problems]:
                        print(f"         {text}")
                    sys.stdout.flush()
    for style, count in counts.items():
        print(
            f"{style}: {count['all']} faults, found {count['named'] + count['found']}, "
            f"named {count['named']}, missed {count['missed']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
