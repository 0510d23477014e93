"""What ``vaswani score`` reads, computes, prints and writes of a system and of another one."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric

from vaswani.common.errors import UserError, list_numbers, plural
from vaswani.common.files import atomic_write, is_report, output_file, sha256_of, writing
from vaswani.data import round_trip
from vaswani.data.tokenisation import moses_tokeniser
from vaswani.decoding.translated_file import check_files
from vaswani.folders.run import Run
from vaswani.folders.search_options import describe_search
from vaswani.scoring import bleu, parses, published
from vaswani.scoring.score_input import (
    AlignedLines,
    ScoreInput,
    input_of_files,
    input_of_run,
    looks_tokenised,
)
from vaswani_transformer.io.moses import language_of

#: the brevity penalty below which to say something about it
SHORT = 0.95
#: BLEU below which translations have little in common with references, whatever their length
UNLEARNED = 5.0
LABELS = {"bleu": "sacreBLEU", "chrf": "chrF", "bleu_tokenised": "tokenised BLEU"}


def report_scores(
    system: ScoreInput, path: Path, other: ScoreInput | None, other_name: str | None
) -> None:
    """Print the scores of a system, and save them.

    Args:
        system: is scored
        path: of the report
        other: what the system is compared with, if anything
        other_name: the file or run that this is
    """
    warn(system.main)
    results, left_out = score(system)
    figures = published.published_figures(system.test_set, system.pair, len(system.main.references))
    lines = [*table(results), conditions(system)]
    report: dict[str, object] = {key: row.to_json() for key, row in results.items()}
    report.update(facts(system), left_out=left_out)
    if figures:
        assert system.test_set and system.pair, "the figures are looked up by these"
        report["published"] = [figure._asdict() for figure in figures]
        lines += published.table(figures, system.test_set, "-".join(system.pair))
    if other:
        significance = significance_of(system, other)
        with_other = {"with": other_name, "files": other.main.fingerprints()}
        report["comparison"] = {**with_other, **asdict(significance)}
        lines += comparison_table(significance, str(other_name))
    files = [*system.inputs(), *(other.inputs() if other else [])]
    path = save(report, "chrf", path, files)
    print("\n".join(lines))
    advice = remark(results)
    if advice:
        print(advice, file=sys.stderr)
    perfect = system.perfect_score()
    if perfect and round_trip.is_low(*perfect[:2]):
        print(f"with this data {round_trip.limit(*perfect)}", file=sys.stderr)
    for reason in left_out:
        print(f"left out: {reason}", file=sys.stderr)
    print(f"written to {path}", file=sys.stderr)


def report_parses(system: ScoreInput, path: Path) -> None:
    """Print the figures of a run's parses, and save them."""
    report = parses.of_run(system)
    path = save(report.to_json(), "f1", path, list(report.files.values()))
    print("\n".join(report.lines()))
    print(f"written to {path}", file=sys.stderr)


def input_with_references(
    hypotheses: str,
    reference_files: Sequence[str],
    pair: str | None,
    test_set: str | None,
    tokenised: bool,
) -> ScoreInput:
    """Return the input of a score for a file of hypotheses and its references.

    Raises:
        UserError: it cannot be scored, or the references are not the test set's.
    """
    references = [*map(Path, reference_files)]
    check_files([Path(hypotheses), *references])
    system = input_of_files(Path(hypotheses), references, pair, test_set, tokenised)
    sentences = published.SENTENCES.get(test_set or "")
    if sentences and sentences != len(system.main.references):
        raise UserError(
            f"{test_set} has {sentences:,} sentences, but {system.main.files[1]} has "
            f"{len(system.main.references):,}, so that file is not this test set: correct "
            "--test-set, or leave it out"
        )
    return system


