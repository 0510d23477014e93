"""Rules, version 1, that join tokens where Moses' detokeniser would leave wrong spaces.

For French, Italian, English and German, and for all languages. Packed models that store no version
number use these rules: a change would change their output.
"""

import re
from collections.abc import Callable, Iterable, Sequence

TextFunction = Callable[[str], str]

#: a space that the detokeniser does not see; prepared text has no such character
KEPT_SPACE = "\0"
#: where a token begins and ends in a line of tokens
START, END = r"(?<!\S)", r"(?!\S)"
LETTER = r"[^\W\d_]"

# ---- patterns: every space in a match is removed -----------------------------------------------

NUMBER = r"\d[\d.,]*"
ROMAN = "[ivxl]+"
#: (2), (2.1), (b), (c.1), (iv)
BRACKET = rf"\( (?:\d{{1,3}}(?:\.\d+)*|[A-Za-z](?:\.\d+)?|{ROMAN}) \)"
#: b), iv): so French law writes
LETTERED = rf"(?:[a-z](?:\.\d+)?|{ROMAN}) \)"
#: text between two punctuation marks of an address
PART = r"[\w.,%+-]*\w"
#: how an address goes on: /page, :8080, /~me, _page, #place, ?key=value, &key=value
FURTHER = rf"(?: (?:/ ~|[/~_#]) {PART}| : \d+| (?:\?|&amp;|&) {PART}(?: _ {PART})* = {PART})"
WORDS = (
    # http://www.example.org/page; the last / of http://example.org/ only before a mark or the end
    rf"(?:https?|ftp) : / / {PART}{FURTHER}*(?: /(?= [^\s\w]|$))?",
    # me@example.org
    rf"{PART} @ {PART}\.\w+",
    # snake_case
    r"\w+(?: _ \w+)+",
    # and/or, 1/2, km/h, example.org/page
    rf"{PART}(?: / {PART})+",
    # 7:45, 7:45:30, 7:45h
    r"\d\d?(?: : \d\d)+h?",
    # 1990–1995
    r"\d+ – \d+",
    # 40°, 52°39′10″, 10′, n°
    rf"{NUMBER} °(?: {NUMBER} ′(?: {NUMBER} ″)?)?",
    rf"{NUMBER} [′″]",
    "[Nn] °",
    # 5(1), 5(1)(h), 5(1)h), C.01.001(2); no year, no dialling code
    rf"(?<!\+ )(?!(?:19|20)\d\d )(?:[A-Z]+\.)?\d[\d.]*(?: {BRACKET})+(?: {LETTERED})?",
    # (5)(b), (5)b), b)(v), 14c)(i)
    rf"{BRACKET}(?: {BRACKET})+(?: {LETTERED})?",
    rf"{BRACKET} {LETTERED}",
    rf"\d*{LETTERED}(?: {BRACKET})+",
    # N·m
    rf"{LETTER}+ [·∙] {LETTER}+",
)
#: English writes 20°C, other languages 20 °C
CELSIUS = "° [CFK]"

