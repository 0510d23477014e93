"""What every head attends to, for one sentence and one translation (sections 3.2.2, 3.2.3).

The decoder reads the translation as in training (teacher forcing), so that one pass gives the
weights of all positions. Row t of the decoder is the step that produces word t; it has read the
words before it, starting with the start symbol.

Shape letters: N layers, H heads, S source, T target; the ends of sentences are included.
"""

import contextlib
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy
import torch
from torch import nn

from vaswani.common.errors import UserError
from vaswani.data.tokenisation import unescape
from vaswani.decoding.engine import Dictionary
from vaswani.decoding.process_engine import ProcessEngine
from vaswani.decoding.translator import InputSentence, Translator, words_of
from vaswani.folders.model_folder import ModelFolder, is_model_folder
from vaswani.folders.recipe import SENTENCEPIECE
from vaswani.folders.run import Run

START, END = "(start)", "(end)"


class AttentionKind(NamedTuple):
    """One of the three places where the model has attention."""

    title: str
    #: the side that attends, and the side attended to: "source", "target" (what is produced),
    #: "read" (what was)
    rows: str
    columns: str


KINDS = {
    "encoder": AttentionKind("encoder self-attention", "source", "source"),
    "decoder": AttentionKind("decoder self-attention", "target", "read"),
    "cross": AttentionKind("cross-attention", "target", "source"),
}


class Unit(NamedTuple):
    """A word or subword: its label, the numbers of its subwords, whether it is unknown."""

    text: str
    first: int
    last: int
    unknown: bool = False


@dataclass(frozen=True)
class Side:
    """A sentence whose words attend, or are attended to."""

    lang: str
    #: by the name of the view: words or subwords
    words: list[Unit]
    subwords: list[Unit]

    @property
    def direction(self) -> str:
        """The script's writing direction: that of the first letter that has one."""
        text = "".join(unit.text for unit in self.words if unit.text not in (START, END))
        kinds = (unicodedata.bidirectional(letter) for letter in text)
        first = next((kind for kind in kinds if kind in ("L", "R", "AL")), "L")
        return "ltr" if first == "L" else "rtl"


@dataclass(frozen=True)
class Attention:
    """The attention of a model over a sentence and its translation."""

    source: str
    target: str
    #: whether the translation is the model's own
    translated: bool
    #: "source", "target" and "read", as in ``KINDS``
    sides: dict[str, Side]
    #: by kind, numpy [N, H, rows, columns] over subwords; each row sums to 1
    weights: dict[str, numpy.ndarray]

    @property
    def unknown(self) -> list[str]:
        """The given words that are wholly or partly unknown to the model."""
        units = self.sides["source"].words
        if not self.translated:
            units = units + self.sides["target"].words
        return list(dict.fromkeys(unit.text for unit in units if unit.unknown))


@contextlib.contextmanager
def open_model(name: str, user_dir: str | None = None) -> Iterator[Translator]:
    """Yield the model in a folder; pack a run or a checkpoint into a temporary folder first.

    The folder's files are needed to read and write text, so it stays until the block ends.

    Raises:
        UserError: there is no such model, or something that packing needs is missing.
    """
    if not is_run_or_checkpoint(name):
        yield Translator(ModelFolder.read(Path(name)), user_dir=user_dir)
        return

    # only for a run: these import fairseq, which a packed model does without
    from vaswani.packing.collect import collect_model, user_dir_of, write_model
    from vaswani.packing.data_text import DataOptions
    from vaswani.training.checkpoints import find_checkpoint

    checkpoint, run = find_checkpoint(name)
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "model"
        write_model(packed, collect_model(checkpoint, run, DataOptions()))
        yield Translator(ModelFolder.read(packed), user_dir=user_dir or user_dir_of(run))


def is_run_or_checkpoint(name: str) -> bool:
    """Return whether a name is that of a checkpoint or a run, and not of a model folder."""
    path = Path(name)
    if path.is_file() or (path.suffix == ".pt" and not path.is_dir()):
        return True
    runs = (run for run in Run.candidates(name) if run.folder.is_dir())
    run = next(runs, Run(path))
    return run.exists and not is_model_folder(run.folder)


def attend(translator: Translator, source: str, target: str | None, max_weights: int) -> Attention:
    """Return the attention of a model over a sentence and its translation.

    Args:
        translator: a :class:`vaswani.decoding.translator.Translator`
        source: raw text
        target: raw text; None: the model's own translation
        max_weights: over all heads

    Raises:
        UserError: a sentence is empty or too long, or there are more weights than ``max_weights``.
    """
    engine = translator.engine
    assert isinstance(engine, ProcessEngine), "an export has no attention weights to show"
    read, source_ids = sentence(translator, source, "source")
    if target is None:
        target_ids = translate_ids(translator, read)
        target_subwords = [engine.target[number] for number in target_ids[:-1]]
        joined = translator.target_text.tokens(" ".join(target_subwords))
        text = translator.target_text.text(joined)
    else:
        read_target, target_ids = sentence(translator, target, "target")
        target_subwords = read_target.subwords
        text = target
    check_size(engine.model, len(source_ids), len(target_ids), max_weights)
    source_lang, target_lang = translator.folder.langs
    moses = translator.folder.recipe.subword != SENTENCEPIECE
    sides = {
        "source": side(source_lang, read.subwords, engine.source, moses=moses),
        "target": side(target_lang, target_subwords, engine.target, moses=moses),
        "read": side(target_lang, target_subwords, engine.target, starts=True, moses=moses),
    }
    weights = head_weights(engine.model, source_ids, target_ids)
    return Attention(source.strip(), text.strip(), target is None, sides, weights)


