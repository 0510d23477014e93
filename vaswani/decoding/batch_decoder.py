"""Translates a binarised data set, and writes the log of it in fairseq-generate's format.

For each sentence, with its number in the data set: S- the source; then, for each hypothesis, H- its
score and words, D- the same again, and P- the score of each token. Scores are logarithms to
base 2. References, and their BLEU, are left to ``vaswani score``.
"""

import ast
import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy
import torch
from fairseq import checkpoint_utils, tasks, utils
from omegaconf import DictConfig

from vaswani.common.errors import UserError
from vaswani.common.find import first_data_bin
from vaswani.configuration.fairseq_config import fairseq_form
from vaswani.data import read_data_bin
from vaswani.decoding.engine import Batch, BatchHypotheses, Progress, TokenHypothesis
from vaswani.decoding.fairseq_engine import FairseqEngine, Sample
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.search_options import TranslationOptions


class Translated(NamedTuple):
    """A sentence of the data set, as words, and its best translation, as subwords."""

    number: int
    source: str
    translation: str


class BatchDecoder:
    """A data set with the engine that translates it, both made as fairseq-generate makes them.

    Args:
        config: fairseq's configuration for decoding
        workers: the most processes that search

    Raises:
        OSError: the checkpoint is gone.
        CheckpointError, ConfigError: it cannot be used.
        UserError: a sentence does not fit into a batch.
    """

    def __init__(self, config: DictConfig, workers: int) -> None:
        self.config = config
        subset = config.dataset.gen_subset
        form = fairseq_form(config)
        numpy.random.seed(config.common.seed)
        utils.set_torch_seed(config.common.seed)
        self.task = tasks.setup_task(form.task)
        path = config.common_eval.path
        models, saved = checkpoint_utils.load_model_ensemble(
            [path], ast.literal_eval(config.common_eval.model_overrides), self.task
        )
        self.task.load_dataset(subset, task_cfg=saved.task)
        self.on_gpu = torch.cuda.is_available() and not config.common.cpu
        for model in models:
            if self.on_gpu:
                model.cuda()
            model.prepare_for_inference_(form)
        self.dataset = self.task.dataset(subset)
        limits = [self.task.max_positions(), *[model.max_positions() for model in models]]
        try:
            frozen_batches = self.task.get_batch_iterator(
                dataset=self.dataset,
                max_tokens=config.dataset.max_tokens,
                max_positions=utils.resolve_max_positions(*limits),
                ignore_invalid_inputs=config.dataset.skip_invalid_size_inputs_valid_test,
                required_batch_size_multiple=config.dataset.required_batch_size_multiple,
                seed=config.common.seed,
            ).frozen_batches
        except AssertionError as error:  # a sentence that the model takes is longer than a batch
            raise UserError(f"{subset}: {error}: give a larger --max-tokens") from None
        self.batches = [Batch(list(numbers), []) for numbers in frozen_batches]
        self.workers = max(1, min(workers, len(self.batches)))
        self.engine = FairseqEngine(self.task, models, str(path), self.sample_for_search)
        self.engine.processes = self.workers

    def sample(self, batch: Batch) -> Sample:
        """Return a batch in fairseq's form."""
        sentences = [self.dataset[number] for number in batch.places]
        sample: Sample = self.dataset.collater(sentences)
        return sample

    def sample_for_search(self, batch: Batch) -> Sample:
        """Return a batch on the device that searches."""
        sample = self.sample(batch)
        return utils.move_to_cuda(sample) if self.on_gpu else sample

    def translate(
        self, options: TranslationOptions, log: IO[str], progress: Progress
    ) -> Iterator[Translated]:
        """Yield the best translation of each sentence that is not too long, batch by batch.

        Args:
            options: of the search
            log: what fairseq-generate would print of the source and the search
            progress: called with the number of sentences translated since the last call

        Raises:
            UserError: the model's scores are not numbers, or a process was killed.
        """
        options = self.engine.prepare_search(options)
        writer = LogWriter(self, options, log)
        search = self.engine.search(self.batches, options, progress)
        with contextlib.closing(search) as results_by_batch:
            for batch, results in zip(self.batches, results_by_batch, strict=True):
                yield from writer.add(self.sample(batch), results)


