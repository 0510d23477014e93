"""Translates a test set by beam search; writes runs/NAME/eval/.

    vaswani generate RUN                     its model with the lowest validation loss
    vaswani generate CHECKPOINT --subset valid --beam 4 --lenpen 0.6 --max-len-a 1 --max-len-b 50
    vaswani generate CHECKPOINT --length-penalty gnmt --beam 4 --lenpen 0.6 …   the paper's search
    vaswani generate RUN --workers 1         in one process; the default on a CPU is one per core

The default of an option is its value in the run's ``generation:`` or ``task:`` section. For each
subset it writes SUBSET.hyp.tok (tokens, or SentencePiece's pieces, in the order of the source),
SUBSET.hyp (detokenised), SUBSET.log (lines S-, H-, D- and P- as in fairseq-generate) and
SUBSET.json (options and counts). The translations do not depend on the number of processes.
"""

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vaswani.common.artifact import check_folder, is_inside, key_of, writing
from vaswani.common.errors import UserError, listed, plural
from vaswani.common.files import atomic_write, locked, sha256_of
from vaswani.common.options import argument, option
from vaswani.common.progress import bar
from vaswani.data import text
from vaswani.data.bpe import undo
from vaswani.data.recipe import RECIPE_FILE, find_subword_model
from vaswani.data.text_recipe import SENTENCEPIECE, SUBWORD_MODELS, TargetText, TextRecipe
from vaswani.decoding.batch_decoder import (
    BatchDecoder,
    Translated,
    data_files,
    data_folder,
    data_of_run,
)
from vaswani.decoding.engine import one_thread, search_processes
from vaswani.decoding.translations import check_replaceable, translations_of
from vaswani.experiment.checkpoints import find_checkpoint
from vaswani.experiment.find import is_run, load_plugin, saved_config
from vaswani.experiment.launch import on_cpu
from vaswani.model_folder import search_options
from vaswani.model_folder.search_options import BEAM_OPTIONS, SearchOptions
from vaswani_transformer import moses


@dataclass(frozen=True, kw_only=True)
class Options(search_options.as_arguments([*BEAM_OPTIONS, "length_penalty", "max_tokens"])):  # type: ignore[misc]
    """What to decode, and with what; also fairseq's beam search options."""

    model: str = argument(
        "RUN|CHECKPOINT", "a run (its folder, or its name under runs/) or a checkpoint"
    )
    data: str | None = option(metavar="DIR", help="use this data-bin, not the run's")
    subset: str = option("test", "train, valid or test (default: test)")
    out: str | None = option(metavar="DIR", help="where to put the results (default: RUN/eval)")
    precision: str = option(
        "fp32", "of the matrix products (default: fp32)", choices=["fp32", "bf16"]
    )
    workers: int | None = option(
        metavar="N",
        help="processes, on a CPU (default: one per core), never more than there are batches",
        least=1,
    )
    user_dir: str | None = option(
        metavar="DIR", help="a user-dir of your own that the model needs (default: the run's)"
    )


def run(options: Options) -> int:
    """Translate, unless the same translation is there already."""
    from vaswani_transformer.precision import computed_in

    checkpoint, folder = find_checkpoint(options.model)
    config, search = generation_config(options, checkpoint, folder)
    out = Path(options.out) if options.out else folder / "eval"
    data, total = data_files(config, options.subset)
    if is_inside(out, data_folder(config)):
        raise UserError(f"{out} is where the data is: give another folder with --out")
    check_folder(out)
    workers = search_processes(options.workers, on_cpu(config))
    precision = computed_in(options.precision, "cpu" if on_cpu(config) else "cuda")
    key = key_of_translation(config, [checkpoint, *data], precision)
    results = translations_of(out, options.subset)
    with writing(results.record), locked(out / ".lock", f"{out} is being written"):
        results.recover()
        if options.out:
            check_replaceable(results)
        if results.are_made(key):
            print(f"{out}: already translated by {checkpoint}", file=sys.stderr)
        else:
            start = time.monotonic()
            with results.making(key) as (part, report):
                left_out, used = translate(config, search, part, total, workers)
                names = (*BEAM_OPTIONS, "length_penalty")
                report.update(
                    checkpoint=str(checkpoint),
                    sha256={path.name: sha256_of(path) for path in [checkpoint, *data]},
                    data=str(config.task.data),
                    options={name: getattr(search, name) for name in names},
                    precision=precision,
                    max_tokens=config.dataset.max_tokens,
                    workers=used,
                    sentences=total,
                    not_translated=left_out,
                    seconds=round(time.monotonic() - start, 1),
                )
            print_report(report, out / f"{options.subset}.hyp")
    references = (data_folder(config) / RECIPE_FILE).is_file()
    if not options.out and is_run(folder) and references:
        subset = [] if options.subset == "test" else ["--subset", options.subset]
        print(f"next: {shlex.join(['vaswani', 'score', str(folder), *subset])}", file=sys.stderr)
    return 0


def target_text(config: Any) -> TargetText:
    """What joins the data's subwords to text.

    Raises:
        UserError: SentencePiece made them, but its model is no longer beside the data.
    """
    folder = data_folder(config)
    kind, learned = find_subword_model(folder)
    if kind == SENTENCEPIECE and learned is None:
        raise UserError(
            f"{folder / SUBWORD_MODELS[kind].in_data} is missing: run 'vaswani prepare' again"
        )
    langs = (config.task.source_lang, config.task.target_lang)
    return TargetText(TextRecipe(*langs, bpe=kind), learned)