def other_input(name: str, system: ScoreInput, subset: str | None) -> ScoreInput:
    """Return the other system: a file of hypotheses for the same references, or a run.

    Args:
        name: of the file or run
        system: is scored
        subset: of the run; None: ``system`` is no run, and so the other is none

    Raises:
        UserError: it is neither, or cannot be scored.
    """
    if subset and not Path(name).is_file():
        return input_of_run(name, subset)
    check_files([Path(name)])
    pair = "-".join(system.pair) if system.pair else None
    references = system.main.files[1:]
    return input_of_files(Path(name), references, pair, None, tokenised=not system.text)


def score(system: ScoreInput) -> tuple[dict[str, bleu.ScoreRow], list[str]]:
    """Compute every possible row, the one to quote first, and say why others are left out."""
    text, tokens, pair, main = system.text, system.tokens, system.pair, system.main
    metrics, missing = metrics_of(system)
    left_out = [missing] if missing else []
    metrics.pop("bleu_tokenised", None)  # below, as of all tokens
    quoted = bleu.sacrebleu_rows(main.hypotheses, main.all_references, metrics, system.signature)
    rows = quoted if text else {}
    reason = ""
    if text and not system.spaced:
        reason = "Moses' tokeniser needs spaces between words"
    elif text and not pair:
        reason = "Moses' tokeniser needs the language: give --pair, such as en-de"
    if reason:
        left_out.append(f"tokenised BLEU: {reason}")
    elif tokens:
        label = "tokenised BLEU" + (" (hyphens split)" if system.split_hyphens else "")
        rows["bleu_tokenised"] = bleu.multi_bleu(label, tokens.hypotheses, *tokens.all_references)
    elif text and pair:
        moses = moses_tokeniser(language_of(pair[1]))
        sides = [[*map(moses, side)] for side in (text.hypotheses, *text.all_references)]
        rows["bleu_tokenised"] = bleu.multi_bleu("tokenised BLEU", *sides)
    splits_compounds = not pair or language_of(pair[1]) == "de"  # no paper splits others
    if splits_compounds and main.further:
        left_out.append("compound-split BLEU: its script has one reference for each sentence")
    elif splits_compounds:
        try:
            if text and pair and not reason:
                rows.update(bleu.compound_split_rows(text.hypotheses, text.references, "de"))
            elif tokens and not reason:
                split = bleu.compound_split_tokens(tokens.hypotheses, tokens.references)
                rows["compound_split"] = split
        except UserError as error:  # hyphens are already split
            reason = str(error)
        left_out += [f"compound-split BLEU: {reason}"] if reason else []
    if not text:
        left_out.append("sacreBLEU: it needs untokenised text, but these are tokens")
        rows["chrf"] = quoted["chrf"]
    return rows, left_out


def metrics_of(system: ScoreInput) -> tuple[dict[str, Metric], str]:
    """Return sacreBLEU's metrics for this system.

    The second value says why better tokens are not used, or is empty.
    """
    if not system.text:  # sacreBLEU must not tokenise again
        return {"bleu_tokenised": bleu.tokenised_metric(), "chrf": CHRF()}, ""
    tokens, missing = bleu.tokens_for(system.pair[1] if system.pair else None, system.spaced)
    return {"bleu": BLEU(tokenize=tokens), "chrf": CHRF()}, missing


def facts(system: ScoreInput) -> dict[str, object]:
    """Return the files and data that the numbers refer to, as a report holds them."""
    sides = {"text": system.text, "tokens": system.tokens}
    return {
        "files": {name: side.fingerprints() for name, side in sides.items() if side},
        "lines": len(system.main.references),
        "pair": "-".join(system.pair) if system.pair else None,
        "test_set": system.test_set,
        "without_output": system.main.without_output(),
        **({"translation": system.translation} if system.translation else {}),
    }


def conditions(system: ScoreInput) -> str:
    """Describe the conditions of the scores: how the text was decoded, and the references."""
    lines = system.main
    digest = sha256_of(lines.files[1])[:12]
    parts = [
        plural(len(lines.references), "sentence"),
        f"references {lines.files[1]} (SHA-256 {digest})",
    ]
    if "options" in system.translation:  # of a run
        search = describe_search(system.translation["options"])
        parts.insert(0, f"decoded with {search}, in {system.translation.get('precision', 'fp32')}")
    return "; ".join(parts)


