"""The options of the paper's results at full size. ``--help`` needs nothing else, such as torch."""

from dataclasses import dataclass

from vaswani.common.options import argument, option
from vaswani.planning.hardware import Hardware

#: the name of Table 4, which is an experiment at a small size, too
TABLE_4 = "table4"


@dataclass(frozen=True, kw_only=True)
class Options(Hardware):
    """Options of ``vaswani reproduce NAME``: which result, and on what."""

    name: str = argument("NAME", "wmt14-en-de-base, … (see above)")
    overrides: list[str] = argument(
        "key=value",
        "section.key=value, as for 'vaswani train'; run=NAME sets another output folder",
        default=[],
    )
    row: str | None = option(metavar="ROW", help="a row of Table 3, such as A-h1")
    small: bool = option(
        False, "no longer supported: prints the command that trains small models instead"
    )
    dry_run: bool = option(False, "print the plan and the commands, and run nothing")
    fairseq: bool = option(
        False,
        "with --dry-run: print fairseq's own commands, as in scripts/wmt14, instead of the plan",
    )