APOSTROPHE = "[’ʼ]"
#: also the straight apostrophe, escaped or not
ANY_APOSTROPHE = "(?:[’ʼ]|&apos;|')"
FRENCH_ELISION = rf"{START}(?:\S*-)?(?i:[cçdjlmnst]|\w*qu|aujourd)"
ITALIAN_ELISION = rf"{START}(?i:[cdlmnstv]|\w*ll|gl|un|com|dov|cos)"
#: l’11, l’“eau”, and l'"eau", whose apostrophe the tokeniser sets apart
BEFORE_NO_LETTER = rf"{ANY_APOSTROPHE} (?=\d|[“‘«\"]|&quot;)"
BETWEEN_LETTERS = rf"(?<={LETTER}) {APOSTROPHE} (?={LETTER})"
#: patterns in which the character is always an apostrophe; before quotation marks are joined
APOSTROPHES = {
    "fr": (rf"{FRENCH_ELISION} [’ʼ′] (?={LETTER})",),
    "it": (rf"{ITALIAN_ELISION} {APOSTROPHE} (?={LETTER})",),
    # it’s, don’t; O’Neil; the ’90s
    "en": (
        rf"(?<=\w) {APOSTROPHE} (?=(?i:s|t|re|ve|ll|d|m)\.?{END})",
        rf"{START}[ODLdl] {APOSTROPHE} (?={LETTER})",
        rf"{START}{APOSTROPHE} (?=\d0s{END})",
    ),
    # geht’s, geht's; so ’ne
    "de": (
        rf"(?<={LETTER}) {ANY_APOSTROPHE} (?=(?i:s|sche[mnrs]?)\.?{END})",
        rf"{START}{APOSTROPHE} (?=(?i:n|ne[mnrs]?){END})",
    ),
}
#: ’Tis
AT_THE_START = rf"(?:^|(?<=[“„‘(–—] )){APOSTROPHE} (?=\w)"
#: other apostrophes, applied once quotation marks are joined to the quoted text
OTHER_APOSTROPHES = {
    "fr": (f"{FRENCH_ELISION} {BEFORE_NO_LETTER}", BETWEEN_LETTERS),
    # un po’ di
    "it": (
        f"{ITALIAN_ELISION} {BEFORE_NO_LETTER}",
        rf"(?<=\b(?i:po|mo|be|fa|va|da|di)) {APOSTROPHE}",
        BETWEEN_LETTERS,
    ),
    # workers’ rights, goin’ home; ma’am
    "en": (rf"(?<=[sS]) {APOSTROPHE}{END}", rf"(?<=[a-z]in) {APOSTROPHE}{END}", BETWEEN_LETTERS),
    # hab’ ich
    "de": (),
}
#: applied last: summer of ’69; any other is joined to the word before it
AT_THE_END = (rf"{START}{APOSTROPHE} (?=\d\d{END})", rf"(?<=\S) {APOSTROPHE}{END}")


def close_up(patterns: Iterable[re.Pattern[str]], line: str) -> str:
    """Remove the spaces in every match, one pattern after the other."""
    for pattern in patterns:
        line = pattern.sub(lambda match: match[0].replace(" ", ""), line)
    return line


# ---- quotation marks ---------------------------------------------------------------------------

#: closing marks of each opening mark
CLOSING = {'"': '"', "“": "”", "„": "“”", "‘": "’", "‚": "‘’", "«": "»", "»": "«"}
#: marks that quote only in pairs
IN_PAIRS_ONLY = "«»‚"
#: punctuation that the detokeniser joins to the word before, with a space in French
_SPACED_IN_FRENCH = re.compile(r" (?=[?!:;\\%](?: |$))")
#: punctuation that the detokeniser joins to the word after
_OPENING_BRACKETS = re.compile(r"(?:[({¿¡$€£¥]|&#91;)+")


