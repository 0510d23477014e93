"""A data-bin of longer sentences, each joined from some of another data-bin's.

The demo's sentences are short and few: joined at random, they fill batches of the paper's size. The
words mean nothing in this order, which no speed depends on.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

LONGEST = 5
"""A joined sentence has 1 to so many sentences: of the demo's, 40 tokens on average."""


def join_sentences(data: Path, out: Path, pairs: Mapping[str, int], vocabulary: int) -> None:
    """Write the data-bin ``out`` with sentences joined from those of ``data``.

    Args:
        data: a data-bin with one dictionary for both languages
        out: a new folder
        pairs: for each part that is to be written (``train``, …), how many
        vocabulary: the dictionary gets words that never occur, up to a multiple of this number
    """
    from fairseq.data import Dictionary
    from fairseq.data.data_utils import infer_language_pair, load_indexed_dataset
    from fairseq.data.indexed_dataset import make_builder

    languages = infer_language_pair(str(data))
    dictionary = Dictionary.load(str(data / f"dict.{languages[0]}.txt"))
    dictionary.pad_to_multiple_(vocabulary)
    end = torch.tensor([dictionary.eos()])
    out.mkdir()
    for language in languages:
        dictionary.save(str(out / f"dict.{language}.txt"))
    for part, count in pairs.items():
        for language in languages:
            name = f"{part}.{'-'.join(languages)}.{language}"
            sentences = load_indexed_dataset(str(data / name), dictionary)
            builder = make_builder(str(out / f"{name}.bin"), "mmap", vocab_size=len(dictionary))
            for group in random_groups(count, len(sentences)):
                words = [sentences[number][:-1] for number in group]  # without their ends
                builder.add_item(torch.cat([*words, end]))
            builder.finalize(str(out / f"{name}.idx"))


def random_groups(count: int, sentences: int) -> Iterator[np.ndarray]:
    """Yield ``count`` lists of 1 to :data:`LONGEST` numbers of sentences, the same every time."""
    random = np.random.default_rng(1)
    for size in random.integers(1, LONGEST + 1, size=count):
        yield random.integers(sentences, size=size)
