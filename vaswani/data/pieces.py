"""SentencePiece (Kudo and Richardson, 2018), using its library: raw text to pieces and back.

One unigram model for both languages, with the library's normalisation (NFKC, and one space for
several). Every character of the training text is a piece, or, if these would be more than half of
all but the bytes, the most frequent ones; others become their bytes in UTF-8: none is unknown.
It learns in one thread, since the pieces depend on how many there are. Its symbols have the numbers
that they have in fairseq's dictionaries, so that the other numbers are the same too.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write
from vaswani.data import bpe
from vaswani.data.text import count_lines, read_lines, safe_line, write_lines

#: a space, in a piece; in text it would be taken for one
SPACE = "▁"
#: lines that a model is learned from; of more, one in every so many (this bounds memory)
MOST_LINES = 1_000_000
BYTES = 256
#: fairseq's symbols by their numbers
SYMBOLS: Any = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3}


def learn(
    sources: Sequence[Path],
    model: Path,
    size: int,
    progress: Callable[[int], object] = lambda _: None,
    split_digits: bool = False,
) -> None:
    """Learn a model of ``size`` pieces from all ``sources`` together; fewer if the text has fewer.

    The size is that of fairseq's dictionary: it includes 4 symbols and 256 bytes. ``progress(1)``
    is called for every line read. With ``split_digits`` no piece has two digits.

    Raises:
        UserError: ``size`` leaves no room for the characters.
    """
    from sentencepiece import SentencePieceTrainer as trainer

    lines = partial(sample, sources, -(-sum(map(count_lines, sources)) // MOST_LINES) or 1)
    letters: Counter[str] = Counter()
    for line in lines():
        letters.update(line)
        progress(1)
    learned = io.BytesIO()
    try:
        trainer.train(
            sentence_iterator=lines(),
            model_writer=learned,
            vocab_size=size,
            model_type="unigram",
            character_coverage=coverage(letters, (size - BYTES - len(SYMBOLS)) // 2),
            byte_fallback=True,
            split_digits=split_digits,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=2,
            unk_surface="<unk>",  # as fairseq writes it
            **SYMBOLS,
        )
    except RuntimeError as error:
        if "required_chars" not in str(error):
            raise
        raise UserError(
            f"--bpe {size:,} is too small for SentencePiece, whose pieces include 256 bytes, 4 "
            "symbols and single characters: give a larger number"
        ) from None
    with atomic_write(model, "wb") as stream:
        stream.write(learned.getvalue())


def sample(sources: Sequence[Path], step: int) -> Iterator[str]:
    """Return every ``step``-th line of all sources together."""
    return islice(chain.from_iterable(map(read_lines, sources)), 0, None, step)


def coverage(letters: Counter[str], most: int) -> float:
    """Return the share of a text that its ``most`` most frequent characters make up.

    At least 0.98, the least that the library takes.
    """
    covered = sum(count for _, count in letters.most_common(most))
    return max(0.98, covered / letters.total()) if letters else 1.0


def load(model: Path) -> Any:
    """Load a file as the library's processor; raise UserError if it is not a model."""
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_file=str(model))
    except RuntimeError:
        raise UserError(
            f"{model} is not a model of SentencePiece, or is damaged: restore the file, or prepare "
            "the text again"
        ) from None


def dictionary_of(model: Path) -> list[str]:
    """Return the pieces in the model's order, without its symbols: fairseq's dictionary has its
    own.
    """
    loaded = load(model)
    numbers = range(loaded.get_piece_size())
    types = [n for n in numbers if not loaded.is_control(n) and not loaded.is_unknown(n)]
    return [str(loaded.id_to_piece(number)) for number in types]


def write_dictionary(model: Path, path: Path) -> None:
    """Write a model's pieces as fairseq's dictionary, with counts that nothing uses."""
    write_lines(path, (f"{piece} 1" for piece in dictionary_of(model)))


def symbols(dictionary: Path) -> list[str]:
    """Return the words of a dictionary file, without fairseq's padding words."""
    with open(dictionary, encoding="utf-8", newline="\n") as stream:
        words = [line.split(" ", 1)[0] for line in stream]
    return [word for word in words if not word.startswith("madeupword")]


def check_dictionary(model: Path, dictionary: Path) -> None:
    """Raise UserError unless all words of a dictionary are pieces of the model."""
    learned = set(dictionary_of(model))
    other = next((word for word in symbols(dictionary) if word not in learned), None)
    if other is not None:
        raise UserError(
            f"{model} and {dictionary} do not match, because the model has no piece '{other}': "
            "give the model that the text was split with"
        )


def splitter(codes: Path) -> Callable[[str], str]:
    """Return a function from a sentence to its pieces, joined by spaces.

    None of the pieces is one of fairseq's symbols, whatever the sentence contains.
    """
    loaded = load(codes)

    def split(line: str) -> str:
        pieces = " ".join(loaded.encode(line.replace(SPACE, " "), out_type=str))
        return bpe.escaped_symbols(pieces, " ")

    return split


def joiner(model: Path) -> Callable[[str], str]:
    """Return a function from pieces joined by spaces to one line of text; bytes become
    characters.
    """
    loaded = load(model)
    return lambda line: safe_line(loaded.decode(line.split()).replace("\n", " ")).strip(" ")
