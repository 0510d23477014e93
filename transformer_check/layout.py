"""The card as text: problems first, then what is not run, what passed and what no check covers."""

import textwrap
from collections import Counter
from pathlib import Path

from .card import Card, Problem, Result, name_with_side
from .findings import DIFFERENCE, ERROR, NOT_RUN, PASSED, VARIANT
from .registry import NOT_COVERED
from .subject import SIGNATURES

WIDTH = 100
SECTIONS = {
    "file": "The functions of the file",
    "3.1": "Encoder and decoder stacks",
    "3.2.1": "Scaled dot-product attention",
    "3.2.2": "Multi-head attention",
    "3.2.3": "Applications of attention",
    "3.3": "Position-wise feed-forward networks",
    "3.4": "Embeddings and softmax",
    "3.5": "Positional encoding",
    "5.1": "Batching",
    "5.3": "Optimizer",
    "5.4": "Regularization and loss",
    "6.1": "Beam search",
    "Table 3": "Size",
}
LABEL = 17
"""columns for the labels of the paragraphs below the problems"""


def lines_of(card: Card, verbose: bool = False) -> list[str]:
    """Return the lines of the card."""
    errors = card.problems_of(ERROR)
    differences = card.problems_of(DIFFERENCE)
    lines = [*headline(card, errors, differences), ""]
    for letter, problems in (("E", errors), ("D", differences)):
        for number, problem in enumerate(problems, start=1):
            lines += lines_of_problem(card, problem, f"{letter}{number}", verbose)
    if errors or differences:
        lines.append("")
    lines += paragraphs(card)
    if verbose:
        lines += ["", *every_check(card)]
    elif card.problems or card.count(NOT_RUN):
        lines += [
            "",
            "--verbose lists every check; --explain ID shows the equation and correct code.",
        ]
    return lines


def headline(card: Card, errors: list[Problem], differences: list[Problem]) -> list[str]:
    """Return the counts, the time, and which problem to fix first."""
    counts = [
        count_noun(len(errors), "error"),
        count_noun(len(differences), "difference"),
        count_noun(len(card.problems_of(VARIANT)), "variant"),
    ]
    accepted = sum(card.accepts(problem) for problem in card.problems)
    if accepted:
        counts.append(f"{accepted} accepted")
    first = "E1" if errors else "D1" if differences else ""
    passed = f"{card.count(PASSED)} passed, {card.count(NOT_RUN)} not run"
    line = f"{Path(card.name).name}: {', '.join(counts)}; {passed} ({card.seconds:.1f} s)."
    return wrap(f"{line} Fix {first} first." if first else line, "", "")


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def lines_of_problem(card: Card, problem: Problem, label: str, verbose: bool) -> list[str]:
    """Return a problem's sentence, id and section, then what was found, expected, where, fix."""
    word = "ERROR: " if problem.status == ERROR else ""
    title = f"{word}{problem.sentence}  [{problem.check.id}, {problem.check.section}]"
    lines = wrap(title, f"{label:<4}", " " * 4)
    findings = dict.fromkeys((r.finding.found, r.finding.expected) for r in problem.results)
    for found, expected in findings:
        both = f"{found}; expected {expected}"
        if len(both) + 14 <= WIDTH:
            lines += detail("found", both)
        else:
            lines += [*detail("found", found), *detail("expected", expected)]
    where = []
    for result in problem.results:
        where += card.where(result)
    lines += detail("where", ", ".join(dict.fromkeys(where)))
    fixes = dict.fromkeys(result.finding.fix for result in problem.results)
    for fix in fixes:
        lines += detail("fix", fix)
    lines += detail("leads to", ", ".join(names_of(problem.consequences)))
    if verbose:
        for result in problem.consequences:
            lines += detail("", f"{name_with_side(result)}: {result.sentence}")
    return lines


def detail(label: str, text: str) -> list[str]:
    """Return one labelled detail of a problem, wrapped; no line without a text."""
    return wrap(text, f"    {label:<10}", " " * 14) if text else []


def names_of(results: list[Result]) -> list[str]:
    """Return the ids of results, each with its sides."""
    sides: dict[str, list[str]] = {}
    for result in results:
        sides.setdefault(result.check.id, []).append(result.check.side)
    return [
        f"{check_id} ({' and '.join(own)})" if own[0] else check_id
        for check_id, own in sides.items()
    ]


def paragraphs(card: Card) -> list[str]:
    """Return the paragraphs on variants, and on what was accepted, not run, passed, not covered."""
    lines = []
    variants = [shorten(problem) for problem in card.problems_of(VARIANT)]
    accepted = [shorten(problem) for problem in card.problems if card.accepts(problem)]
    lines += paragraph("Common variants", "; ".join(variants))
    lines += paragraph("Accepted", "; ".join(accepted))
    label = "Not run"
    reasons = Counter(r.finding.reason for r in card.results if r.finding.status == NOT_RUN)
    for reason, count in reasons.items():
        lines += paragraph(label, why_not_run(reason, count))
        label = ""
    passed = Counter(r.check.section for r in card.results if r.finding.status == PASSED)
    lines += paragraph("Passed", ", ".join(f"{section} {n}" for section, n in passed.items()))
    lines += paragraph("Never covered", ", ".join(NOT_COVERED))
    return lines


def shorten(problem: Problem) -> str:
    """Return a problem's sentence and id, for a paragraph."""
    return f"{problem.sentence.removesuffix('.')} [{problem.check.id}]"


def why_not_run(reason: str, count: int) -> str:
    """Return how many checks were not run for a reason, such as a function to define."""
    function = reason.removeprefix("define ")
    if function in SIGNATURES:
        verb = "needs" if count == 1 else "need"
        return f"{count_noun(count, 'check')} {verb} {SIGNATURES[function]}"
    return f"{count_noun(count, 'check')}: {reason}"


def paragraph(label: str, text: str) -> list[str]:
    """Return a labelled paragraph; no line without a text."""
    return wrap(text, f"{label:<{LABEL}}", " " * LABEL) if text else []


def wrap(text: str, first: str, following: str) -> list[str]:
    """Wrap a text to the card's width; names are never broken."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    )


def every_check(card: Card) -> list[str]:
    """Return one line for each check, by section; sides with the same result share a line."""
    lines = []
    sides: dict[tuple[str, str, str, str], list[str]] = {}
    for result in card.results:
        check, finding = result
        text = finding.reason if finding.status == NOT_RUN else result.sentence
        key = (check.section, finding.status, text.removesuffix("."), check.id)
        sides.setdefault(key, []).append(check.side)
    section = ""
    for (own_section, status, text, check_id), own in sides.items():
        if own_section != section:
            section = own_section
            lines.append(f"{section}  {SECTIONS.get(section, '')}".rstrip())
        where = f" ({' and '.join(own)})" if own[0] else ""
        lines += wrap(f"{text}{where}.  [{check_id}]", f"  {status:<12}", " " * 14)
    return lines