class LogWriter:
    """Writes what fairseq-generate would print about the results of a search."""

    def __init__(self, decoder: BatchDecoder, options: TranslationOptions, stream: IO[str]) -> None:
        self.config = decoder.config
        self.options = options
        self.stream = stream
        self.source = decoder.task.source_dictionary
        self.target = decoder.task.target_dictionary
        generator = decoder.engine.generator
        #: of a task's own generator, perhaps only its end of sentence
        self.left_out = getattr(generator, "symbols_to_strip_from_output", {generator.eos})

    def add(self, sample: Sample, results: BatchHypotheses) -> Iterator[Translated]:
        """Write a batch's lines, and yield the best translation of each sentence."""
        pad = self.target.pad()
        mark = self.config.common_eval.post_process
        for row, (number, best) in enumerate(zip(sample["id"].tolist(), results, strict=True)):
            tokens = utils.strip_pad(sample["net_input"]["src_tokens"][row], pad)
            source = self.source.string(tokens, mark)
            print(f"S-{number}\t{source}", file=self.stream)
            written = [self.write(number, hypothesis) for hypothesis in best[: self.options.nbest]]
            yield Translated(number, source, written[0])

    def write(self, number: int, hypothesis: TokenHypothesis) -> str:
        """Write the lines of a hypothesis, and return its subwords."""
        tokens = torch.tensor(hypothesis.tokens, dtype=torch.int32)
        words, subwords = (
            self.target.string(tokens, mark, extra_symbols_to_ignore=self.left_out)
            for mark in (self.config.common_eval.post_process, None)
        )
        score = torch.tensor(hypothesis.score) / math.log(2)  # in float32, as fairseq computes it
        scores = torch.tensor(hypothesis.token_scores) / math.log(2)
        print(f"H-{number}\t{score}\t{words}", file=self.stream)
        print(f"D-{number}\t{score}\t{words}", file=self.stream)
        shown = " ".join(f"{token_score:.4f}" for token_score in scores.tolist())
        print(f"P-{number}\t{shown}", file=self.stream)
        return subwords


# ---- the data --------------------------------------------------------------------------------


def text_of_run(task: Mapping[str, object]) -> PreparedText:
    """Return the folder with the recipe and the subword model of the data that a run's task
    names.
    """
    return PreparedText.of(first_data_bin(task.get("data")))


def data_of_run(task: Mapping[str, object]) -> read_data_bin.ParallelText:
    """Return the data that a run's task names, with its languages.

    Raises:
        UserError: there is none.
    """
    return read_data_bin.parallel_text(
        task, "run this where 'vaswani train' was run, or say with --data DIR where it is"
    )


def data_files(config: DictConfig, subset: str) -> tuple[list[Path], int]:
    """Return the files read for a subset (dictionaries, source, target), and its number of
    sentences.

    Raises:
        UserError: no such data or subset, or it is empty or damaged.
    """
    text = data_of_run(config.task)
    pair = text.languages
    dictionaries = [text.data.dictionary(language) for language in pair]
    for dictionary in dictionaries:
        read_data_bin.load_dictionary(dictionary)
    prefix = text.data.prefix(subset, *pair)
    sides = [Path(f"{prefix}.{language}") for language in pair]
    present = [side for side in sides if Path(f"{side}.idx").exists() or side == sides[0]]
    sentences = [len(read_data_bin.read_index(str(side)).sizes) for side in present]
    total = sentences[0]
    if not total:
        raise UserError(
            f"{sides[0]} holds no sentence: choose another subset, or prepare the text again"
        )
    if sentences[-1] != total:
        raise UserError(
            f"{prefix} has {total:,} {pair[0]} and {sentences[-1]:,} {pair[1]} sentences: prepare "
            "the text again, so that the numbers are equal"
        )
    files = dictionaries
    for side in sides:
        files += [Path(f"{side}.idx"), Path(f"{side}.bin")]
    return [path for path in files if path.is_file()], total