def warn(lines: AlignedLines) -> None:
    """Warn of sentences without a translation, and of translations that look like tokens."""
    empty = lines.without_output()
    path = lines.files[0]
    if empty:
        print(
            f"warning: {len(empty):,} of {len(lines.references):,} sentences have no translation "
            f"in {path}: lines {list_numbers(empty)}",
            file=sys.stderr,
        )
    if looks_tokenised(lines.hypotheses) and not looks_tokenised(lines.references):
        advice = "detokenise it, or its scores will be low"
        print(f"warning: {path} looks tokenised, its references do not: {advice}", file=sys.stderr)


def table(rows: dict[str, bleu.ScoreRow]) -> list[str]:
    """Return the scores as lines to print: with n-gram precisions, or with sacreBLEU's
    signature.
    """
    lines = []
    for key, row in rows.items():
        by_sacrebleu = key in ("bleu", "chrf")
        detail = row.signature if by_sacrebleu else row.text.split(" ", 3)[3]
        lines.append(f"{row.label:<46}{row.score:6.2f}   {detail}")
    return lines


def remark(rows: dict[str, bleu.ScoreRow]) -> str:
    """Return advice about translations that are much too short, or an empty string."""
    row = rows.get("bleu") or rows.get("bleu_tokenised")
    if row is None or row.brevity_penalty is None or row.length_ratio is None:
        return ""
    if row.brevity_penalty >= SHORT or row.score < UNLEARNED:
        return ""
    return (
        f"too short: the translations have {row.length_ratio:.0%} of the references' length, "
        f"and BLEU's brevity penalty is {row.brevity_penalty:.2f}. Training longer helps most, "
        "a larger --lenpen in 'vaswani generate' (1.0, 1.2) a little"
    )


def significance_of(system: ScoreInput, other: ScoreInput) -> bleu.Significance:
    """Test whether this system and another differ significantly.

    Raises:
        UserError: the other system has different references.
    """
    this, that = system.main, other.main
    if bool(system.text) != bool(other.text) or this.all_references != that.all_references:
        raise UserError(
            f"{this.files[1]} and {that.files[1]} differ: give two systems with the same references"
        )
    warn(that)
    metrics, _ = metrics_of(system)
    return bleu.paired_test(metrics, this.hypotheses, that.hypotheses, this.all_references)


def comparison_table(significance: bleu.Significance, other: str) -> list[str]:
    """Return the comparison as lines to print.

    Args:
        significance: of the differences
        other: the file or run that the system is compared with
    """
    lines = [
        "",
        f"{significance.test}, {significance.trials:,} trials, seed {significance.seed}; "
        f"other: {other}",
        f"{'':<16}{'this':>14}{'other':>16}{'p':>9}",
    ]
    for key, row in significance.metrics.items():
        this = f"{row.score:.2f} ± {row.interval:.2f}"
        that = f"{row.other_score:.2f} ± {row.other_interval:.2f}"
        lines.append(f"{LABELS[key]:<16}{this:>14}{that:>16}{row.p:>9.4f}")
    return lines


def save(report: Mapping[str, object], key: str, path: Path, read: list[Path]) -> Path:
    """Write a report; it may replace a file only if that has the key of a report, too.

    Raises:
        UserError: another file would be overwritten there.
    """
    path = output_file(path, read, lambda there: is_report(there, key), "report of scores")
    with writing(path), atomic_write(path) as stream:
        json.dump(report, stream, indent=1)
    return path


def is_packable(run: Run) -> bool:
    """Return whether a run's model is this plugin's or fairseq's Transformer, which can be
    packed.
    """
    name = str(run.configuration().get("model", {}).get("_name"))
    return name.startswith(("vaswani_transformer", "transformer"))
