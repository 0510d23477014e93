"""Checks any PyTorch Transformer against the paper, section by section.

    vaswani check --template > mine.py        a file to fill in: two functions, and optional ones
    vaswani check mine.py                     the report: errors and differences first
    vaswani check mine.py --verbose           every check
    vaswani check mine.py --json              the report as JSON, for programs
    vaswani check mine.py --select 3.2,adam   checks of these sections or with these ids
    vaswani check mine.py --strict            exit code 1 if a difference is not accepted
    vaswani check --explain sinusoids         the equation, correct code, this project's code

The exit code is 1 if a check finds an error, such as a decoder that sees later tokens, a mask
without effect, or a function that fails. With --strict the exit code is also 1 if there is a
difference whose id is not in the list ACCEPT of the file.
See docs/check.md.
"""

import contextlib
import sys
from dataclasses import dataclass

from vaswani.common.errors import UserError
from vaswani.common.options import argument, option


@dataclass(frozen=True, kw_only=True)
class Options:
    """A file, and how to print its card."""

    file: str | None = argument(
        "FILE.py", "Python file that defines build() and logits()", default=None
    )
    select: str | None = option(
        None, metavar="IDS", help="run only checks with these ids or sections, such as 3.2,adam"
    )
    verbose: bool = option(False, help="show every check, including those that passed")
    strict: bool = option(
        False, help="exit with code 1 if any difference is not in the file's list ACCEPT"
    )
    json: bool = option(False, help="print the report as JSON")
    explain: str | None = option(
        None,
        metavar="ID",
        help="explain one check: the equation, correct code and this project's code",
    )
    template: bool = option(False, help="print a template for FILE.py")


def run(options: Options) -> int:
    """Print the template, or the report card of a file."""
    from transformer_check import check, template_text
    from transformer_check.explain import explain

    if options.template:
        sys.stdout.write(template_text())
        return 0
    if options.explain:
        print(explain(options.explain))
        return 0
    if not options.file:
        raise UserError("give a FILE.py to check, or --template to print a template")
    chosen = options.select.split(",") if options.select else []
    with contextlib.redirect_stdout(sys.stderr):  # what the file prints is not part of the card
        card = check(options.file, chosen=chosen)
    print(card.json() if options.json else card.text(options.verbose))
    if options.strict and card.differs:
        return 1
    return 1 if card.has_errors else 0
