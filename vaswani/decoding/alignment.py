"""Which source words a hypothesis attends to: one teacher-forced pass over beam search results.

The search itself keeps no attention. A second pass, with the words known, gives the attention at
all positions at once, as in fairseq's ``--print-alignment``: that of the decoder's last layer,
averaged over its heads.

Shape letters: B hypotheses, S source, T target.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from vaswani.data.bpe import MARK


class Word(NamedTuple):
    """A word in a sentence of subwords: its text, and the numbers of its subwords."""

    text: str
    first: int
    last: int


def words_of(subwords: Sequence[str], in_parts: bool = True) -> list[Word]:
    """The words that subwords form; one left unfinished at the end of the sentence ends there.

    Without ``in_parts`` every subword is a word, and a mark at its end belongs to it.
    """
    if not in_parts:
        return [Word(subword, number, number) for number, subword in enumerate(subwords)]
    words, first = [], 0
    for number, subword in enumerate(subwords):
        if not subword.endswith(MARK.rstrip()) or number == len(subwords) - 1:
            joined = "".join(p.removesuffix(MARK.rstrip()) for p in subwords[first : number + 1])
            words.append(Word(joined, first, number))
            first = number + 1
    return words


def attended_subwords(
    model: Any, source: Any, hypotheses: Sequence[Sequence[Any]]
) -> list[list[list[int]]]:
    """For each token of each hypothesis of each sentence, the subword that it attends to most.

    Places count the source's subwords from 0, without the end of sentence.

    Args:
        model: the paper's, or this plugin's
        source: the batch that was searched, int64 [N, S], padded on the left
        hypotheses: the tokens [T] of each hypothesis of each sentence, with their end
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from vaswani_transformer.vocabulary import EOS, PAD

    rows = [(row, torch.as_tensor(one)) for row, best in enumerate(hypotheses) for one in best]
    shifted = [torch.cat([tokens.new_tensor([EOS]), tokens[:-1]]).long() for _, tokens in rows]
    previous = pad_sequence(shifted, batch_first=True, padding_value=PAD).to(source.device)
    numbers = torch.tensor([row for row, _ in rows], device=source.device)
    with torch.no_grad():
        memory = model.encoder.encode(source)[0].select(numbers)
        _, weights = model.decoder.features(previous, memory, need_alignment=True)
    attention = weights.cross_attention[-1].mean(dim=1).float()  # [B, T, S]
    chosen = source.index_select(0, numbers)
    is_word = chosen.ne(PAD) & chosen.ne(EOS)
    attention = attention.masked_fill(~is_word[:, None, :], -1.0)
    skipped = chosen.eq(PAD).sum(1)  # on the left
    attended = (attention.argmax(2) - skipped[:, None]).tolist()  # [B, T]
    result: list[list[list[int]]] = [[] for _ in hypotheses]
    for (row, tokens), places in zip(rows, attended, strict=True):
        result[row].append(places[: len(tokens)])
    return result


def aligned_words(
    source: Sequence[Word], target: Sequence[Word], attended: Sequence[int]
) -> list[tuple[int, int]]:
    """Pairs (source word, target word), counted from 0, whose subwords are linked by attention.

    Args:
        source: the source's words
        target: the hypothesis's words
        attended: for each subword of the hypothesis, a subword of the source
    """
    word_of = {p: n for n, word in enumerate(source) for p in range(word.first, word.last + 1)}
    return [
        (place, number)
        for number, word in enumerate(target)
        for place in sorted({word_of[subword] for subword in attended[word.first : word.last + 1]})
    ]


def replace_unknown(
    subwords: Sequence[str], attended: Sequence[int], source: Sequence[Word], unknown: str
) -> tuple[list[str], list[int]]:
    """A hypothesis in which unknown words are replaced by copies of source words.

    Several unknown subwords in a row that attend to the same word become one copy of it.

    Args:
        subwords: of the hypothesis
        attended: for each subword, a subword of the source
        source: the source's words
        unknown: the dictionary's symbol

    Returns:
        The subwords, and what they attend to.
    """
    word_of = {p: word for word in source for p in range(word.first, word.last + 1)}
    kept: list[str] = []
    kept_attended: list[int] = []
    copied = None
    for subword, place in zip(subwords, attended, strict=True):
        word = word_of.get(place) if subword == unknown else None
        if word is None or word is not copied:
            kept.append(word.text if word else subword)
            kept_attended.append(place)
        copied = word
    return kept, kept_attended
