"""Translates a test set by beam search; writes runs/NAME/eval/.

    vaswani generate RUN                     with what of the run has the lowest validation loss
    vaswani generate CHECKPOINT --subset valid --beam 4 --lenpen 0.6 --max-len-a 1 --max-len-b 50
    vaswani generate CHECKPOINT --length-penalty gnmt --beam 4 --lenpen 0.6 …   the paper's search
    vaswani generate RUN --workers 1         in one process; the default on a CPU is one per core

The default of an option is its value in the run's ``generation:`` or ``task:`` section. For each
subset it writes SUBSET.hyp.tok (tokens, in the order of the source), SUBSET.hyp (detokenised),
SUBSET.log (what fairseq-generate prints) and SUBSET.json (options and counts). The translations do
not depend on the number of processes.
"""

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from vaswani.common.artifact import check_folder, is_inside, key_of, writing
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, locked, sha256_of
from vaswani.common.options import argument, option
from vaswani.common.progress import bar
from vaswani.data import bpe, text, tokenise
from vaswani.decoding.decoding_text import data_files, data_folder
from vaswani.decoding.trained import decoding_task, trained_with
from vaswani.decoding.translations import Translations
from vaswani.decoding.workers import Workers, one_thread, processes
from vaswani.experiment.best_checkpoint import find_checkpoint
from vaswani.model_folder.search_options import (
    BEAM_OPTIONS,
    CPU_BATCH,
    GPU_BATCH,
    BeamOptions,
    check_search,
    given,
)


@dataclass(frozen=True, kw_only=True)
class Options(BeamOptions):
    """What to decode, and with what; also fairseq's beam search options."""

    model: str = argument(
        "RUN|CHECKPOINT", "a run (its folder, or its name under runs/) or a checkpoint"
    )
    data: Optional[str] = option(metavar="DIR", help="use this data-bin, not the run's")
    subset: str = option("test", "train, valid or test (test)")
    out: Optional[str] = option(metavar="DIR", help="where to put the results (RUN/eval)")
    max_tokens: Optional[int] = option(
        metavar="N", help=f"tokens per batch ({CPU_BATCH:,} on a CPU, {GPU_BATCH:,} on a GPU)"
    )
    workers: Optional[int] = option(
        metavar="N", help="processes, on a CPU (one per core; never more than there are batches)"
    )
    length_penalty: Optional[str] = option(
        choices=["fairseq", "gnmt"],
        help="what --lenpen means: a power of the length, or the paper's formula (the run's)",
    )
    user_dir: Optional[str] = option(
        metavar="DIR", help="a user-dir of your own that the model needs (the run's)"
    )


def run(options: Options) -> int:
    """Translate, unless the same translation is there already."""
    checkpoint, folder = find_checkpoint(options.model)
    config = generation_config(options, checkpoint, folder)
    out = Path(options.out) if options.out else folder / "eval"
    data, total = data_files(config, options.subset)
    if is_inside(out, data_folder(config)):
        raise UserError(f"{out} is where the data is: give another folder with --out")
    check_folder(out)
    search = {name: config.generation[name] for name in BEAM_OPTIONS}
    search["length_penalty"] = config.task.get("length_penalty", "fairseq")
    workers = processes(options.workers, config.common.cpu)
    key = key_of_translation(config, [checkpoint, *data])
    results = Translations(out, options.subset)
    with writing(results.report_file), locked(out / ".lock", f"{out} is being written"):
        results.recover()
        if options.out:
            results.check_replaceable()
        if results.are_of(key):
            print(f"{out}: already translated by {checkpoint}", file=sys.stderr)
            return 0
        start = time.monotonic()
        with results.making() as part:
            left_out, used = translate(config, part, options.subset, total, workers)
            report = {
                "key": key,
                "checkpoint": str(checkpoint),
                "data": str(config.task.data),
                "options": search,
                "max_tokens": config.dataset.max_tokens,
                "workers": used,
                "sentences": total,
                "not_translated": left_out,
                "seconds": round(time.monotonic() - start, 1),
            }
            results.finish(report)
    tell(report, out / f"{options.subset}.hyp")
    return 0


def translate(
    config: Any, folder: Path, subset: str, total: int, workers: int
) -> Tuple[List[int], int]:
    """Write a subset's translations into a folder.

    Returns:
        The numbers (from 1) of the sentences left out, and how many processes were used.
    """
    found, used = decode(config, folder / f"{subset}.log", total, workers)
    lines, left_out = in_order(found, total)
    text.write_lines(folder / f"{subset}.hyp.tok", lines)
    back = tokenise.detokeniser(config.task.target_lang)
    text.write_lines(folder / f"{subset}.hyp", map(back, lines))
    return left_out, used


def key_of_translation(config: Any, files: List[Path]) -> str:
    """A hash of all that translations depend on: these files' contents, task, search, batches."""
    from omegaconf import OmegaConf

    task = {**OmegaConf.to_container(config.task), "data": None}  # the data may have been moved
    search = OmegaConf.to_container(config.generation)
    hashes = [sha256_of(path) for path in files]
    return key_of([hashes, task, search, config.dataset.max_tokens])


