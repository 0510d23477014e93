"""Translates text line by line with a packed model.

    vaswani translate MODEL FILE… > translations      several files count as one text
    echo "It is late." | vaswani translate MODEL
    vaswani translate MODEL                           each line that you type is answered at once
    vaswani translate MODEL FILE --output OUT         written when complete; rerun to resume
    vaswani translate MODEL FILE --json               one JSON object per line: the translation, its
                                                      score, and signs of a bad translation

MODEL is a folder made by 'vaswani pack' or 'vaswani export --to ctranslate2'. It records the
defaults of the search options. With --nbest N there are N output lines per input line; --scores and
--print-alignment add tab-separated columns. Text is translated in windows of --buffer-size lines;
--workers does not change the translations.

A line of several sentences that is longer than 99 % of the training lines is translated sentence by
sentence, and the translations are joined. Lines are not split with --split-sentences never,
--nbest, --scores or --print-alignment, nor by models of tokenised text.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.common import signals
from vaswani.common.environment import import_torch
from vaswani.common.errors import UserError
from vaswani.common.options import argument, option
from vaswani.decoding.engine import Progress
from vaswani.decoding.sentences import (
    ALWAYS,
    AUTO,
    MODES,
    NEVER,
    SentenceSplitter,
    TranslatedLine,
    as_json,
)
from vaswani.decoding.translated_file import Tally, TranslatedFile, Windows, key_of_output
from vaswani.decoding.translator import InputSentence, Translation, Translator, engine_for
from vaswani.folders.exported_model import ExportedModel, read_model
from vaswani.folders.model_folder import ModelFolder, TextModel
from vaswani.folders.recipe import SENTENCEPIECE
from vaswani.folders.search_options import TranslationOptions, as_arguments, cli_overrides

#: the length of a long line in subwords, where a model does not say that of its training text
USUAL_LENGTH = 40


@dataclass(frozen=True, kw_only=True)
class Options(as_arguments([item.name for item in fields(TranslationOptions)])):  # type: ignore[misc]
    """The model, the text and how to translate it; search options override the model's."""

    model: str = argument("MODEL", "a folder made by 'vaswani pack'")
    files: list[str] = argument(
        "FILE", "text file, plain, .gz or .xz (default: standard input)", default=[], any_name=True
    )
    scores: bool = option(False, "add a column of scores")
    json: bool = option(
        False,
        "print one JSON object per line, with the score, the number of sentences, the unknown "
        "words, and whether the line is longer than most training lines, or longer than the model "
        "allows",
    )
    precision: str = option(
        "fp32", "precision of the matrix products (default: fp32)", choices=["fp32", "bf16"]
    )
    workers: int | None = option(
        metavar="N", help="number of processes on a CPU (default: one per core)", least=1
    )
    buffer_size: int = option(
        10000,
        "number of lines to read and translate at a time (default: 10,000); 0: all",
        metavar="N",
        least=0,
    )
    split_sentences: str = option(
        AUTO,
        "which lines of several sentences to split: those longer than 99 %% of the training lines, "
        "or than 40 subwords if the model does not record this length (auto, the default), none "
        "(never), or all (always)",
        choices=MODES,
    )
    output: str | None = option(metavar="FILE", help="output file (default: standard output)")
    user_dir: str | None = option(
        metavar="DIR", help="folder that defines the model, if it is a variant of the paper's"
    )


def run(options: Options) -> int:
    """Translate with the model that the arguments name."""
    check_columns(options)
    model = read_model(Path(options.model))
    if isinstance(model, ModelFolder):  # an export needs no torch
        import_torch()
    translate_text(model, options)
    return 0


def translate(model: ModelFolder | ExportedModel, **options: Any) -> None:
    """Translate files, or standard input, with a model that was read.

    Args:
        model: :meth:`ModelFolder.read`, or what ``vaswani pack`` as a function returns
        options: fields of :class:`Options`, such as ``files=["a.en"]``, ``output="a.de"``

    Raises:
        TypeError: an unknown option.
        UserError: an option's value that cannot work, or text that cannot be read.
    """
    requested = Options(model=str(model.path), **options)
    check_columns(requested)
    translate_text(model, requested)


