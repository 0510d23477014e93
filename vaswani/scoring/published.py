"""WMT's test sets, and what others published for them, shown only beside a score of the same set.

Each figure names its scorer, since two scorers can differ by more than one BLEU.
"""

from typing import NamedTuple

#: sacreBLEU's names; the first is the paper's test set, the other its development set
NEWSTEST2014, NEWSTEST2013 = "wmt14/full", "wmt13"
#: by their names in recipes
BY_NAME = {"newstest2014": NEWSTEST2014, "newstest2013": NEWSTEST2013}
#: sentences per set: a file of another length is not that set
SENTENCES = {NEWSTEST2014: 3003, NEWSTEST2013: 3000}


class Figure(NamedTuple):
    """A system's BLEU with base and big (section 6.1, Table 3), as its authors state it."""

    system: str
    base: float | None
    big: float | None
    scorer: str
    source: str


#: Table 4: F1 on section 23 of the Wall Street Journal, trained on its training sections alone
WSJ_F1 = 91.3
NOT_STATED = "not stated; the authors' script: compound-split"
T2T = "tensor2tensor issue 317"
NEURST = "NeurST's translation example"
SCALING = "Ott et al. 2018, Scaling NMT"
FIGURES: dict[tuple[str, str], list[Figure]] = {
    (NEWSTEST2014, "en-de"): [
        Figure("the paper", 27.3, 28.4, NOT_STATED, "Table 2"),
        Figure("tensor2tensor, 3.8M updates", 29.02, None, "compound-split 2018, quotes", T2T),
        Figure("tensor2tensor, 3.8M updates", 27.52, None, "sacreBLEU", T2T),
        Figure("NeurST, post-norm", 27.9, 28.0, "tokenised", NEURST),
        Figure("NeurST, post-norm", 27.3, 27.4, "sacreBLEU", NEURST),
        Figure("NeurST, pre-norm", 26.8, 27.7, "tokenised", NEURST),
        Figure("NeurST, pre-norm", 26.2, 27.1, "sacreBLEU", NEURST),
        Figure("fairseq, large batches", None, 29.29, "compound-split", SCALING),
        Figure("fairseq, large batches", None, 28.6, "sacreBLEU", SCALING),
        Figure("fairseq, base by a user", 26.65, None, "tokenised", "fairseq issue 1352"),
        Figure("NVIDIA, its best", None, 28.77, "its older scorer", "DeepLearningExamples"),
        Figure("NVIDIA, its best", None, 28.09, "sacreBLEU", "DeepLearningExamples"),
        Figure("OpenSeq2Seq", 26.4, 27.5, "sacreBLEU", "OpenSeq2Seq"),
        Figure("OpenNMT-tf, averaged", 26.9, None, "NIST's script", "OpenNMT-tf"),
        Figure("OpenNMT-py", 26.89, None, "not stated", "OpenNMT-py"),
        Figure("tensorflow/models", 27.7, 28.9, "uncased", "tensorflow/models"),
        Figure("THUMT, pre-norm, 200k updates", 27.03, None, "not stated", "THUMT issue 71"),
        Figure("JoeyNMT 2", 24.38, None, "sacreBLEU", "JoeyNMT"),
    ],
    (NEWSTEST2014, "en-fr"): [
        Figure("the paper", 38.1, 41.8, "not stated", "Table 2"),
        Figure("the paper at NeurIPS", 38.1, 41.0, "not stated", "Table 2"),
        Figure("fairseq, large batches", None, 43.2, "tokens, hyphens split", SCALING),
        Figure("fairseq, large batches", None, 41.4, "sacreBLEU", SCALING),
    ],
    (NEWSTEST2013, "en-de"): [
        Figure("the paper, not averaged", 25.8, 26.4, NOT_STATED, "Table 3"),
        Figure("NeurST, post-norm", 26.9, 27.0, "tokenised", NEURST),
        Figure("NeurST, post-norm", 26.6, 26.8, "sacreBLEU", NEURST),
    ],
}


def published_figures(
    test_set: str | None, pair: tuple[str, str] | None, lines: int
) -> list[Figure]:
    """Return published figures for a test set with this many sentences; none for other text."""
    if not test_set or not pair or SENTENCES.get(test_set) != lines:
        return []
    return FIGURES.get((test_set, "-".join(pair)), [])


def table(figures: list[Figure], test_set: str, pair: str) -> list[str]:
    """Return the figures as lines to print."""
    head = f"published for {test_set} {pair}"
    lines = ["", f"{head:<32}{'base':>7}{'big':>7}   scored by"]
    for figure in figures:
        numbers = "".join(f"{'' if n is None else n:>7}" for n in (figure.base, figure.big))
        lines.append(f"{figure.system:<32}{numbers}   {figure.scorer}  ({figure.source})")
    return lines
