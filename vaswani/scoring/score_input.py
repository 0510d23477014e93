"""Reads and checks what is scored: hypotheses beside references, as text and as tokens.

A line of one file belongs to the same line of the other. Input whose score would mean something
else (references that are tokens, hypotheses in subwords) is refused.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sacrebleu

from vaswani.common.errors import UserError, plural
from vaswani.common.files import sha256_of
from vaswani.common.find import first_data_bin
from vaswani.data.text import read_lines
from vaswani.data.tokenisation import to_nfc
from vaswani.decoding.earlier_translations import translation_outputs
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.recipe import SENTENCEPIECE, Name
from vaswani.folders.run import SCORES, Run, TranslationRecord
from vaswani.scoring.bleu import has_spaces, refuse_split, split_mark
from vaswani.scoring.published import BY_NAME

_BPE_MARK = re.compile(r"@@( |$)")
_SPACED_PUNCTUATION = re.compile(r" [.,]( |$)")
_PAIR = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")


def fingerprint_of(path: Path) -> dict[str, str]:
    """Return a file and its hash, as a report holds them."""
    return {"file": str(path), "sha256": sha256_of(path)}


@dataclass(frozen=True)
class AlignedLines:
    """Hypotheses and references, line by line, and the files they are from.

    Attributes:
        hypotheses: the translations
        references: what they are compared with
        files: of the hypotheses, of the references, and of further ones
        further: more references of the same sentences, if there are several
    """

    hypotheses: list[str]
    references: list[str]
    files: tuple[Path, ...]
    further: tuple[list[str], ...] = ()

    @property
    def all_references(self) -> list[list[str]]:
        """Each file's references, as sacreBLEU takes them."""
        return [self.references, *self.further]

    def fingerprints(self) -> dict[str, dict[str, str]]:
        """Return the files and their fingerprints, as a report holds them."""
        names = ["hypotheses", "references"]
        names += [f"references_{number}" for number in range(2, len(self.files))]
        return {name: fingerprint_of(path) for name, path in zip(names, self.files, strict=True)}

    def without_output(self) -> list[int]:
        """Return the line numbers, from 1, of empty hypotheses whose reference is not empty."""
        rows = zip(self.hypotheses, self.references, strict=True)
        return [n for n, (hyp, ref) in enumerate(rows, 1) if ref.strip() and not hyp.strip()]


@dataclass(frozen=True)
class ScoreInput:
    """All there is to score for one system.

    ``text``: detokenised. ``tokens``: as the system made them. One of them may be missing.
    """

    out: Path
    text: AlignedLines | None = None
    tokens: AlignedLines | None = None
    pair: tuple[str, str] | None = None
    #: sacreBLEU's name of the test set, if it is one of WMT's
    test_set: str | None = None
    #: for the signature, if sacreBLEU itself gave the references
    signature: dict[str, str] = field(default_factory=dict)
    #: the tokens had Moses' ``-a``
    split_hyphens: bool = False
    #: of a run that writes trees: the treebank's, in Penn brackets
    trees: Path | None = None
    #: how a run translated
    translation: Mapping[str, Any] = field(default_factory=dict)

    def inputs(self) -> list[Path]:
        """Return the files that are read."""
        both = [sides for sides in (self.text, self.tokens) if sides]
        return [file for sides in both for file in sides.files]

    @property
    def spaced(self) -> bool:
        """Whether the target's words have spaces between them."""
        return has_spaces(self.pair[1] if self.pair else None, self.main.references)

    def perfect_score(self) -> tuple[float | None, float, Name] | None:
        """Return how well text is restored from its tokens, which bounds a run's score.

        Returns:
            the share of lines that come back in percent, the BLEU, and what split the words, if
                known; None if it was not measured
        """
        if "data" not in self.translation:
            return None
        recipe = PreparedText.around(first_data_bin(self.translation["data"])).recipe()
        if recipe is None or recipe.restored_bleu is None:
            return None
        return recipe.restored_lines, recipe.restored_bleu, recipe.subword

    @property
    def main(self) -> AlignedLines:
        """The sides for counts and warnings: text if there is any, else tokens."""
        sides = self.text or self.tokens
        assert sides is not None, "one of them is there"
        return sides


