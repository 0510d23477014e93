"""Reports what the demo's model learned: figures, five sentences and one picture.

    python -m scripts.demo_report RUN [STAGE=SECONDS …]

RUN is a run of a demo experiment after 'vaswani generate' and 'vaswani score'; what the stages took
is for the record. ``scripts/demo.sh`` calls it last.

RUN/eval/report.json is a whole record: the figures, and what they depend on (commit, versions,
machine, seed, commands).

No number, date or amount of the test occurs in training, so a correct number was not memorised.
For comparison: the BLEU of answering with the translation of the nearest training sentence
(nearest: the largest Dice coefficient of the sets of source words; the first if several tie).
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from experiments.demo_measures import number_rows, numbers_right, share
from vaswani.common.environment import environment
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, is_report, output_file, read_json, writing
from vaswani.common.find import DEMO_TEXT, SHIPPED
from vaswani.common.yaml_tables import read_yaml
from vaswani.data.text import read_lines
from vaswani.folders.run import Run

SHOWN = 5
FILES = ("report.json", "report.txt", "attention.png")


def report(name: str, stages: dict[str, float]) -> None:
    """Print the report, and write report.txt, report.json and attention.png into RUN/eval.

    Args:
        name: of the run
        stages: the seconds that they took
    """
    folder = Run.find(name).folder
    out = folder / "eval"
    scores, data, recipe = scores_and_data(folder)
    source, target = recipe["source_lang"], recipe["target_lang"]
    source_lines = list(read_lines(data / "text" / f"test.{source}"))
    reference_lines = list(read_lines(data / "text" / f"test.{target}"))
    translations = list(read_lines(out / "test.hyp"))
    if not len(source_lines) == len(reference_lines) == len(translations):
        raise UserError(
            f"{out / 'test.hyp'} has {len(translations):,} lines, but the test has "
            f"{len(reference_lines):,}: run 'vaswani generate' again"
        )
    train = [list(read_lines(data / "text" / f"train.{lang}")) for lang in (source, target)]
    values = number_rows(DEMO_TEXT / f"test.values.{target}.tsv")
    figures = {
        "bleu": scores["bleu"],
        "exact_match": share(
            hyp == ref for hyp, ref in zip(translations, reference_lines, strict=True)
        ),
        "numbers_right": numbers_right(values, translations),
        "nearest_training_sentence_bleu": nearest_bleu(
            source_lines, reference_lines, train[0], train[1]
        ),
        "training": read_training(folder),
        "generation_seconds": scores["translation"]["seconds"],
        "stage_seconds": stages,
        "environment": {
            **environment(),
            "command": shlex.join(["scripts/demo_report.py", *sys.argv[1:]]),
        },
    }
    numbers, words, picture = (
        output_file(out / name, may_replace=is_of_a_report) for name in FILES
    )
    lines = (
        summary(figures)
        + examples(source_lines, reference_lines, translations)
        + locations(folder, data, picture)
    )
    with writing(numbers):
        with atomic_write(numbers) as stream:  # first: it says whose the other two files are
            json.dump(figures, stream, indent=1)
        with atomic_write(words) as stream:
            stream.write("\n".join(lines) + "\n")
        checkpoint = scores["translation"]["checkpoint"]
        draw_attention(picture, checkpoint, source_lines[0], translations[0])
    print("\n".join(lines))


def is_of_a_report(path: Path) -> bool:
    """Return whether a file beside the translations is from an earlier report."""
    return is_report(path.with_name(FILES[0]), "exact_match", "nearest_training_sentence_bleu")


def scores_and_data(folder: Path) -> tuple[dict[str, Any], Path, dict[str, Any]]:
    """Return the scores of a run, the folder of its data, and the data's recipe.

    Raises:
        UserError: it is not scored yet, or its text is not the demo's.
    """
    scores = read_json(folder / "eval" / "test.score.json")
    if "translation" not in scores or "bleu" not in scores:
        raise UserError(f"{folder} has no scores yet: run 'vaswani generate' and 'vaswani score'")
    data = Path(scores["translation"]["data"]).parent
    recipe = read_yaml(data / "recipe.yaml")
    if SHIPPED / str(recipe.get("test")) != DEMO_TEXT / "test":
        raise UserError(f"{folder} was not trained on the demo's text: there is nothing to report")
    return scores, data, recipe


def nearest(source_lines: list[str], training_lines: list[str]) -> list[int]:
    """Return, for each sentence, the index of the most similar training sentence.

    Similarity is the Dice coefficient of the two sets of words. The sets are bit masks, so that 500
    × 20,000 comparisons take seconds. A word that no training sentence has counts only towards the
    size of the sentence's set.
    """
    bits: dict[str, int] = {}
    for line in training_lines:
        for word in line.split():
            bits.setdefault(word, 1 << len(bits))
    masks = [word_mask(line, bits) for line in training_lines]
    sizes = [len(set(line.split())) for line in training_lines]
    closest = []
    for line in source_lines:
        words = word_mask(line, bits)
        size = len(set(line.split()))
        dice = [
            2 * (words & other).bit_count() / (size + count)
            for other, count in zip(masks, sizes, strict=True)
        ]
        closest.append(dice.index(max(dice)))
    return closest


def word_mask(line: str, bits: dict[str, int]) -> int:
    """Return the set of a sentence's known words, as a bit mask."""
    result = 0
    for word in line.split():
        result |= bits.get(word, 0)
    return result


