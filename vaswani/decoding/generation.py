"""Decodes a data set as a run's configuration says: fairseq's configuration, and its translations.

``vaswani generate`` calls this, and keeps the record of it.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from transformer_plugin.compat.scope import is_plugin_model
from vaswani.common.artifact import key_of
from vaswani.common.errors import UserError
from vaswani.common.files import Table, atomic_write, sha256_of
from vaswani.common.progress import bar
from vaswani.configuration.fairseq_config import complete, with_defaults
from vaswani.configuration.plugin import saved_config
from vaswani.data import text
from vaswani.data.bpe import undo
from vaswani.data.tokenisation import TargetText
from vaswani.decoding.batch_decoder import BatchDecoder, Translated, data_of_run, text_of_run
from vaswani.decoding.process_engine import one_thread
from vaswani.folders.recipe import SENTENCEPIECE, SUBWORD_MODELS, TextRecipe
from vaswani.folders.search_options import (
    BEAM_OPTIONS,
    CPU_BATCH,
    GPU_BATCH,
    TranslationOptions,
    search_of_experiment,
)
from vaswani.training.launch import on_cpu


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is decoded, and how it differs from what the run's configuration says."""

    subset: str
    #: of the matrix products
    precision: str
    #: another data-bin, or user-dir, than the run's
    data: str | None
    user_dir: str | None
    #: search options, by name
    search: Mapping[str, object]


def target_text(config: DictConfig) -> TargetText:
    """What joins the data's subwords to text.

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
    config: DictConfig, search: TranslationOptions, folder: Path, total: int, workers: int
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


def key_of_translation(config: DictConfig, files: list[Path], precision: str) -> str:
    """A hash of all that translations depend on: these files' contents, task, search, batches,
    what products are computed in, and how text is restored."""
    task = {**OmegaConf.to_container(config.task), "data": None}  # the data may have been moved
    search = OmegaConf.to_container(config.generation)
    hashes = [sha256_of(path) for path in files]
    prepared = text_of_run(config.task)
    kind, _ = prepared.subword_model()
    restored = [] if kind == SENTENCEPIECE else [prepared.text_rules()]
    return key_of([hashes, task, search, config.dataset.max_tokens, precision, *restored])


def generation_config(
    request: Request, checkpoint: Path, folder: Path
) -> tuple[DictConfig, TranslationOptions]:
    """fairseq's configuration for decoding, and the search: as trained, then as requested.

    Raises:
        UserError, ConfigError: an invalid option.
        CheckpointError: the file is not a usable checkpoint.
    """
    trained = saved_config(checkpoint, folder)
    if request.precision != "fp32" and not is_plugin_model(trained["model"].get("_name")):
        raise UserError(f"--precision {request.precision} is for this plugin's models")
    search = search_of(request, trained)
    config = with_defaults(
        {
            "task": decoding_task(request, trained["task"]),
            "generation": {name: getattr(search, name) for name in BEAM_OPTIONS},
            "model": {},
            "common_eval": {
                "path": str(checkpoint),
                "model_overrides": repr({"precision": request.precision}),  # not as trained
            },
            "dataset": {
                "gen_subset": request.subset,
                "max_tokens": search.max_tokens,
                "num_workers": 0,
                "skip_invalid_size_inputs_valid_test": True,
            },
            "common": {
                "log_format": "none",
                "cpu": bool(trained["common"].get("cpu")),
                "user_dir": request.user_dir or trained["common"].get("user_dir"),
            },
        },
    )
    kind, _ = text_of_run(config.task).subword_model()
    batch = CPU_BATCH if on_cpu(config) else GPU_BATCH
    additions: dict[str, Table] = {
        "common_eval": {"post_process": SUBWORD_MODELS[kind].remove},
        "dataset": {"max_tokens": search.max_tokens or batch},
        **data_of_run(config.task).options,
    }
    return complete(config, additions), search


def decoding_task(request: Request, trained: Table) -> Table:
    """The task section to decode with.

    fairseq's ``translation`` becomes the plugin's, whose beam search gives the same
    results in less time.
    """
    task = {**trained, "eval_bleu": False, "data": request.data or trained.get("data")}
    if task.get("_name") == "translation":
        task["_name"] = "vaswani_translation"
    if "length_penalty" in request.search:
        task["length_penalty"] = request.search["length_penalty"]
    return task


def search_of(request: Request, trained: Table) -> TranslationOptions:
    """How to search: as the run's configuration says, then as requested.

    Raises:
        UserError: an invalid option.
    """
    options = search_of_experiment(trained).changed(**request.search)
    options.check()
    return options


def decode(
    config: DictConfig, search: TranslationOptions, log: Path, total: int, workers: int
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