def translate(
    config: Any, search: SearchOptions, folder: Path, total: int, workers: int
) -> tuple[list[int], int]:
    """Write the subset's translations into a folder.

    Returns:
        The numbers (from 1) of the sentences left out, and how many processes were used.
    """
    subset = config.dataset.gen_subset
    target = target_text(config)
    translated, used = decode(config, search, folder / f"{subset}.log", total, workers)
    lines, left_out = align_to_source(translated, total, target.tokens)
    text.write_lines(folder / f"{subset}.hyp.tok", lines)
    text.write_lines(folder / f"{subset}.hyp", map(target.text, lines))
    return left_out, used


def key_of_translation(config: Any, files: list[Path], precision: str) -> str:
    """A hash of all that translations depend on: these files' contents, task, search, batches,
    what products are computed in, and how text is restored."""
    from omegaconf import OmegaConf

    task = {**OmegaConf.to_container(config.task), "data": None}  # the data may have been moved
    search = OmegaConf.to_container(config.generation)
    hashes = [sha256_of(path) for path in files]
    kind, _ = find_subword_model(data_folder(config))
    restored = [] if kind == SENTENCEPIECE else [moses.VERSION]
    return key_of([hashes, task, search, config.dataset.max_tokens, precision, *restored])


def print_report(report: dict[str, Any], path: Path) -> None:
    """Say what was done, and name every sentence that was not translated."""
    left_out = report["not_translated"]
    if left_out:
        count = plural(len(left_out), "sentence")
        print(
            f"warning: {count} longer than the model's limit, left empty in {path}: "
            f"{listed(left_out)}",
            file=sys.stderr,
        )
    done = f"{report['sentences']:,} sentences by {report['checkpoint']}"
    print(f"{path}: {done} in {report['seconds']:.0f} s", file=sys.stderr)


def generation_config(
    options: Options, checkpoint: Path, folder: Path
) -> tuple[Any, SearchOptions]:
    """fairseq's configuration for decoding, and the search: as trained, then the arguments.

    Raises:
        UserError, ConfigError: an invalid option.
        CheckpointError: the file is not a usable checkpoint.
    """
    from vaswani.experiment.fairseq_config import complete, with_defaults

    load_plugin()
    from transformer_plugin.compat.scope import is_plugin_model

    trained = saved_config(checkpoint, folder)
    if options.precision != "fp32" and not is_plugin_model(trained["model"].get("_name")):
        raise UserError(f"--precision {options.precision} is for this plugin's models")
    search = search_of(options, trained)
    config = with_defaults(
        {
            "task": decoding_task(options, trained["task"]),
            "generation": {name: getattr(search, name) for name in BEAM_OPTIONS},
            "model": {},
            "common_eval": {
                "path": str(checkpoint),
                "model_overrides": repr({"precision": options.precision}),  # not as trained
            },
            "dataset": {
                "gen_subset": options.subset,
                "max_tokens": search.max_tokens,
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
    kind, _ = find_subword_model(data_folder(config))
    batch = search_options.CPU_BATCH if on_cpu(config) else search_options.GPU_BATCH
    additions: dict[str, dict[str, Any]] = {
        "common_eval": {"post_process": SUBWORD_MODELS[kind].remove},
        "dataset": {"max_tokens": search.max_tokens or batch},
        **data_of_run(config.task).options,
    }
    return complete(config, additions), search


def decoding_task(options: Options, trained: dict[str, Any]) -> dict[str, Any]:
    """The task section to decode with.

    fairseq's ``translation`` becomes the plugin's, whose beam search gives the same
    results in less time.
    """
    task = {**trained, "eval_bleu": False, "data": options.data or trained.get("data")}
    if task.get("_name") == "translation":
        task["_name"] = "vaswani_translation"
    if options.length_penalty:
        task["length_penalty"] = options.length_penalty
    return task


def search_of(options: Options, trained: dict[str, Any]) -> SearchOptions:
    """How to search: as the run's configuration says, then the arguments.

    Raises:
        UserError: an invalid option.
    """
    search = {
        key: trained["generation"][key] for key in BEAM_OPTIONS if key in trained["generation"]
    }
    penalty = str(trained["task"].get("length_penalty") or "fairseq")
    found = SearchOptions(**search, length_penalty=penalty).changed(
        **search_options.cli_overrides(options)
    )
    found.check()
    return found


def decode(
    config: Any, search: SearchOptions, log: Path, total: int, workers: int
) -> tuple[list[Translated], int]:
    """Translate a subset in that many processes, or in fewer, and write the log.

    Returns:
        The sentences with their best translations, in any order; the number of processes.

    Raises:
        UserError: the model's scores are not numbers, its file is gone, or a process was killed.
    """
    with (
        # from the making of the model on: processes are forked later, and the result is the same
        # for any number of threads
        one_thread() if on_cpu(config) else contextlib.nullcontext(),
        atomic_write(log) as stream,
        bar(total=total, desc="translate", unit=" sentences") as shown,
    ):
        decoder = BatchDecoder(config, workers)
        return list(decoder.translate(search, stream, shown.update)), decoder.workers


def align_to_source(
    translated: Iterable[Translated], total: int, tokens: Callable[[str], str] = undo
) -> tuple[list[str], list[int]]:
    """One translation per source line, as ``tokens(subwords)``, and the numbers (from 1) of those
    not translated.

    An empty source line has an empty translation, whatever the model makes of it.
    """
    lines: list[str | None] = [None] * total
    for sentence in translated:
        lines[sentence.number] = tokens(sentence.translation) if sentence.source.strip() else ""
    left_out = [number for number, line in enumerate(lines, 1) if line is None]
    return [line or "" for line in lines], left_out
