"""The scores that a model folder has: of its own parameters, decoded as it is packed to decode.

A score belongs to its decoding options, its sentences and its references, and is kept with them.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vaswani.common.files import sha256_of
from vaswani.folders.run import Run
from vaswani.folders.search_options import describe_search, differences

#: what is kept from a score report
SCORES = ("bleu", "bleu_tokenised", "chrf")


def packed_scores(
    run: Run, checkpoint: Path, generation: Mapping[str, object]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the scores of a checkpoint's translations that ``vaswani score`` left, by subset.

    Those of other weights, options, translations or references are left out, which is said on
    stderr.

    Args:
        run: whose checkpoint it is
        checkpoint: what is packed
        generation: how the packed model decodes
    """
    scores: dict[str, dict[str, dict[str, Any]]] = {}
    digest = sha256_of(checkpoint)
    for scored in run.scored_translations():
        subset = scored.subset
        record = scored.record()
        if record is None:  # of a file, which 'vaswani generate' did not make
            continue
        translation = record.facts
        report = scored.scores()
        reason = why_left_out(report, translation, generation)
        if record.sha256.get(checkpoint.name) != digest:
            reason = f"they are not those of {checkpoint}"
        if reason:
            option = "" if subset == "test" else f" --subset {subset}"
            name = shlex.quote(str(run))
            print(
                f"the scores of '{subset}' are not packed: {reason}. To pack them, run 'vaswani "
                f"generate {name}{option}', 'vaswani score {name}{option}' and pack again",
                file=sys.stderr,
            )
        else:
            scores[subset] = rows_of(report, translation)
    return scores


def why_left_out(
    report: Mapping[str, Any], translation: Mapping[str, Any], generation: Mapping[str, object]
) -> str:
    """Return why a report's scores are not the packed model's, or an empty string if they may be.

    Args:
        report: of 'vaswani score'
        translation: the record of 'vaswani generate'
        generation: how the packed model decodes
    """
    if not {"sha256", "options"} <= set(translation) or "files" not in report:
        return "an earlier version made them, which did not record all that they depend on"
    if report.get("translation") != translation:
        return "the text was translated again after they were computed"
    different = differences(translation["options"], generation)
    if different:
        return f"they were decoded with {different} as in the packed model"
    for side in report["files"].values():
        references = side["references"]
        path = Path(references["file"])
        if path.is_file() and sha256_of(path) != references["sha256"]:
            return f"{path} has changed since"
    return ""


def rows_of(report: Mapping[str, Any], translation: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows of a report to keep, each with the conditions of its score."""
    files = report["files"]
    rows: dict[str, dict[str, Any]] = {}
    for name in SCORES:
        score = report.get(name)
        if not isinstance(score, dict):
            continue
        first, second = ("tokens", "text") if name == "bleu_tokenised" else ("text", "tokens")
        references = files[first if first in files else second]["references"]
        rows[name] = {
            "label": score.get("label"),
            "score": score.get("score"),
            "signature": score.get("signature"),
            "precision": translation.get("precision"),
            "decoding": describe_search(translation["options"]),
            "sentences": report["lines"],
            "references_sha256": references["sha256"],
        }
    return rows
