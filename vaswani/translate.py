"""Text in, text out, line for line, with a packed model.

    vaswani translate MODEL FILE… > translations      several files are one text
    echo "It is late." | vaswani translate MODEL
    vaswani translate MODEL                           a prompt that answers at once
    vaswani translate MODEL FILE --output OUT         written aside; the same command continues it
    vaswani translate MODEL FILE --num-shards 4 --shard-id 0 --output OUT.0     and so on; cat OUT.*

MODEL is a folder that 'vaswani pack' made, or 'vaswani export --to ctranslate2'; options not given
are those that it was packed with. With --nbest N there are N lines for each; --scores and
--print-alignment add columns, separated by tabs. Text is translated in windows of --buffer-size
lines; --workers and shards change nothing.
"""

import argparse
import contextlib
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from vaswani.errors import UserError
from vaswani.export_folder import is_export, read_model
from vaswani.model_folder import ModelFolder
from vaswani.search import SearchOptions, search_options
from vaswani.search_options import OPTIONS
from vaswani.text_input import STDIN, Windows, count_lines, parse_line
from vaswani.translated import Tally, TranslatedFile, key_of_output

#: options of the search that are switches
SWITCHES = {
    "print_alignment": "which words look at which: columns of tokens and of pairs",
    "replace_unk": "copy the source's word for one that the model does not know",
    "sampling": "draw words by their probability, in place of beam search",
}
#: of sampling, and of batches
NUMBERS: Dict[str, Callable[[str], Any]] = {
    "sampling_topk": int,
    "sampling_topp": float,
    "temperature": float,
    "seed": int,
    "max_tokens": int,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the text, fairseq's options of the search, and how to go about it."""
    parser.add_argument("model", metavar="MODEL", help="a folder that 'vaswani pack' made")
    parser.add_argument("files", nargs="*", metavar="FILE", help="text (standard input); .gz, .xz")
    for name, kind in {**OPTIONS, **NUMBERS}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N")
    parser.add_argument("--length-penalty", choices=["fairseq", "gnmt"], help="of --lenpen")
    for name, meaning in SWITCHES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=meaning)
    parser.add_argument("--scores", action="store_true", help="a column of scores")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--workers", type=int, metavar="N", help="processes, on a CPU (one a core)")
    parser.add_argument(
        "--buffer-size", type=int, metavar="N", default=10000, help="lines a window (10,000)"
    )
    parser.add_argument("--num-shards", type=int, metavar="N", default=1, help="parts of the text")
    parser.add_argument("--shard-id", type=int, metavar="N", default=0, help="which, from 0")
    parser.add_argument("--output", metavar="FILE", help="in place of standard output")


def run(args: argparse.Namespace) -> int:
    """Translate what the arguments name."""
    folder = read_model(Path(args.model))
    options = search_options(folder.config["generation"], args.model).changed(**given(args))
    check(args, options)
    paths = [Path(name) for name in args.files if name != "-"] if args.files != ["-"] else []
    if len(paths) < len(args.files) and paths:
        raise UserError("standard input ('-') and files cannot be one text: give the one or other")
    translating = Translating(folder, args, options)
    if not paths and not args.output and sys.stdin.isatty():
        prompt(translating)
        return 0
    windows = shard(paths, args)
    with contextlib.ExitStack() as stack:
        if args.output:
            key = key_of_output(folder, said(args, options))
            output = TranslatedFile(Path(args.output), key, paths)
            if stack.enter_context(output.open(windows)) is None:
                print(f"{args.output}: already translated", file=sys.stderr)
                return 0
            translate(translating, windows, output.add, output.tally)
            output.finish({"model": str(folder.path), **said(args, options)})
            output.tally.tell(args.output)
        else:
            tally = Tally()
            translate(translating, windows, print_rows, tally)
            tally.tell("the output")
    return 0


def given(args: argparse.Namespace) -> Dict[str, Any]:
    """The options of the search that the command line has."""
    found = {item.name: getattr(args, item.name) for item in fields(SearchOptions)}
    return {n: value for n, value in found.items() if value is not None and value is not False}


def said(args: argparse.Namespace, options: SearchOptions) -> Dict[str, Any]:
    """All that the output depends on, beside the model and the text."""
    names = ("scores", "precision", "buffer_size", "num_shards", "shard_id")
    return {"options": asdict(options), **{name: getattr(args, name) for name in names}}


def check(args: argparse.Namespace, options: SearchOptions) -> None:
    """Raises UserError for options that cannot be, before a model is loaded."""
    for name in ("buffer_size", "num_shards"):
        if getattr(args, name) < 1:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} is {getattr(args, name)}, but must be at least 1")
    if not 0 <= args.shard_id < args.num_shards:
        raise UserError(
            f"--shard-id {args.shard_id} must be from 0 to {args.num_shards - 1}, one less than "
            "--num-shards"
        )


