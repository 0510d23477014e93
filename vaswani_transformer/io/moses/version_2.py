"""Rules, version 2: those of version 1, and rules for other languages and scripts.

Persian's zero-width non-joiners, Arabic, Indic, Ethiopic and Armenian punctuation, apostrophes
inside words (``l'home``, ``Ankara'da``, ``м'який``), case endings after a colon (``EU:n``), and
quotations that begin or end in another line. Made from the first 1,000 lines of each language of
NTREX-128; docs/scoring.md links to the counts on other lines.
"""

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache

from . import version_1
from .version_1 import (
    END,
    KEPT_SPACE,
    LETTER,
    NUMBER,
    START,
    TextFunction,
    close_up,
    unescaped_mark,
)

#: sacremoses' own rules for Czech join a number to the word before: "roku 2035" to "roku2035"
DETOKENISED_BY_OTHER_RULES = ("cs",)
#: a language without rules in its detokeniser; ISO 639's code for "undetermined"
NO_LANGUAGE = "und"

# ---- characters that belong to a letter ---------------------------------------------------------

#: characters between two letters of a word
ZERO_WIDTH_JOINERS = "\u200c\u200d"
#: before a word, as in some web pages
ZERO_WIDTH_SPACE = "\u200b"
#: changes of direction, after a word
DIRECTIONS = "\u200e\u200f"
#: strokes through a letter, which some texts use as a dash
STROKES = range(0x334, 0x339)


@cache
def combining_marks() -> str:
    """Return every combining mark of Unicode, as ranges for a class of a regular expression."""
    ranges: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != "M" or code in STROKES:
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


def characters() -> list[str]:
    """Return the patterns of characters that the tokeniser separates from their letters."""
    return [
        rf"(?<=\S) [{ZERO_WIDTH_JOINERS}] (?=\S)",
        rf"(?<=\S)(?: [{combining_marks()}]+)+(?: (?={LETTER}))?",
        rf"(?:{START}{ZERO_WIDTH_SPACE} )+(?=\S)",
        rf"(?<=\S) [{DIRECTIONS}]",
        # Arabic's decimal and thousands separators
        r"\d+(?: [٫٬] \d+)+",
    ]


# ---- words --------------------------------------------------------------------------------------

WORDS = (
    # 2:0, 15:00-ին, 15:00etan
    r"\d+(?: : \d[\w-]*)+",
    # 5–7,6, 1–0-voiton
    rf"{NUMBER} – \d[\d.,]*(?:-\w+)?",
    # +26, but 2 + 26
    rf"(?<!\d )\+ {NUMBER}",
    # @name, #name, but C # and F #
    rf"(?:@|(?<!\b[CF] )#) {LETTER}[\w-]*",
    # C++
    r"\w+ \+ \+",
    # M&S, 5&4
    r"[A-Z] (?:&amp;|&) [A-Z]",
    r"\d+ (?:&amp;|&) \d+",
)
#: case endings after a colon: EU:n, NATO:s
COLON_ENDINGS = {
    "fi": r"(?:n|a|ä|t|ta|tä|na|nä|ssa|ssä|sta|stä|lla|llä|lta|ltä|lle|ksi|tta|ttä|iin|een|aan|ään|"
    r"uun|yyn|oon|öön|h[aeiouyäö]n|seen|in|en|an|ien|ita|itä|issa|issä|ista|istä|ina|nen|sen)",
    "sv": r"(?:s|n|en|t|et|er|ar|e|a|arna|erna|ens)",
}

# ---- apostrophes --------------------------------------------------------------------------------

#: languages with their own rules, in version 1 or in the detokeniser
OWN_APOSTROPHES = ("en", "fr", "it", "ga", "de")
#: languages whose words have apostrophes inside; elsewhere, ' between words is a quotation mark
WITH_APOSTROPHES = (
    *(
        "be",
        "br",
        "ca",
        "crh",
        "cy",
        "eo",
        "et",
        "fi",
        "ha",
        "haw",
        "ig",
        "kmr",
        "ku",
        "lb",
        "mg",
        "mt",
        "ny",
    ),
    *("oc", "om", "pl", "rw", "sc", "sm", "so", "sq", "tr", "tt", "ty", "uk", "uz"),
)
APOSTROPHE = "(?:[’ʼ]|&apos;|')"
#: with other characters that some texts use as an apostrophe
ANY_APOSTROPHE = "(?:[’ʼ‘´`]|&apos;|')"
#: English and French names and words, in any language: Sainsbury's, O'Neil, N'Golo, I'm
NAMES = (
    rf"(?<=\w) {ANY_APOSTROPHE} (?=[sS](?:-\w+|\.)?{END})",
    rf"{START}[ODLN] {APOSTROPHE} (?=[^\W\d_a-zß-ÿ])",
    rf"{START}I {APOSTROPHE} (?=(?:m|ll|ve|d){END})",
)
#: Catalan and Occitan: l'1 d'octubre; d'“art”, in two steps
BEFORE_NUMBER = rf"{START}(?i:[dlmnst]) {APOSTROPHE} (?=\d)"
QUOTED = r"(?=[“«‘\"]|&quot;)"
BEFORE_MARK = rf"{START}(?i:[dlmnst]) {APOSTROPHE}(?= {QUOTED})"
BEFORE_QUOTATION = rf"{START}(?i:[dlmnst]){APOSTROPHE} {QUOTED}"


