"""Decodes a data set as a run's configuration says: fairseq's configuration, and its translations.

``vaswani generate`` calls :func:`generate`.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from transformer_plugin.compat.scope import is_plugin_model
from vaswani.common.errors import UserError, list_numbers, plural
from vaswani.common.files import atomic_write, check_folder, is_inside, sha256_of
from vaswani.common.find import first_data_bin
from vaswani.common.outputs import key_of
from vaswani.common.progress import bar
from vaswani.common.yaml_tables import Sections
from vaswani.configuration.fairseq_config import with_defaults
from vaswani.configuration.plugin import saved_config
from vaswani.data import text
from vaswani.data.bpe import undo
from vaswani.data.tokenisation import TargetText
from vaswani.decoding.batch_decoder import (
    BatchDecoder,
    Translated,
    data_files,
    data_of_run,
    text_of_run,
)
from vaswani.decoding.earlier_translations import check_replaceable, translation_outputs
from vaswani.decoding.process_engine import one_thread, search_processes
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.recipe import SENTENCEPIECE, SUBWORD_MODELS, TextRecipe
from vaswani.folders.run import Run, Translations
from vaswani.folders.search_options import (
    BEAM_OPTIONS,
    CPU_BATCH,
    GPU_BATCH,
    TranslationOptions,
    search_of_configuration,
)
from vaswani.training.checkpoints import best_of_run
from vaswani.training.launch import on_cpu
from vaswani_transformer.precision import product_precision


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is decoded, and how it differs from what the run's configuration says."""

    subset: str = "test"
    #: of the matrix products
    precision: str = "fp32"
    #: another data-bin, or user-dir, than the run's
    data: str | None = None
    user_dir: str | None = None
    #: search options, by name
    search: Mapping[str, object] = field(default_factory=dict)


def generate(
    run: Run,
    request: Request | None = None,
    checkpoint: Path | None = None,
    out: Path | None = None,
    workers: int | None = None,
) -> Translations:
    """Translate a subset with a run, unless the same translation exists already.

    Args:
        run: was trained by ``vaswani train``, or is the folder that ``checkpoint`` is in
        request: what to decode, and how (default: the test set, as the run's configuration says)
        checkpoint: the model (default: the run's with the lowest validation loss)
        out: the folder of the results (default: the run's)
        workers: processes, on a CPU (default: one per core)

    Raises:
        UserError, ConfigError: an invalid option, unusable data, or a folder of other files.
        CheckpointError: the file is not a usable checkpoint.
    """
    request = request or Request()
    checkpoint = checkpoint or best_of_run(run)
    config, search = generation_config(request, checkpoint, run)
    folder = out or run.evaluation
    data, total = data_files(config, request.subset)
    if is_inside(folder, text_of_run(config.task).folder):
        raise UserError(f"{folder} is the folder of the data: give another folder with --out")
    check_folder(folder)
    processes = search_processes(workers, on_cpu(config))
    precision = product_precision(request.precision, "cpu" if on_cpu(config) else "cuda")
    translations = Translations(folder, request.subset)
    outputs = translation_outputs(translations)
    if out:
        check_replaceable(outputs)
    key = key_of_translation(config, [checkpoint, *data], precision)
    with outputs.write(key) as draft:
        if draft.is_made:
            print(f"{folder}: already translated by {checkpoint}", file=sys.stderr)
            return translations
        start = time.monotonic()
        made = Translations(draft.path, request.subset)
        left_out, used = translate(config, search, made, total, processes)
        draft.record.update(
            checkpoint=str(checkpoint),
            sha256={path.name: sha256_of(path) for path in [checkpoint, *data]},
            data=str(config.task.data),
            options=recorded_options(search),
            precision=precision,
            max_tokens=config.dataset.max_tokens,
            workers=used,
            sentences=total,
            not_translated=left_out,
            seconds=round(time.monotonic() - start, 1),
        )
    print_report(draft.record, translations.text)
    return translations


def recorded_options(search: TranslationOptions) -> dict[str, object]:
    """Return the options of the search that the report of a subset records."""
    return {name: getattr(search, name) for name in (*BEAM_OPTIONS, "length_penalty")}


def print_report(report: Mapping[str, Any], path: Path) -> None:
    """Print what was translated, and name every sentence that was not."""
    left_out = report["not_translated"]
    if left_out:
        count = plural(len(left_out), "sentence")
        print(
            f"warning: {count} longer than the model's limit, left empty in {path}: "
            f"{list_numbers(left_out)}",
            file=sys.stderr,
        )
    done = f"{report['sentences']:,} sentences by {report['checkpoint']}"
    print(f"{path}: {done} in {report['seconds']:.0f} s", file=sys.stderr)


def has_references(translations: Translations) -> bool:
    """Return whether ``vaswani prepare`` made the data, and so knows the references of
    translations.
    """
    record = translations.record()
    assert record and record.data, "they were made"
    return PreparedText.of(first_data_bin(record.data)).has_recipe