def check_columns(options: Options) -> None:
    """Raise UserError if two forms of output are requested at once."""
    if options.json and options.scores:
        raise UserError(
            "--scores and --json cannot be used together, because JSON lines always have the "
            "score: leave out --scores"
        )


def translate_text(folder: ModelFolder | ExportedModel, options: Options) -> None:
    """Translate the files that the options name, or standard input.

    Args:
        folder: of the model
        options: the text, and how to translate it
    """
    search = folder.search_options.changed(**cli_overrides(options))
    paths = [Path(name) for name in options.files if name != "-"]
    if paths and "-" in options.files:
        raise UserError(
            "standard input ('-') and files cannot be used together: leave out one of the two"
        )
    translator = LineTranslator(folder, options, search)
    at_terminal = not paths and not options.output and sys.stdin.isatty()
    if at_terminal:
        translator.load()
        print("one sentence per line; Ctrl-D ends", file=sys.stderr)
    windows = Windows(paths, 1 if at_terminal else options.buffer_size)
    with contextlib.ExitStack() as stack:
        if options.output:
            key = key_of_output(folder, output_settings(options, search))
            output = TranslatedFile(Path(options.output), key, paths)
            signals.set_resumable(output.is_begun)
            if stack.enter_context(output.open(windows)) is None:
                print(f"{options.output}: already translated", file=sys.stderr)
                return
            translate_windows(translator, windows, output.add, output.tally)
            output.finish({"model": str(folder.path), **output_settings(options, search)})
            output.tally.print_warnings(options.output, translator.long)
        else:
            tally = Tally()
            translate_windows(translator, windows, print_rows, tally)
            tally.print_warnings("the output", translator.long)


def output_settings(options: Options, search: TranslationOptions) -> dict[str, object]:
    """Return all that the output depends on, besides the model and the text."""
    names = ("scores", "precision", "buffer_size", "split_sentences")
    settings = {"options": asdict(search), **{name: getattr(options, name) for name in names}}
    if options.json:  # else as before there was --json, so that earlier outputs are recognised
        settings["json"] = True
    return settings


def print_rows(rows: list[str]) -> None:
    """Print to standard output and flush."""
    sys.stdout.write("".join(row + "\n" for row in rows))
    sys.stdout.flush()


def translate_windows(
    translator: "LineTranslator",
    windows: Windows,
    write: Callable[[list[str]], object],
    tally: Tally,
) -> None:
    """Translate window by window, and write each one as soon as it is translated."""
    from vaswani.common.progress import bar  # here: --help does without tqdm

    disable = None if windows.paths else True  # a bar gets in the way of a pipe's output
    with bar(desc="translate", unit=" sentences", disable=disable) as shown:
        for first, lines in windows:
            write(translator.rows(lines, first, tally, shown.update))


def splits_lines(folder: TextModel, options: Options, search: TranslationOptions) -> bool:
    """Return whether lines may be split into sentences.

    Raises:
        UserError: all are to be split, but cannot be.
    """
    recipe = folder.recipe
    names = {
        "--nbest": search.nbest > 1,
        "--scores": options.scores,
        "--print-alignment": search.print_alignment,
        f"a model of tokenised text ({folder.path})": (
            recipe.tokeniser == "none" and recipe.subword != SENTENCEPIECE
        ),
    }
    against = [name for name, is_given in names.items() if is_given]
    if against and options.split_sentences == ALWAYS:
        raise UserError(
            f"--split-sentences always cannot be used with {against[0]}, which takes each line as "
            "one sentence: leave out one of the two"
        )
    return options.split_sentences != NEVER and not against


class Line(NamedTuple):
    """A line as it is translated: its sentences, or all of it as one."""

    #: with the spaces that follow each
    texts: list[str]
    inputs: list[InputSentence]
    #: how many sentences the line has: counted where it is split, and for --json
    sentences: int = 1


