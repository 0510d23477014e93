"""Scores translations by chrF and by the kinds of BLEU that papers report.

Published scores of the same test set are printed, too. Parse trees get labelled recall, precision
and F1 instead.

    vaswani score RUN                                  the translations in RUN/eval
    vaswani score --hypotheses FILE --references FILE --pair en-de
    vaswani score --hypotheses FILE --test-set wmt14/full --pair en-de
    vaswani score RUN --compare OTHER                  significance test against a run or a file

In a paper, report sacreBLEU's score and its signature. The other scores are for comparison with
older papers (docs/scoring.md). All scores are written to a JSON file beside the translations.
"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.options import argument, option
from vaswani.folders.run import Run


@dataclass(frozen=True, kw_only=True)
class Options:
    """A run or files to score."""

    run: str | None = argument("RUN", "a run: its folder, or its name under runs/", default=None)
    subset: str = option("test", "subset whose translations are scored (default: test)")
    hypotheses: str | None = option(metavar="FILE", help="translations, one per line")
    references: list[str] | None = option(
        metavar="FILE",
        help="references, one per line; repeat the option for several references per sentence",
    )
    pair: str | None = option(metavar="SRC-TGT", help="source and target language, such as en-de")
    test_set: str | None = option(
        metavar="NAME",
        help="sacreBLEU's name of the test set, such as wmt14/full; its references are used "
        "unless --references is given",
    )
    tokenised: bool = option(False, "the files are already tokenised")
    compare: str | None = option(
        metavar="OTHER",
        help="hypothesis file or run to compare with, by a paired significance test",
    )
    json: str | None = option(
        metavar="FILE", help="JSON file for the scores (default: beside the translations)"
    )


def run(options: Options) -> int:
    """Print the scores and save them beside the translations.

    Raises:
        UserError: neither a run nor files are given, or both, or they cannot be scored.
    """
    from vaswani.scoring import report
    from vaswani.scoring.score_input import input_of_run

    of_files = ("hypotheses", "references", "pair", "test_set", "tokenised")
    names_files = any(getattr(options, key) for key in of_files)
    if options.run and not names_files:
        system = input_of_run(options.run, options.subset)
    elif options.run or not options.hypotheses or not (options.references or options.test_set):
        raise UserError(
            "give a run alone, or give --hypotheses, --pair, and one of --references and --test-set"
        )
    else:
        system = report.input_with_references(
            options.hypotheses,
            options.references or [],
            options.pair,
            options.test_set,
            options.tokenised,
        )
    path = Path(options.json) if options.json else system.out
    if system.trees:
        report.report_parses(system, path)
        return 0
    other = None
    if options.compare:
        other = report.other_input(options.compare, system, options.subset if options.run else None)
    report.report_scores(system, path, other, options.compare)
    if options.run:
        scored = Run.find(options.run)
        if report.is_packable(scored):
            print(f"next: vaswani pack {shlex.quote(str(scored))}", file=sys.stderr)
    return 0
