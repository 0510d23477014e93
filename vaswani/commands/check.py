"""Checks whether a Transformer in torch is the paper's, section by section.

    vaswani check --template > mine.py   a file to fill in: two functions, and more if you like
    vaswani check mine.py                the card
    vaswani check mine.py --json         the same for machines

Each check says: as in the paper; differs, with what was expected, what was seen, and what that
means; or not checked, with what to define so that it is. The last line says what was not looked at.
Exit code 1 is for errors alone: a leak, a mask that does nothing, a function that fails. See
docs/check.md.
"""

import contextlib
import sys
from dataclasses import dataclass

from vaswani.common.errors import UserError
from vaswani.common.options import argument, option


@dataclass(frozen=True, kw_only=True)
class Options:
    """A file, and how to print its card."""

    file: str | None = argument("FILE.py", "defines build and logits", default=None)
    json: bool = option(False, help="print the card as JSON")
    template: bool = option(False, help="print a file to begin with")


def run(options: Options) -> int:
    """Print the template, or a file's card."""
    from transformer_check import check, template_text
    from transformer_check.card import ERROR

    if options.template:
        sys.stdout.write(template_text())
        return 0
    if not options.file:
        raise UserError("give a FILE.py to check, or --template to print one to begin with")
    with contextlib.redirect_stdout(sys.stderr):  # what the file prints is not part of the card
        card = check(options.file)
    print(card.json() if options.json else card.text())
    return 1 if card.count(ERROR) else 0