def nearest_bleu(
    source_lines: list[str], reference_lines: list[str], sources: list[str], targets: list[str]
) -> float:
    """Return the BLEU of copying the translation of the nearest training sentence."""
    from sacrebleu.metrics import BLEU

    copied = [targets[index] for index in nearest(source_lines, sources)]
    return round(BLEU().corpus_score(copied, [reference_lines]).score, 2)


def read_training(folder: Path) -> dict[str, Any]:
    """Return the updates, seconds, seed and environment of a finished training.

    The seconds are those of all its starts; the command and the machine are those of the last.

    Raises:
        UserError: the training has not finished.
    """
    finished = read_json(folder / "finished.json")
    if "num_updates" not in finished:
        raise UserError(f"{folder} has not finished training: run 'vaswani train' again")
    ran_on = read_json(folder / "env.json")
    ran_on.pop("data", None)
    return {
        "updates": finished["num_updates"],
        "seconds": finished.get("seconds") or 0.0,
        "seed": Run(folder).configuration().get("common", {}).get("seed"),
        "starts": 1 + len(ran_on.pop("earlier_starts", [])),
        "environment": ran_on,
    }


def draw_attention(path: Path, checkpoint: str, source: str, translation: str) -> None:
    """Draw the attention of the last decoder layer while it reads a sentence's translation."""
    from vaswani.attention_page.maps import attend, open_model, view
    from vaswani.attention_page.page import MOST_WEIGHTS
    from vaswani.attention_page.picture import draw

    with open_model(checkpoint) as model:
        attention = attend(model, source, translation, MOST_WEIGHTS)
    weights, rows, columns = view(attention, "cross", "subwords")
    draw(path, weights[-1], (rows, columns), "Cross-attention of the last decoder layer")


def summary(report: dict[str, Any]) -> list[str]:
    """Return the report's figures as lines of text."""
    training, copied = report["training"], report["nearest_training_sentence_bleu"]
    return [
        f"BLEU                       {report['bleu']['score']:.2f}   {report['bleu']['signature']}",
        f"sentences exactly right    {report['exact_match']:.1f} %",
        f"numbers right              {report['numbers_right']:.1f} %   (none occurs in training)",
        f"copying the nearest training sentence instead: BLEU {copied:.2f}",
        f"training {training['updates']:,} updates in {training['seconds']:.0f} s, "
        f"translation {report['generation_seconds']:.0f} s",
        *stage_lines(report["stage_seconds"]),
        "",
    ]


def stage_lines(seconds: dict[str, float]) -> list[str]:
    """Return a line with the seconds of each stage, starts included; none if they are unknown."""
    listed = ", ".join(f"{stage} {value:.0f} s" for stage, value in seconds.items())
    return [f"stages: {listed}; in all {sum(seconds.values()):.0f} s"] if listed else []


def examples(
    source_lines: list[str], reference_lines: list[str], translations: list[str]
) -> list[str]:
    """Return the lines of five evenly spaced test sentences, right or wrong."""
    lines = []
    for index in range(0, len(source_lines), max(1, len(source_lines) // SHOWN))[:SHOWN]:
        lines.append(f"  source       {source_lines[index]}")
        lines.append(f"  translation  {translations[index]}")
        if translations[index] == reference_lines[index]:
            lines.append("  (as the reference)")
        else:
            lines.append(f"  reference    {reference_lines[index]}")
        lines.append("")
    return lines


def locations(folder: Path, data: Path, picture: Path) -> list[str]:
    """Return lines that say where the results are."""
    return [
        f"text, tokens, BPE, binary   {data}",
        f"checkpoints, logs           {folder}",
        f"translations, scores        {folder / 'eval'}",
        f"attention                   {picture}",
    ]


def main(words: list[str]) -> None:
    """Report on a run; print one line if that is impossible."""
    stages = dict(word.split("=") for word in words[1:])
    try:
        report(words[0], {stage: float(seconds) for stage, seconds in stages.items()})
    except UserError as error:
        sys.exit(f"demo_report: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