def shard(paths: Sequence[Path], args: argparse.Namespace) -> Windows:
    """The text's windows, or those of one shard: consecutive ones.

    Raises:
        UserError: a file is missing or no text; a shard of standard input.
    """
    if args.num_shards == 1:
        return Windows(paths, args.buffer_size)
    if not paths:
        raise UserError("--num-shards needs a FILE: lines of standard input cannot be counted")
    windows = -(-count_lines(paths) // args.buffer_size)
    first, last = (windows * n // args.num_shards for n in (args.shard_id, args.shard_id + 1))
    return Windows(paths, args.buffer_size, first, last)


def print_rows(rows: List[str]) -> None:
    """To standard output, at once."""
    sys.stdout.write("".join(row + "\n" for row in rows))
    sys.stdout.flush()


def translate(
    translating: "Translating", windows: Windows, write: Callable[[List[str]], Any], tally: Tally
) -> None:
    """Translate window by window; each is written when it is done."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # no thread of its own beside processes that are forked
    shown = None if windows.paths else True  # beside a pipe's output a bar is in the way
    with tqdm(desc="translate", unit=" lines", disable=shown) as bar:
        for first, lines in windows:
            write(translating.rows(lines, first, tally, bar.update))


def prompt(translating: "Translating") -> None:
    """Answer each line of a terminal; what is wrong with one does not end the session."""
    print("one sentence a line; Ctrl-D ends", file=sys.stderr)
    number = 0
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        raw = sys.stdin.buffer.readline()
        if not raw:
            print(file=sys.stderr)
            return
        number += 1
        tally = Tally()
        try:
            line = parse_line(raw.rstrip(b"\n"), STDIN, number)
            print_rows(translating.rows([line], number, tally, lambda _: None))
            tally.tell("the output")
        except UserError as error:
            print(f"{error}", file=sys.stderr)


class Translating:
    """A model and what is asked of it. The model is loaded when the first line comes.

    Args:
        folder: of the model
        args: the command line
        options: of the search
    """

    def __init__(
        self, folder: ModelFolder, args: argparse.Namespace, options: SearchOptions
    ) -> None:
        self.folder, self.args, self.options = folder, args, options
        self.translator: Any = None

    def load(self) -> None:
        """Load the model."""
        if is_export(self.folder):
            from vaswani.ctranslate2_translator import CTranslate2Translator

            workers = self.args.workers
            self.translator = CTranslate2Translator(
                self.folder, self.args.precision, workers=workers
            )
            self.translator.starter(self.options)  # which checks them
            return
        from vaswani.translator import Translator
        from vaswani.workers import processes

        self.translator = Translator(self.folder, self.args.precision)
        self.workers = processes(self.args.workers, self.translator.on_cpu)
        self.search = self.translator.searcher(self.options)

    def rows(
        self, lines: Sequence[str], first: int, tally: Tally, progress: Callable[[int], Any]
    ) -> List[str]:
        """What is written for a window: ``nbest`` rows a line.

        Args:
            lines: raw text
            first: the number of the first, from 1
            tally: counts what was not translated, and unknown words
            progress: told the number of sentences that were translated since it was last told
        """
        if self.translator is None:
            self.load()
        translator = self.translator
        rows: List[str] = []
        sources = [translator.read(line) for line in lines]
        found = self.find(sources, progress)
        for number, source in enumerate(sources):
            result = translator.result(source, found.get(number, []), self.options)
            tally.add(first + number, result)
            rows += self.columns(result)
        return rows

    def find(
        self, sources: List[Any], progress: Callable[[int], Any]
    ) -> Dict[int, List[Dict[str, Any]]]:
        """The hypotheses of each sentence that can be translated, by its place."""
        from vaswani.translator import batches
        from vaswani.workers import Workers, one_thread

        translator = self.translator
        groups = batches(sources, self.options.max_tokens or translator.batch_tokens)
        if is_export(self.folder):
            return dict(translator.find(sources, groups, self.options, progress))
        found: Dict[int, List[Dict[str, Any]]] = {}
        with one_thread() if translator.on_cpu else contextlib.nullcontext():
            if min(self.workers, len(groups)) <= 1:
                for group in groups:
                    results = self.search(translator.sample(sources, group))
                    found.update(zip(group, results, strict=True))
                    progress(len(group))
                return found
            with Workers(min(self.workers, len(groups)), progress) as pool:
                pool.batches = [(Samples(translator, sources), group) for group in groups]
                pool.start(self.search)
                return {number: pool.hypotheses(number) for group in groups for number in group}

    def columns(self, result: Any) -> Iterator[str]:
        """The rows of one line: as many as ``nbest``, whatever was found."""
        for number in range(self.options.nbest):
            there = number < len(result.hypotheses)
            found = result.hypotheses[number] if there else None
            row = [found.text if found else ""]
            if self.args.scores:
                row.append(f"{found.score:.4f}" if found else "")
            if self.options.print_alignment:
                row.append(" ".join(result.source_tokens) if found else "")
                row.append(" ".join(found.tokens) if found else "")
                row.append(" ".join(f"{s}-{t}" for s, t in found.alignment) if found else "")
            yield "\t".join(row)


class Samples:
    """The sentences of a window as :class:`vaswani.workers.Workers` takes them: by number."""

    def __init__(self, translator: Any, sources: List[Any]) -> None:
        self.translator, self.sources = translator, sources

    def __getitem__(self, number: int) -> int:
        return number

    def collater(self, numbers: List[int]) -> Optional[Dict[str, Any]]:
        """A batch."""
        return self.translator.sample(self.sources, numbers)