def input_of_run(name: str, subset: str) -> ScoreInput:
    """Return a run's translations beside the references that ``vaswani prepare`` kept.

    Raises:
        UserError: nothing is translated yet, the data's text is gone, or a file cannot be scored.
    """
    run = Run.find(name)
    results = run.translations(subset)
    translation_outputs(results).recover()
    tokens, translations = results.tokens, results.text
    record = results.record()
    if not translations.is_file() or not tokens.is_file() or not record or record.data is None:
        raise UserError(f"{run} has no translations of '{subset}': run 'vaswani generate' first")
    data_bin = first_data_bin(record.data)
    check_translated(data_bin, record, translations, name)
    prepared = PreparedText.around(data_bin)
    recipe = prepared.recipe()
    if recipe is None:
        raise UserError(
            f"{prepared.folder} was not made by 'vaswani prepare', so its references are unknown: "
            f"use --hypotheses {translations} --references FILE"
        )
    sentences = prepared.sentences(subset, recipe.target_lang)
    references = prepared.tokens(subset, recipe.target_lang)
    prepared.check([sentences, references])
    wmt = recipe.archives == "wmt14"
    # which are no words; there is always text beside them
    pieces = recipe.subword == SENTENCEPIECE
    compose = recipe.unicode == "NFC"
    return ScoreInput(
        out=results.scores_file,
        text=None if recipe.tokenised else read_text(translations, sentences, compose=compose),
        tokens=None if pieces else read_aligned(tokens, references, compose=compose),
        pair=recipe.langs,
        test_set=BY_NAME.get(str(getattr(recipe, subset, ""))) if wmt else None,
        split_hyphens=recipe.split_hyphens,
        trees=prepared.trees(subset) if recipe.trees else None,
        translation=record.facts,
    )


def check_translated(
    data_bin: Path, record: TranslationRecord, translations: Path, run: str
) -> None:
    """Raise UserError if a run's translations are of other data than the present.

    Args:
        data_bin: what was translated
        record: of 'vaswani generate'; those of earlier versions have no hashes
        translations: the file of translations
        run: as the user named it
    """
    for name, digest in record.sha256.items():
        path = data_bin / name
        if path.is_file() and sha256_of(path) != digest:
            raise UserError(
                f"{translations} was translated from an earlier version of {path}: run 'vaswani "
                f"generate {run}' again"
            )


def input_of_files(
    hypotheses: Path,
    references: Sequence[Path],
    pair: str | None,
    test_set: str | None,
    tokenised: bool,
) -> ScoreInput:
    """Read a file of translations beside its references, which may be a test set of sacreBLEU.

    All are brought to Unicode's form NFC: é as letter and accent would be another word.

    Raises:
        UserError: a file is missing or cannot be scored, or the test set is unavailable.
    """
    named = _PAIR.fullmatch(pair) if pair else None
    if pair and not named:
        raise UserError(f"--pair {pair} is not a language pair: write source-target, such as en-de")
    langs = (named[1], named[2]) if named else None
    out = hypotheses.with_name(hypotheses.name + SCORES)
    if test_set and pair is None:
        raise UserError(f"--test-set {test_set} needs --pair too, for example --pair en-de")
    if tokenised:
        if not references or test_set:
            raise UserError("--tokenised needs --references FILE, which must be tokens too")
        tokens = read_aligned(hypotheses, *references, compose=True)
        return ScoreInput(out, tokens=tokens, pair=langs)
    signature: dict[str, str] = {}
    if not references:
        assert test_set and pair, "one of the two is given"
        instead = (
            "connect to the internet, from which sacreBLEU downloads it once into ~/.sacrebleu"
        )
        references = [files_of(test_set, pair, f"{instead}, or give --references FILE")[1]]
        signature = {"test": test_set, "lang": pair}
    text = read_text(hypotheses, *references, compose=True)
    # not for a run, which detokenises: there a mark is the model's mistake in one sentence
    refuse_split(text.hypotheses, str(hypotheses))
    return ScoreInput(out, text=text, pair=langs, test_set=test_set, signature=signature)


