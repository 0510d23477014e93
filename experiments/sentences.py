"""How far a difference in BLEU would move with other test sentences and with other seeds.

An interval over seeds is for the sentences of one test. The bootstrap here draws both: the
sentences of the test with replacement, the same for all runs of a table, and for each run an error,
with replacement from the residuals of the table's two-way layout (intervals.py), enlarged for the
degrees of freedom that the fit takes. What it needs of a translation are counts per sentence, which
a record keeps in ``sentences.npz``: so it needs no references.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from experiments.intervals import LEVEL, Layout, Values
from experiments.record_files import record_files, recorded_translations, write_record_files
from vaswani.common.files import sha256_of
from vaswani.scoring.score_input import AlignedLines

COUNTS = "sentences.npz"
"""In a record's archive: run → counts of each sentence [sentences, 10]."""
RESAMPLES = 2000
SEED = 12345
N_GRAMS = 4


def counts_of(translated: AlignedLines, tokenised: bool) -> Any:
    """Return the counts from which BLEU is computed, for each sentence [sentences, 10].

    Lengths of hypothesis and reference, n-grams that match, n-grams of the hypothesis.
    """
    metric = BLEU(tokenize="none" if tokenised else "13a", force=True, effective_order=True)
    lines = []
    for hypothesis, reference in zip(translated.hypotheses, translated.references, strict=True):
        score = metric.sentence_score(hypothesis, [reference])
        lines.append([score.sys_len, score.ref_len, *score.counts, *score.totals])
    return np.array(lines, dtype=np.int32)


def bleu_of(sums: Any) -> Any:
    """Return the BLEU of summed counts [..., 10] → [...]; 0 where some n-gram never matches."""
    lengths = sums[..., 0]
    reference_lengths = sums[..., 1]
    matches = sums[..., 2 : 2 + N_GRAMS]
    totals = sums[..., 2 + N_GRAMS :]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.exp(np.log(matches / totals).mean(-1))
        brevity = np.exp(np.minimum(0, 1 - reference_lengths / lengths))
    return np.nan_to_num(100 * precision * brevity)


def widths_over_both(
    values: Values,
    counts: dict[tuple[str, int], Any],
    reference: str,
    score: Callable[[Any], Any] = bleu_of,
) -> dict[str, float]:
    """Return row → half the 95 % interval of its score minus the reference's.

    The interval is over seeds and sentences.

    Args:
        values: scores by row and seed, all of whose cells have counts
        counts: row and seed → what the score counts in each sentence [sentences, N]
        reference: one of the rows
        score: summed counts [..., N] → scores [...]
    """
    layout = Layout(values)
    if not layout.degrees:
        return {}
    rng = np.random.default_rng(SEED)
    sentences = len(counts[layout.cells[0]])
    drawn = rng.multinomial(sentences, [1 / sentences] * sentences, size=RESAMPLES)
    scores = np.stack([score(drawn @ counts[cell]) for cell in layout.cells], axis=1)
    enlarged = layout.residuals * (len(layout.cells) / layout.degrees) ** 0.5
    errors = rng.choice(enlarged, size=scores.shape)
    widths = {}
    for row in values:
        weights = layout.weights(row, reference) if row != reference else None
        if weights is not None:
            resampled = (scores + errors) @ weights
            low, high = np.quantile(resampled, [LEVEL / 2, 1 - LEVEL / 2])
            widths[row] = float(high - low) / 2
    return widths


# ---- records -----------------------------------------------------------------------------------


def keep_counts(folder: Path, runs: list[str]) -> None:
    """Add the counts of a record's runs, if their translations and the references are here.

    Args:
        folder: the record's
        runs: the names of its runs
    """
    files = record_files(folder)
    scores = {}
    for name in runs:
        scores[name] = json.loads(files.get(f"{name}.score.json", b"{}"))
    references = references_here(scores)
    counts = {}
    for name, score in scores.items():
        for kind, sides in list(score.get("files", {}).items())[:1]:  # the text, if there is one
            hypotheses = f"{name}.{Path(sides['hypotheses']['file']).name}"
            path = references.get(sides["references"]["sha256"])
            if path and hypotheses in files:
                translated = recorded_translations(folder, hypotheses, path)
                counts[name] = counts_of(translated, kind == "tokens")
    if counts:
        stream = io.BytesIO()
        np.savez(stream, **{**read_counts(folder), **counts})
        write_record_files(folder, {**files, COUNTS: stream.getvalue()})


def references_here(scores: dict[str, Any]) -> dict[str, Path]:
    """Return SHA-256 → file, of the references that reports of ``vaswani score`` name.

    Only files on this machine are listed. Two folders may have the same test: BPE-dropout changes
    only the text of the training.
    """
    paths = set()
    for score in scores.values():
        for sides in score.get("files", {}).values():
            paths.add(Path(sides["references"]["file"]))
    return {sha256_of(path): path for path in sorted(paths) if path.is_file()}


def read_counts(folder: Path) -> dict[str, Any]:
    """Read run → its counts; return nothing for a record without them."""
    files = record_files(folder)
    if COUNTS not in files:
        return {}
    with np.load(io.BytesIO(files[COUNTS])) as arrays:
        return {name: arrays[name] for name in arrays.files}
