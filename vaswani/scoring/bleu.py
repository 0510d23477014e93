"""BLEU as papers measured it, and as it should be quoted: what each figure is computed from.

All tokenised figures use one formula, Moses' multi-bleu.perl: case-sensitive, up to 4-grams, no
smoothing, one reference. They differ in the tokens. tensor2tensor's script (the authors' code,
``utils/get_ende_bleu.sh``) splits compounds on top of Moses' tokens; there are four variants,
because the script changed, and its reference was altered without the script saying so.
docs/scoring.md says which figure is which.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest
from sacremoses import MosesPunctNormalizer

from vaswani.common.errors import UserError
from vaswani.data.tokenisation import hardly_spaced, moses_tokeniser
from vaswani_transformer.io.moses import language_of

#: what hyphens become, in Moses' ``-a`` and in the authors' script
SPLIT_HYPHENS = ("@-@", "##AT##-##AT##")
KOREAN, CHARACTERS = "ko-mecab", "char"
#: sacreBLEU's tokens by language, where they are not 13a; Korean alone of these has spaces
BY_LANGUAGE = {"zh": "zh", "ja": "ja-mecab", "ko": KOREAN}
# On bytes, as in Perl: in "ä-ö-ü" both hyphens are split, since a match takes one byte of "ö" and
# leaves another for the next match, while in "a-o-u" only the first is.
_COMPOUND = re.compile(rb"(\S)-(\S)")
_DOUBLE_QUOTES = re.compile("[„“”‟«»]")
# Characters that are spaces in Python but not in Perl on bytes (U+00A0 and the like). They become
# code points without a meaning, so that sacreBLEU sees the same tokens as multi-bleu.perl.
_KEPT_IN_TOKENS = {
    code: 0xF0000 + code
    for code in range(0x3001)
    if chr(code).isspace() and chr(code) not in " \t\n\v\f\r"
}


#: sacreBLEU's objects, by the keys of their rows
Metrics = Mapping[str, Metric]


@dataclass(frozen=True)
class ScoreRow:
    """One line of the table: a score from 0 to 100, and how it was computed.

    Attributes:
        label: its name
        score: rounded to two digits
        text: as sacreBLEU prints it
        signature: of sacreBLEU
        brevity_penalty: of BLEU
        length_ratio: of BLEU: the length of the translations by that of the references
    """

    label: str
    score: float
    text: str
    signature: str
    brevity_penalty: float | None = None
    length_ratio: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return the row as a report holds it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class MetricComparison:
    """Two systems by one metric: the scores, half the width of their 95 % intervals, and p."""

    score: float
    interval: float
    other_score: float
    other_interval: float
    p: float
    signature: str


@dataclass(frozen=True)
class Significance:
    """Whether two systems differ.

    Attributes:
        test: its name
        trials: of the test
        resamples: of the bootstrap that gives the intervals
        seed: of the random generator
        metrics: by the key of the metric
    """

    test: str
    trials: int
    resamples: int
    seed: int
    metrics: Mapping[str, MetricComparison]


def score_row(label: str, score: Any, signature: Any) -> ScoreRow:
    """Return the line of the table for a score that sacreBLEU computed."""
    row = ScoreRow(label, round(score.score, 2), str(score), str(signature))
    if hasattr(score, "bp"):
        penalty, ratio = round(score.bp, 4), round(score.ratio, 4)
        row = replace(row, brevity_penalty=penalty, length_ratio=ratio)
    return row


def tokenised_metric() -> BLEU:
    """Return sacreBLEU's BLEU as multi-bleu.perl defines it: tokens as they are, no smoothing."""
    return BLEU(tokenize="none", smooth_method="none", force=True)


def multi_bleu(label: str, hypotheses: list[str], *references: list[str]) -> ScoreRow:
    """Score tokens separated by spaces, by one or more references, as multi-bleu.perl does."""
    metric = tokenised_metric()
    hypothesis_lines, *reference_lines = (
        [line.translate(_KEPT_IN_TOKENS) for line in side] for side in (hypotheses, *references)
    )
    score = metric.corpus_score(hypothesis_lines, reference_lines)
    return score_row(label, score, metric.get_signature())