def tell(report: Dict[str, Any], path: Path) -> None:
    """Say what was done, and name every sentence that was not translated."""
    left_out = report["not_translated"]
    if left_out:
        named = ", ".join(str(number) for number in left_out[:20])
        more = f" and {len(left_out) - 20} more" if len(left_out) > 20 else ""
        print(
            f"warning: {len(left_out)} sentences are longer than the model's limit and were not "
            f"translated (their lines in {path} are empty): lines {named}{more}",
            file=sys.stderr,
        )
    print(
        f"{path}: {report['sentences']:,} sentences by {report['checkpoint']} "
        f"in {report['seconds']:.0f} s",
        file=sys.stderr,
    )


def generation_config(options: Options, checkpoint: Path, folder: Path) -> Any:
    """fairseq's configuration for decoding: task and search as trained, then the arguments.

    Raises:
        UserError, ConfigError: an invalid option.
        CheckpointError: the file is not a usable checkpoint.
    """
    from vaswani.experiment.fairseq_config import load_plugin, with_defaults

    load_plugin()
    from fairseq.dataclass.configs import FairseqConfig
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if options.max_tokens is not None and options.max_tokens < 1:
        raise UserError(f"--max-tokens is {options.max_tokens}, but must be at least 1")
    trained = trained_with(checkpoint, folder)
    search = {key: value for key, value in trained["generation"].items() if key in BEAM_OPTIONS}
    search.update(given(options))
    try:
        generation = OmegaConf.merge(OmegaConf.structured(FairseqConfig).generation, search)
    except OmegaConfBaseException as error:
        problem = str(error).splitlines()[0]
        raise UserError(f"{folder}/config.yaml, generation: {problem}") from None
    task = decoding_task(trained["task"], options.length_penalty)
    check_search(generation, task.get("length_penalty", "fairseq"))
    config = OmegaConf.merge(
        OmegaConf.structured(FairseqConfig),
        {
            "task": task,
            "generation": search,
            "scoring": {"_name": "bleu"},
            "model": {},
            "common_eval": {"path": str(checkpoint), "post_process": bpe.MARK},
            "dataset": {
                "gen_subset": options.subset,
                "max_tokens": options.max_tokens,
                "num_workers": 0,
                "skip_invalid_size_inputs_valid_test": True,
            },
            "common": {
                "log_format": "none",
                "cpu": bool(trained["common"].get("cpu")),
                "user_dir": options.user_dir or trained["common"].get("user_dir"),
            },
        },
    )
    if options.data:
        config.task.data = options.data
    config = with_defaults(config)
    if options.max_tokens is None:
        config.dataset.max_tokens = CPU_BATCH if config.common.cpu else GPU_BATCH
    return config


class Output:
    """A text stream for fairseq's generation that keeps the source and hypothesis lines."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.lines: List[str] = []

    def write(self, piece: str) -> int:
        """Pass on what fairseq prints."""
        if piece.startswith(("S-", "H-")):
            self.lines.append(piece)
        return int(self.stream.write(piece))

    def flush(self) -> None:
        """Pass it on."""
        self.stream.flush()


def decode(config: Any, log: Path, total: int, workers: int) -> Tuple[List[str], int]:
    """Run fairseq's generation in that many processes, or in fewer.

    Returns:
        Its ``S-`` (source) and ``H-`` (hypothesis) lines; the number of processes.

    Raises:
        UserError: the model's scores are not numbers, its file is gone, or a process was killed.
    """
    import fairseq_cli.generate

    with (
        atomic_write(log) as stream,
        bar(total=total, desc="translate", unit=" sentences") as shown,
        one_thread() if config.common.cpu else contextlib.nullcontext(),
        Workers(workers, shown.update) as pool,
    ):
        output = Output(stream)
        try:
            fairseq_cli.generate._main(config, output)
        except FloatingPointError as error:  # ours, and written for the user
            raise UserError(str(error)) from None
        except OSError as error:
            if error.errno is None:  # fairseq's own: the checkpoint has disappeared in the meantime
                raise UserError(str(error)) from None
            raise
    return output.lines, pool.count


def in_order(found: List[str], total: int) -> Tuple[List[str], List[int]]:
    """One best hypothesis per source line, and the numbers (from 1) of those not translated.

    An empty source line has an empty translation, whatever the model makes of it.
    """
    lines = [""] * total
    blank, seen = set(), set()
    for line in found:
        head, *rest = line.rstrip("\n").split("\t")
        number = int(head[2:])
        if head[0] == "S":
            if not "".join(rest).strip():
                blank.add(number)
        elif number not in seen:  # the first of n-best
            seen.add(number)
            lines[number] = bpe.undo(rest[1])
    for number in blank:
        lines[number] = ""
    return lines, [number + 1 for number in range(total) if number not in seen]