def apostrophes(lang: str) -> list[str]:
    """Return the patterns of apostrophes that are never quotation marks."""
    patterns = [] if lang in OWN_APOSTROPHES else [*NAMES]
    if lang in WITH_APOSTROPHES:
        inside = ANY_APOSTROPHE if lang == "uz" else APOSTROPHE
        patterns.append(rf"(?<=[\w%{combining_marks()}]) {inside} (?={LETTER})")
    if lang in ("ca", "oc"):
        patterns += [BEFORE_NUMBER, BEFORE_MARK]
    return patterns


# ---- punctuation --------------------------------------------------------------------------------

#: punctuation without a space before it: Arabic, Devanagari, Ethiopic, Armenian and similar
SCRIPT_PUNCTUATION = "،؛؟۔٪।॥፡።፣፤፥፦፧፨։՝"
#: languages with a space before %, as their standards say
SPACED_PERCENT = ("cs", "da", "es", "fi", "hr", "lt", "nb", "nn", "no", "sk", "sl", "sv")
#: languages with % before the number
PERCENT_FIRST = ("eu", "tr", "ug")
#: languages with a space before …
SPACED_ELLIPSIS = ("de", "en", "fr", "it", "sv")
AFTER_QUOTATION = r"(?:(?<=\S[\"”’»“'])|(?<=&quot;)|(?<=&apos;))"
#: case endings after a quotation in Turkish: "so"dan
TURKISH_ENDINGS = r"(?:[dt][ae]n|n?[ıiuü]n|y[ıiuü])"
#: a word of one letter that Arabic joins to the next word
ARABIC_PREFIX = r"[وفبلك]"
#: Korean particles, which follow a quotation, a bracket or a sign without a space
KOREAN_PARTICLES = (
    r"(?:은|는|이|가|을|를|의|에|로|으로|와|과|도|만|인|고|라고|이라고|라는|이라는|라며|이라며|"
    r"에서|에게|까지|부터|이다|입니다|이었다|였다|처럼|보다|이나|나|란|이란|다|며)"
)


def punctuation(lang: str) -> list[str]:
    """Return the patterns of punctuation to close up after quotation marks are joined."""
    patterns = [
        rf"(?: (?:[,.?!:;\\%}})…]|&#93;))*(?: [{SCRIPT_PUNCTUATION}])+",
        # “so”-called, (so)-called
        rf"{AFTER_QUOTATION} (?=-{LETTER})",
        rf"(?<=\S) \) (?=-{LETTER})",
    ]
    if lang not in SPACED_ELLIPSIS:
        patterns.append(rf"(?<=[\w{combining_marks()}]) …")
    if lang == "hy":  # on the stressed vowel of a word
        patterns.append(rf"(?<={LETTER}) [՛՜՞] (?={LETTER})")
    if lang == "ar":
        patterns.append(rf"{START}{ARABIC_PREFIX} {QUOTED}")
    if lang in ("ca", "oc"):
        patterns.append(BEFORE_QUOTATION)
    if lang == "tr":
        patterns.append(rf"{AFTER_QUOTATION} (?={TURKISH_ENDINGS}{END})")
    if lang == "ko":
        particle = rf"(?={KOREAN_PARTICLES}\S{{0,2}}{END})"
        patterns += [rf"{AFTER_QUOTATION} {particle}", rf"(?<=\S) [%)] {particle}"]
        patterns.append(r"(?<=[\w”\"’']) \( (?=\S)")
    return patterns


def keep_spaces(lang: str, line: str) -> str:
    """Return a line whose spaces the detokeniser will neither remove nor move."""
    line = version_1.AMOUNT.sub(rf"{KEPT_SPACE}\1", line)
    if lang in SPACED_PERCENT:
        return re.sub(r"(?<=\d) (?=%)", KEPT_SPACE, line)
    if lang in PERCENT_FIRST:
        return re.sub(r"(?<!\d) % (?=\d)", " %", line)
    return line


# ---- quotation marks ---------------------------------------------------------------------------