def split_mark(line: str) -> str:
    """Return the mark of a split hyphen that a line holds, or nothing."""
    return next((mark for mark in SPLIT_HYPHENS if mark in line), "")


def refuse_split(lines: list[str], where: str) -> None:
    """Raise UserError for text whose hyphens are split: splitting again would inflate BLEU."""
    for number, line in enumerate(lines, 1):
        if split_mark(line):
            raise UserError(
                f"{where}, line {number:,}, holds '{split_mark(line)}', so its hyphens are already "
                "split, and splitting them again would inflate BLEU: give untokenised text"
            )


def split_compounds(line: str) -> str:
    """Split compounds: ``a-b`` → ``a ##AT##-##AT## b`` where no space is beside the hyphen.

    Matches do not overlap, so ``x-y-z`` becomes ``x ##AT##-##AT## y-z``, as in the script.
    """
    return _COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode("utf-8")).decode("utf-8")


def straight_quotes(line: str) -> str:
    """Replace every typographic double quote (``„ “ ” ‟ « »``) by ``"``.

    This was done to tensor2tensor's copy of newstest2014's reference, which its script does not
    mention (its issue 317). Single quotes stay: they are also apostrophes.
    """
    return _DOUBLE_QUOTES.sub('"', line)


def replace_punctuation() -> Callable[[str], str]:
    """Return Moses' replace-unicode-punctuation: ``“ ”`` → ``"``, ``’`` → ``'``, ``…`` → ``...``.

    It does not replace ``„``. It uses sacremoses, which turns the wide digit 1 into ``1``; Moses'
    script turns it into ``"``.
    """
    replace: Callable[[str], str] = MosesPunctNormalizer().replace_unicode_punct
    return replace


def compound_split_tokens(hypotheses: list[str], references: list[str]) -> ScoreRow:
    """Return the compound-split BLEU of Moses tokens (made without ``-a``), nothing else changed.

    Raises:
        UserError: the tokens are already split.
    """
    refuse_split(hypotheses, "the translations")
    refuse_split(references, "the references")
    split_hypotheses, split_references = (
        [*map(split_compounds, side)] for side in (hypotheses, references)
    )
    return multi_bleu("compound-split BLEU", split_hypotheses, split_references)


#: the four variants: key and label by (2018's replacement, straight quotes)
VARIANTS: dict[tuple[bool, bool], tuple[str, str]] = {
    (False, False): ("compound_split", "compound-split BLEU (the script of 2017)"),
    (False, True): ("compound_split_quotes", "  its references' quotes straight"),
    (True, False): ("compound_split_2018", "  the script of 2018 (punctuation replaced)"),
    (True, True): ("compound_split_2018_quotes", "  its references' quotes straight"),
}


def compound_split_rows(
    hypotheses: list[str], references: list[str], lang: str
) -> dict[str, ScoreRow]:
    """Return tensor2tensor's compound-split BLEU of untokenised text, in its four variants.

    - ``compound_split``: the script of June 2017. Both sides through Moses' tokeniser without
      ``-a``, then ``split_compounds``, then multi-bleu.perl.
    - ``compound_split_2018``: as of April 2018. ``replace_punctuation`` on the hypotheses (not on
      the references) before they are tokenised.
    - ``…_quotes``: the same two with ``straight_quotes`` on the references (not on the
      hypotheses) before they are tokenised, which makes them ``&quot;``.

    The changes affect one side only, as they did there: text with typographic quotes scores below
    100 against itself in all but the first.

    Raises:
        UserError: the text is already split.
    """
    # before tokenising, since Moses' tokeniser takes the marks apart
    refuse_split(hypotheses, "the translations")
    refuse_split(references, "the references")
    moses = moses_tokeniser(lang)
    replace = replace_punctuation()

    def tokens(lines: list[str]) -> list[str]:
        return [split_compounds(moses(line)) for line in lines]

    hypothesis_tokens = {False: tokens(hypotheses), True: tokens([*map(replace, hypotheses)])}
    reference_tokens = {
        False: tokens(references),
        True: tokens([*map(straight_quotes, references)]),
    }
    rows = {}
    for (replaced, straight), (key, label) in VARIANTS.items():
        rows[key] = multi_bleu(label, hypothesis_tokens[replaced], reference_tokens[straight])
    return rows