class Quotations:
    """Joins quotation marks to the text that they quote.

    Args:
        lang: the language's code, such as ``fr``
    """

    #: punctuation after a quotation, which never begins one
    after_quotation = frozenset(",.;:!?)")
    #: punctuation that the detokeniser joins to the word before
    punctuation = re.compile(r"(?: (?:[,.?!:;\\%})]|&#93;)+)+$")

    def __init__(self, lang: str) -> None:
        self.lang = lang
        #: closing marks of each opening mark
        self.closing = closing_marks(lang)
        self.marks = {*self.closing, *"".join(self.closing.values())}

    def join(self, line: str) -> str:
        """Return a line of tokens with quotation marks joined to the text that they quote."""
        tokens = line.split(" ")
        opened: list[str] = []
        joined = ""
        joins_next = True
        for place, token in enumerate(tokens):
            mark = unescaped_mark(token)
            if mark not in self.marks:
                joined += token if joins_next else f" {token}"
                joins_next = joins_next and bool(_OPENING_BRACKETS.fullmatch(token))
                continue
            following = tokens[place + 1 :]
            partners = [n for n, before in enumerate(opened) if mark in self.closing[before]]
            if place and self.ends(mark, tokens[:place], following, bool(partners)):
                joined = self.join_punctuation(joined) + token
                joins_next = False
                if partners:
                    del opened[partners[-1] :]
            else:
                joined += token if joins_next else f" {token}"
                joins_next = mark in self.closing and self.has_partner(mark, following)
                if joins_next:
                    opened.append(mark)
        return joined

    def ends(
        self, mark: str, before: Sequence[str], following: Sequence[str], has_begun: bool
    ) -> bool:
        """Return whether a mark ends a quotation, which may have begun in an earlier line.

        Args:
            mark: the quotation mark
            before, following: the tokens of the line before and after the mark
            has_begun: whether a mark that it may close is before it
        """
        return has_begun or self.ends_without_partner(mark, before, following)

    def ends_without_partner(
        self, mark: str, before: Sequence[str], following: Sequence[str]
    ) -> bool:
        """Return whether a mark ends a quotation that began in an earlier line."""
        if mark == '"':
            end_of_line = self.after_quotation | {"…", "..."}
            at_the_end = all(token in end_of_line for token in following)
            return at_the_end or following[0] in self.after_quotation
        return mark == "”" and mark not in self.closing

    def has_partner(self, mark: str, following: Sequence[str]) -> bool:
        """Return whether a mark has a partner in the line, or needs none."""
        return mark not in IN_PAIRS_ONLY or any(token in self.closing[mark] for token in following)

    def join_punctuation(self, text: str) -> str:
        """Join the punctuation at the end of a text, as the detokeniser does."""

        def join(match: re.Match[str]) -> str:
            marks = match[0]
            if self.lang == "fr":
                marks = _SPACED_IN_FRENCH.sub(KEPT_SPACE, marks)
            return marks.replace(" ", "")

        return self.punctuation.sub(join, text)


def unescaped_mark(token: str) -> str:
    """Return a token, which may be a quotation mark, without Moses' escapes."""
    return token.replace("&quot;", '"').replace("&apos;", "'")


def closing_marks(lang: str) -> dict[str, str]:
    """Return the closing marks of each opening mark in a language.

    French keeps the spaces inside « »; in Finnish and Swedish ” is also an opening mark.
    """
    if lang == "fr":
        return {mark: ends for mark, ends in CLOSING.items() if mark not in "«»"}
    return {**CLOSING, "”": "”"} if lang in ("fi", "sv") else CLOSING


# ---- all of it ---------------------------------------------------------------------------------

#: a currency's sign after its number, which the detokeniser joins to the word after it
AMOUNT = re.compile(r"(?<=\d) ([$€£¥])(?= (?!\d))")


def before_quotations(lang: str) -> list[str]:
    """Return the patterns to close up before quotation marks are joined."""
    celsius = f"{NUMBER} {CELSIUS}" if lang == "en" else CELSIUS
    # the tokeniser leaves the full stop at some words
    words = [rf"{START}(?:{pattern})\.?{END}" for pattern in (celsius, "|".join(WORDS))]
    return [*words, *APOSTROPHES.get(lang, ()), AT_THE_START]


def after_quotations(lang: str) -> list[str]:
    """Return the patterns to close up after quotation marks are joined."""
    return [*OTHER_APOSTROPHES.get(lang, (BETWEEN_LETTERS,)), *AT_THE_END]


def joiner(lang: str) -> TextFunction:
    """Return a function from a line of Moses' tokens to tokens that detokenise correctly."""
    before = [*map(re.compile, before_quotations(lang))]
    after = [*map(re.compile, after_quotations(lang))]
    quotations = Quotations(lang)

    def join(line: str) -> str:
        line = close_up(after, quotations.join(close_up(before, line)))
        return AMOUNT.sub(rf"{KEPT_SPACE}\1", line)

    return join