#: »so« rather than «so»
REVERSED = ("cs", "da", "de", "fi", "hr", "hu", "pl", "sk", "sl", "sr", "sv")
#: „so“
LOW_FIRST = ("bg", "cs", "de", "et", "hr", "is", "ka", "lt", "lv", "mk", "sk", "sl", "sr")


class Quotations(version_1.Quotations):
    """Joins quotation marks to the text that they quote, also if it continues in other lines."""

    after_quotation = version_1.Quotations.after_quotation | set(SCRIPT_PUNCTUATION)
    punctuation = re.compile(rf"(?: (?:[,.?!:;\\%}})…{SCRIPT_PUNCTUATION}]|\.\.\.|&#93;)+)+$")

    def __init__(self, lang: str) -> None:
        super().__init__(lang)
        self.closing = dict(self.closing)
        if lang not in OWN_APOSTROPHES:
            self.closing["'"] = "'"
        if lang == "sv":
            self.closing["’"] = "’"
        if lang not in (*REVERSED, "en", "fr"):
            del self.closing["»"]
        self.marks = {*self.closing, *"".join(self.closing.values())}
        #: whether “ ends a quotation that „ begins
        self.low_first = lang in LOW_FIRST
        #: marks that may end a quotation as well as begin one
        self.either = {mark for mark, ends in self.closing.items() if mark in ends}

    def ends(
        self, mark: str, before: Sequence[str], following: Sequence[str], has_begun: bool
    ) -> bool:
        """Return whether a mark ends a quotation.

        It does not after a colon, nor where it begins another quotation. The line may begin with a
        quotation that ends in a later line.
        """
        if mark in self.closing and before[-1] == ":":
            return False
        unescaped = [*map(unescaped_mark, before)]
        if mark in self.either and unescaped[0] == mark and unescaped.count(mark) == 1:
            between_words = before[-1][-1].isalnum() and following[:1] and following[0][0].isalnum()
            if between_words and self.closes_later(mark, following):
                return False
        return super().ends(mark, before, following, has_begun)

    def ends_without_partner(
        self, mark: str, before: Sequence[str], following: Sequence[str]
    ) -> bool:
        """Return whether a mark ends a quotation that began in an earlier line.

        It does before a full stop or similar, and after one if the sentence continues.
        """
        if mark in "„‚" or (mark in "«»" and "»" in self.closing):
            return False
        if super().ends_without_partner(mark, before, following):
            return True
        only_closes = mark not in self.closing
        if only_closes and (mark != "’" or self.lang not in OWN_APOSTROPHES):
            return True
        after = [token for token in following if unescaped_mark(token) not in self.marks]
        if not after or (after[0] in self.after_quotation and after[0] == following[0]):
            return mark != "«"
        if mark not in self.either and not (mark == "“" and self.low_first):
            return False
        ends = before[-1] in {",", ".", "!", "?", "…"} and after[0][:1].islower()
        return ends and not self.closes_later(mark, following)

    def closes_later(self, mark: str, following: Sequence[str]) -> bool:
        """Return whether a mark, taken as an opening mark, has its partner later in the line."""
        ends = self.closing.get(mark, "")
        return sum(unescaped_mark(token) in ends for token in following) % 2 == 1

    def has_partner(self, mark: str, following: Sequence[str]) -> bool:
        """Return whether a mark has a partner in the line, or needs none."""
        one_way = mark == "‚" or (mark == "«" and "»" not in self.closing)
        return one_way or super().has_partner(mark, following)


# ---- all of it ---------------------------------------------------------------------------------


def joiner(lang: str) -> TextFunction:
    """Return a function from a line of Moses' tokens to tokens that detokenise correctly."""
    patterns = [
        *version_1.before_quotations(lang),
        *characters(),
        rf"(?<=[\w{combining_marks()}]) / (?=\w)",
        rf"{START}(?:{'|'.join(WORDS)})\.?{END}",
        *apostrophes(lang),
    ]
    if lang in COLON_ENDINGS:
        patterns.append(rf"(?<=[\w%]) : (?={COLON_ENDINGS[lang]}{END})")
    before = [*map(re.compile, patterns)]
    patterns = [*version_1.AT_THE_END, *punctuation(lang)]
    if lang != "sv":  # where ’so’ is a quotation
        between_letters = rf"(?<=[\w{combining_marks()}]) [’ʼ] (?={LETTER})"
        patterns = [*version_1.after_quotations(lang), *punctuation(lang), between_letters]
    after = [*map(re.compile, patterns)]
    quotations = Quotations(lang)

    def join(line: str) -> str:
        line = close_up(after, quotations.join(close_up(before, line)))
        return keep_spaces(lang, line)

    return join