def target_text(config: DictConfig) -> TargetText:
    """Return how to join the data's subwords to text.

    Raises:
        UserError: SentencePiece made them, but its model is no longer beside the data.
    """
    prepared = text_of_run(config.task)
    kind, learned = prepared.subword_model()
    if kind == SENTENCEPIECE and learned is None:
        raise UserError(f"{prepared.subword_file(kind)} is missing: run 'vaswani prepare' again")
    langs = (config.task.source_lang, config.task.target_lang)
    return TargetText(TextRecipe(*langs, subword=kind, text_rules=prepared.text_rules()), learned)


def translate(
    config: DictConfig, search: TranslationOptions, out: Translations, total: int, workers: int
) -> tuple[list[int], int]:
    """Translate a subset, and write its translations.

    Returns:
        The numbers (from 1) of the sentences left out, and how many processes were used.
    """
    target = target_text(config)
    translated, used = decode(config, search, out.log, total, workers)
    lines, left_out = align_to_source(translated, total, target.tokens)
    text.write_lines(out.tokens, lines)
    text.write_lines(out.text, map(target.text, lines))
    return left_out, used


def key_of_translation(config: DictConfig, files: list[Path], precision: str) -> str:
    """Return a hash of all that translations depend on.

    These are the contents of the files, the task, the search, the batches, the precision of
    products, and how text is restored.
    """
    task = {**OmegaConf.to_container(config.task), "data": None}  # the data may have been moved
    search = OmegaConf.to_container(config.generation)
    hashes = [sha256_of(path) for path in files]
    prepared = text_of_run(config.task)
    kind, _ = prepared.subword_model()
    restored = [] if kind == SENTENCEPIECE else [prepared.text_rules()]
    return key_of([hashes, task, search, config.dataset.max_tokens, precision, *restored])


def generation_config(
    request: Request, checkpoint: Path, run: Run
) -> tuple[DictConfig, TranslationOptions]:
    """Return fairseq's configuration for decoding, and the options of the search.

    Both are those of the training, changed as requested.

    Raises:
        UserError, ConfigError: an invalid option.
        CheckpointError: the file is not a usable checkpoint.
    """
    trained = saved_config(checkpoint, run)
    if request.precision != "fp32" and not is_plugin_model(trained["model"].get("_name")):
        raise UserError(
            f"--precision {request.precision} works only with this plugin's models: leave it out"
        )
    search = search_of(request, trained)
    task = decoding_task(request, trained["task"])
    kind, _ = text_of_run(task).subword_model()
    cpu = bool(trained["common"].get("cpu"))
    batch = GPU_BATCH if torch.cuda.is_available() and not cpu else CPU_BATCH
    config = with_defaults(
        {
            "task": {**task, **data_of_run(task).options["task"]},
            "generation": {name: getattr(search, name) for name in BEAM_OPTIONS},
            "model": {},
            "common_eval": {
                "path": str(checkpoint),
                "model_overrides": repr({"precision": request.precision}),  # not as trained
                "post_process": SUBWORD_MODELS[kind].remove,
            },
            "dataset": {
                "gen_subset": request.subset,
                "max_tokens": search.max_tokens or batch,
                "num_workers": 0,
                "skip_invalid_size_inputs_valid_test": True,
            },
            "common": {
                "log_format": "none",
                "cpu": cpu,
                "user_dir": request.user_dir or trained["common"].get("user_dir"),
            },
        },
    )
    return config, search


def decoding_task(request: Request, trained: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task section to decode with.

    fairseq's ``translation`` becomes the plugin's, whose beam search gives the same
    results in less time.
    """
    task = {**trained, "eval_bleu": False, "data": request.data or trained.get("data")}
    if task.get("_name") == "translation":
        task["_name"] = "vaswani_translation"
    if "length_penalty" in request.search:
        task["length_penalty"] = request.search["length_penalty"]
    return task


def search_of(request: Request, trained: Sections) -> TranslationOptions:
    """Return the options of the search: the run's, changed as requested.

    Raises:
        UserError: an invalid option.
    """
    options = search_of_configuration(trained).changed(**request.search)
    options.check()
    return options


def decode(
    config: DictConfig, search: TranslationOptions, log: Path, total: int, workers: int
) -> tuple[list[Translated], int]:
    """Translate a subset in at most ``workers`` processes, and write the log.

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
    """Return one translation per source line, and the lines that were not translated.

    A translation is ``tokens(subwords)``; lines are counted from 1.
    """
    lines: list[str | None] = [None] * total
    for sentence in translated:
        lines[sentence.number] = tokens(sentence.translation) if sentence.source.strip() else ""
    left_out = [number for number, line in enumerate(lines, 1) if line is None]
    return [line or "" for line in lines], left_out