def sentence(translator: Translator, text: str, name: str) -> tuple[InputSentence, list[int]]:
    """Return the source, or the target, as the model reads it, and its ids with the end.

    Raises:
        UserError: it is empty, or too long for the model.
    """
    read = translator.read(text, name)
    if read.ids is None:
        limit = getattr(translator.engine, f"longest_{name}")
        problem = f"has more than {limit:,} subwords with its end: give a shorter sentence"
        raise UserError(
            f"the {name} {problem if read.too_long else 'has no words: give a sentence'}"
        )
    return read, read.ids


def translate_ids(translator: Translator, read: InputSentence) -> list[int]:
    """Translate a sentence, and return ids with the end, which a truncated translation lacks."""
    hypotheses = translator.search([read], translator.options.changed(nbest=1))
    tokens: list[int] = hypotheses[0][0].tokens
    end = translator.engine.target.eos()
    return tokens if tokens[-1] == end else [*tokens, end]


def side(
    lang: str,
    subwords: Sequence[str],
    dictionary: Dictionary,
    starts: bool = False,
    moses: bool = True,
) -> Side:
    """Return the words and subwords of a sentence.

    Args:
        lang: its language
        subwords: without the end of sentence
        dictionary: its language's
        starts: whether it begins with the start symbol and its end is not read
        moses: whether its words are Moses' tokens; else its pieces are the words
    """
    label = unescape if moses else str
    skip = 1 if starts else 0
    unknown = [dictionary.index(subword) == dictionary.unk_index for subword in subwords]
    units = [
        Unit(label(subword), n + skip, n + skip, bad)
        for n, (subword, bad) in enumerate(zip(subwords, unknown, strict=True))
    ]
    words = []
    for text, first, last in words_of(subwords, in_parts=moses):
        bad = any(unknown[first : last + 1])
        words.append(Unit(label(text), first + skip, last + skip, bad))
    if starts:
        start = Unit(START, 0, 0)
        return Side(lang, [start, *words], [start, *units])
    end = Unit(END, len(subwords), len(subwords))
    return Side(lang, [*words, end], [*units, end])


def check_size(model: nn.Module, source: int, target: int, max_weights: int) -> None:
    """Raise UserError if there are more weights than can be shown."""
    encoder = sum(layer.self_attention.num_heads for layer in model.encoder.layers)
    decoder = sum(layer.self_attention.num_heads for layer in model.decoder.layers)
    count = encoder * source**2 + decoder * (target**2 + target * source)
    if count > max_weights:
        raise UserError(
            f"a source of {source:,} subwords and a target of {target:,} have {count:,} weights, "
            f"but a page can show {max_weights:,} at most: give a shorter sentence"
        )


def head_weights(
    model: nn.Module, source: Sequence[int], target: Sequence[int]
) -> dict[str, numpy.ndarray]:
    """Return the weights of every head.

    Args:
        model: the paper's, in evaluation mode
        source: numbers of the source's subwords and its end [S]
        target: the same for the target [T]

    Returns:
        numpy float32 by kind: ``encoder`` [N, H, S, S], ``decoder`` [N, H, T, T], ``cross``
        [N, H, T, S].
    """
    device = next(model.parameters()).device
    previous = torch.tensor([target], device=device).roll(1)  # it starts with the end
    with torch.no_grad():
        tokens = torch.tensor([source], device=device)
        memory, encoder = model.encoder.encode(tokens, need_weights=True)
        _, decoder = model.decoder.features(previous, memory, need_weights=True)
    by_kind = {
        "encoder": encoder,
        "decoder": decoder.self_attention,
        "cross": decoder.cross_attention,
    }
    return {
        kind: torch.stack([layer[0].float().cpu() for layer in layers]).numpy()
        for kind, layers in by_kind.items()
    }


def word_weights(
    weights: numpy.ndarray, rows: Sequence[Unit], columns: Sequence[Unit]
) -> numpy.ndarray:
    """Return weights between words, from those between subwords.

    What a word attends to is the mean over its subwords; how much a word is attended to is the sum
    over its subwords. So each row still sums to 1.

    Args:
        weights: numpy [..., rows, columns] over subwords
        rows, columns: the words
    """
    summed = numpy.stack([weights[..., u.first : u.last + 1].sum(-1) for u in columns], axis=-1)
    means = [summed[..., unit.first : unit.last + 1, :].mean(-2) for unit in rows]
    return numpy.stack(means, axis=-2)


def view(attention: Attention, kind: str, by: str) -> tuple[numpy.ndarray, list[str], list[str]]:
    """Return the weights of a kind as shown, and the labels of rows and columns.

    Args:
        attention: of a model over a sentence and its translation
        kind: a key of ``KINDS``
        by: "words" or "subwords"
    """
    rows, columns = (getattr(attention.sides[name], by) for name in KINDS[kind][1:])
    maps = word_weights(attention.weights[kind], rows, columns)
    return maps, [unit.text for unit in rows], [unit.text for unit in columns]