def has_spaces(lang: str | None, references: list[str]) -> bool:
    """Return whether a language's words have spaces between them, by its code and by its text."""
    return BY_LANGUAGE.get(base(lang), KOREAN) == KOREAN and not hardly_spaced(references)


def base(lang: str | None) -> str:
    """Return a language without its variant, in two letters: ``zh`` of ``zh_CN`` or ``zho``."""
    return language_of(lang or "")


def tokens_for(lang: str | None, spaced: bool) -> tuple[str, str]:
    """Return sacreBLEU's tokenizer for a language, and why a better one is not used, if so.

    For Chinese, Japanese and Korean those it has for them, for other text without spaces
    characters, else 13a; characters too where a tokeniser's own packages are missing.
    """
    name = BY_LANGUAGE.get(base(lang), "13a" if spaced else CHARACTERS)
    try:
        BLEU(tokenize=name)
    except RuntimeError:
        extra = f"'pip install sacrebleu[{name[:2]}]' installs it"
        return CHARACTERS, f"sacreBLEU with {name}: {extra}; its row counts characters (tok:char)"
    return name, ""


def sacrebleu_rows(
    hypotheses: list[str], references: list[list[str]], metrics: Metrics, named: dict[str, str]
) -> dict[str, ScoreRow]:
    """Return rows from sacreBLEU itself, by one or more references of each sentence.

    ``named``: test set and pair, for the signature.
    """
    labels = {"bleu": "sacreBLEU", "chrf": "chrF"}
    rows = {}
    for key, metric in metrics.items():
        score = metric.corpus_score(hypotheses, references)
        signature = metric.get_signature()
        for name, value in named.items():
            signature.update(name, value)
        rows[key] = score_row(labels[key], score, signature)
    return rows


def paired_test(
    metrics: Metrics, this: list[str], other: list[str], references: list[list[str]]
) -> Significance:
    """Test whether two systems differ: scores, their 95% intervals, and a two-sided p.

    p is of a paired approximate randomisation test (Riezler and Maxwell, 2005): the systems'
    translations of a sentence are exchanged or not, at random, and p is the share of trials whose
    absolute difference exceeds the observed one. It assumes that one training of each system is
    compared: that other seeds would give the same order, it does not say. (sacreBLEU's paired
    bootstrap counts differences in one direction, so its p is about half of this.)

    The intervals are by bootstrap. sacreBLEU's own defaults: 10,000 trials, 1,000 resamples, seed
    12345 or $SACREBLEU_SEED.

    Args:
        metrics: sacreBLEU's objects, by the keys to use in the result
        this, other: sentences, line by line
        references: the same of each reference
    """
    systems: list[tuple[str, Sequence[str]]] = [("this", this), ("other", other)]
    # 0: the default number of resamples for the intervals
    test = PairedTest(systems, metrics, references, test_type="ar", n_ar_confidence=0)
    signatures, scores = test()
    rows = {}
    # results come under sacreBLEU's metric names, in the order of ``metrics``
    for key, name in zip(metrics, test.metrics, strict=True):
        results: list[Any] = list(scores[name])
        first, second = results
        # equal scores differ by 0, and every trial by 0 or more; sacreBLEU counts only trials that
        # differ by more, so two equal systems would get its smallest p
        p = 1.0 if first.score == second.score else second.p_value
        rows[key] = MetricComparison(
            score=round(first.score, 2),
            interval=round(float(first.ci), 2),
            other_score=round(second.score, 2),
            other_interval=round(float(second.ci), 2),
            p=round(p, 4),
            signature=str(signatures[name]),
        )
    return Significance(
        test="paired approximate randomisation, two-sided",
        trials=test.n_samples,
        resamples=test.n_ar_confidence,
        seed=signatures[name].info["seed"],
        metrics=rows,
    )