def files_of(name: str, pair: str, instead: str) -> tuple[Path, Path]:
    """Return the source and the reference of a test set, from sacreBLEU's cache or downloaded by
    it.

    Args:
        name: sacreBLEU's name
        pair: such as ``en-de``
        instead: what the user can do if it is unavailable

    Raises:
        UserError: it is unavailable.
    """
    try:
        source = sacrebleu.get_source_file(name, pair)
        return Path(source), Path(sacrebleu.get_reference_files(name, pair)[0])
    except (Exception, SystemExit) as error:  # it exits if a download fails
        raise UserError(f"sacreBLEU could not give {name} {pair} ({error}): {instead}") from None


def read_text(hypotheses: Path, *references: Path, compose: bool = False) -> AlignedLines:
    """Read files of untokenised text, as :func:`read_aligned`.

    Raises:
        UserError: they cannot be scored, or the references are tokens.
    """
    sides = read_aligned(hypotheses, *references, compose=compose)
    for path, lines in zip(references, sides.all_references, strict=True):
        check_untokenised(path, lines)
    return sides


def check_untokenised(path: Path, references: list[str]) -> None:
    """Raise UserError for references that are tokens."""
    if any(map(split_mark, references)) or looks_tokenised(references):
        raise UserError(
            f"{path} seems to be tokenised, but scores need untokenised references: give "
            "the raw file, or tokens on both sides and --tokenised"
        )


def read_aligned(hypotheses: Path, *references: Path, compose: bool = False) -> AlignedLines:
    """Read a file of translations and one or more of references, line by line.

    Args:
        hypotheses: the translations
        references: one file, or several of the same sentences
        compose: bring all to Unicode's form NFC, and say so where that changes something

    Raises:
        UserError: see :func:`align`.
    """
    read = read_composed if compose else read_lines
    lines = list(read(hypotheses))
    sides = [list(read(path)) for path in references]
    return align(lines, sides, (hypotheses, *references))


def align(lines: list[str], sides: list[list[str]], files: tuple[Path, ...]) -> AlignedLines:
    """Put the lines of translations and of their references beside each other.

    Args:
        lines: the translations
        sides: the references, one or more of each sentence
        files: where the translations and each of the references are from, as messages name it

    Raises:
        UserError: they have no lines, or not the same number, or BPE was not undone.
    """
    hypotheses, *references = files
    for path, reference_lines in zip(references, sides, strict=True):
        if not lines or len(lines) != len(reference_lines):
            raise UserError(
                f"{hypotheses} has {len(lines):,} lines and {path} has {len(reference_lines):,}: "
                "every reference needs its translation on the same line"
            )
        if not any(line.strip() for line in reference_lines):
            raise UserError(
                f"all {len(reference_lines):,} lines of {path} are blank: give other references"
            )
    for path, side in zip(files, (lines, *sides), strict=True):
        number = next((number for number, line in enumerate(side, 1) if _BPE_MARK.search(line)), 0)
        if number:
            raise UserError(
                f"{path}, line {number:,}, holds BPE's mark '@@': join the subwords first "
                "(fairseq-generate --remove-bpe, or sed -E 's/@@( |$)//g')"
            )
    return AlignedLines(lines, sides[0], files, tuple(sides[1:]))


def read_composed(path: Path) -> list[str]:
    """Read the lines of a file in Unicode's form NFC, and print how many were in another."""
    lines = list(read_lines(path))
    in_nfc = [*map(to_nfc, lines)]
    changed = sum(before != after for before, after in zip(lines, in_nfc, strict=True))
    if changed:
        print(
            f"{path}: accents are separate characters in {plural(changed, 'line')}, which are "
            "scored in Unicode form NFC",
            file=sys.stderr,
        )
    return in_nfc


def looks_tokenised(lines: list[str]) -> bool:
    """Return whether most non-blank lines have a comma or full stop between spaces."""
    full = [line for line in lines if line.strip()]
    return 2 * sum(bool(_SPACED_PUNCTUATION.search(line)) for line in full) > len(full)
