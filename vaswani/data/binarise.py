"""Subwords as numbers: the dictionaries, and the binary files that fairseq-preprocess would write.

fairseq's dictionary and its writer are used as a library: its command's processes would outlive an
interrupt, and count lines in another way than :mod:`vaswani.data.text`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vaswani.common.processes import map_ordered
from vaswani.common.progress import stage_bar
from vaswani.data.bpe import vocabulary
from vaswani.data.text import Chunk, chunks
from vaswani.folders.data_bin import DataBin
from vaswani.folders.recipe import Recipe

#: fairseq's numbers of the end of a sentence and of an unknown word
EOS, UNKNOWN = 2, 3
#: the number of types is a multiple of this, as by default in fairseq
PADDING = 8


def binarise(
    source: Path, target: Path, recipe: Recipe, workers: int, dictionary_file: Path | None
) -> dict[str, tuple[int, int]]:
    """Turn ``source/{SPLIT}.{LANG}`` into fairseq's binary files under ``target``.

    There is one dictionary (section 3.4), of the recipe's size, or with all types; of trees, each
    side has its own.

    Args:
        source: the folder of subwords
        target: is made
        recipe: with languages and sets
        workers: the number of processes
        dictionary_file: is used instead of dictionaries made from this text

    Returns:
        For each side of each set, as ``valid.de``: unknown and all subwords.
    """
    from fairseq.data import Dictionary

    train = [source / f"train.{lang}" for lang in recipe.langs]
    size = recipe.dictionary
    if dictionary_file:
        dictionaries = [Dictionary.load(str(dictionary_file))] * 2
    elif recipe.trees:
        dictionaries = [make_dictionary([side], size, workers) for side in train]
    else:
        dictionaries = [make_dictionary(train, size, workers)] * 2
    target.mkdir()
    data = DataBin(target)
    counts = {}
    with stage_bar("binarise", None, "lines") as bar:
        for lang, dictionary in zip(recipe.langs, dictionaries, strict=True):
            dictionary.save(str(data.dictionary(lang)))
            for split in recipe.splits:
                text = source / f"{split}.{lang}"
                prefix = data.side(split, recipe.langs, lang)
                counts[text.name] = write_side(text, prefix, dictionary, workers, bar.update)
    return counts


def make_dictionary(sources: Sequence[Path], size: int | None, workers: int) -> Any:
    """Return a dictionary of all words of ``sources``, or of the most frequent ones."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    with stage_bar("count subwords", None, "chunks") as bar:
        for word, count in vocabulary(sources, workers, bar.update).items():
            dictionary.add_symbol(word, count)
    dictionary.finalize(nwords=size or -1, padding_factor=PADDING)
    return dictionary


def write_side(
    text: Path, prefix: Path, dictionary: Any, workers: int, progress: Callable[[int], object]
) -> tuple[int, int]:
    """Write ``PREFIX.bin`` and ``PREFIX.idx``, and count unknown and all subwords."""
    import torch
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder, best_fitting_int_dtype

    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", best_fitting_int_dtype(len(dictionary)))
    unknown = total = 0
    work = partial(numbering_work, dictionary.indices)
    for sentences in map_ordered(work, chunks([text]), workers):
        for numbers in sentences:
            builder.add_item(torch.from_numpy(numbers))
            unknown += int((numbers == UNKNOWN).sum())
            total += len(numbers) - 1
        progress(len(sentences))
    builder.finalize(f"{prefix}.idx")
    return unknown, total


def numbering_work(numbers: dict[str, int]) -> Callable[[Chunk], list[np.ndarray]]:
    """Return a function from the lines of a chunk to their words' numbers, each with an end."""

    def work(chunk: Chunk) -> list[np.ndarray]:
        lines = chunk.sides[0].decode("utf-8").split("\n")[:-1]
        return [
            np.array([*(numbers.get(word, UNKNOWN) for word in line.split()), EOS], np.int32)
            for line in lines
        ]

    return work