class LineTranslator:
    """A model and how to use it. The model is loaded by ``load``, or when the first line comes.

    Args:
        folder: the model's
        options: the command line
        search: the search options

    Raises:
        UserError: options that exclude each other.
    """

    def __init__(
        self, folder: ModelFolder | ExportedModel, options: Options, search: TranslationOptions
    ) -> None:
        self.folder = folder
        self.options = options
        self.search_options = search
        self.translator: Translator | None = None
        self.may_split = splits_lines(folder, options, search)
        self.split: SentenceSplitter | None = None
        if self.may_split or options.json:
            self.split = SentenceSplitter(folder.recipe.source_lang)
        self.usual_length = folder.usual_length or USUAL_LENGTH

    @property
    def long(self) -> str:
        """The number of words beyond which a line is long."""
        of = "99 % of the training lines" if self.folder.usual_length else "most training lines"
        return f"{of} ({self.usual_length} subwords)"

    def load(self) -> Translator:
        """Load the model, and check that it can search with these options."""
        if isinstance(self.folder, ModelFolder):  # an export needs no torch
            from vaswani_transformer.fast.malloc import keep_freed_memory

            keep_freed_memory()
        precision, workers = self.options.precision, self.options.workers
        engine = engine_for(
            self.folder,
            precision,
            workers=workers,
            in_processes=True,
            user_dir=self.options.user_dir,
        )
        self.translator = Translator(self.folder, engine=engine)
        self.translator.options = engine.prepare_search(self.search_options)
        return self.translator

    def rows(self, lines: Sequence[str], first: int, tally: Tally, progress: Progress) -> list[str]:
        """Return the rows of a window: ``nbest`` rows per line, or one JSON object.

        Args:
            lines: raw text
            first: the number of the first line, from 1
            tally: counts untranslated lines and unknown words
            progress: called with the number of sentences translated since the last call
        """
        translator = self.translator or self.load()
        lines_read = [self.read(line, translator) for line in lines]
        sentences = [sentence for line in lines_read for sentence in line.inputs]
        results = iter(translator.translate_sentences(sentences, progress))
        rows: list[str] = []
        for number, line in enumerate(lines_read, first):
            translations = [next(results) for _ in line.inputs]
            is_long = any(map(self.is_long, line.inputs))
            translated = TranslatedLine(translations, line.texts, line.sentences, is_long)
            tally.add(number, translated)
            rows += self.written(translated)
        return rows

    def written(self, line: TranslatedLine) -> list[str]:
        """Return the rows of a line."""
        search = self.search_options
        if self.options.json:
            return [as_json(line, search.nbest, search.print_alignment)]
        if line.split:
            return [line.text]
        return list(self.columns(line.translations[0]))

    def is_long(self, sentence: InputSentence) -> bool:
        """Return whether a sentence is longer than nearly all lines of the training text."""
        return len(sentence.subwords) > self.usual_length

    def read(self, line: str, translator: Translator) -> Line:
        """Convert a line to the model's input, split into sentences if the options say so."""
        whole = translator.read(line)
        is_split = self.may_split and (
            self.options.split_sentences == ALWAYS or self.is_long(whole)
        )
        if self.split is None or not (is_split or self.options.json):
            return Line([line], [whole])
        texts = self.split(line)
        sentences = sum(bool(text.strip()) for text in texts)
        if not is_split or len(texts) < 2:
            return Line([line], [whole], sentences)
        return Line(texts, [translator.read(text.strip()) for text in texts], sentences)

    def columns(self, result: Translation) -> Iterator[str]:
        """Yield ``nbest`` rows for one input line; rows without a hypothesis are empty."""
        width = 1 + self.options.scores + 3 * self.search_options.print_alignment
        for hypothesis in result.hypotheses[: self.search_options.nbest]:
            row = [hypothesis.text]
            if self.options.scores:
                row.append(f"{hypothesis.score:.4f}")
            if self.search_options.print_alignment:
                row += [" ".join(result.source_tokens), " ".join(hypothesis.tokens)]
                row.append(" ".join(f"{s}-{t}" for s, t in hypothesis.alignment))
            yield "\t".join(row)
        for _ in range(self.search_options.nbest - len(result.hypotheses)):
            yield "\t" * (width - 1)
