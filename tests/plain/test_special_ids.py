"""The ids of padding, of the end of a sentence and of unknown types are the caller's."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.plain.small import SIZES, TYPES, batch, lively_model
from vaswani_transformer import (
    Transformer,
    TransformerConfig,
    Vocabulary,
    beam_search,
    greedy_decode,
)
from vaswani_transformer.embedding import sinusoids
from vaswani_transformer.loss import label_smoothed_loss
from vaswani_transformer.search import search, simple_beam_search
from vaswani_transformer.search_options import SearchOptions
from vaswani_transformer.vocabulary import PAD, SpecialIds

IDS = SpecialIds(pad=0, eos=1, unk=2)
ORDER = [1, 2, 3, 0, *range(4, TYPES)]
"""The fairseq id of each id here: the first four types are in another order."""


def here(ids: Tensor) -> Tensor:
    """Convert ids of fairseq's order to ids of ours."""
    return torch.tensor(ORDER).argsort()[ids]


def renumbered(model: Transformer) -> Transformer:
    """Return the same model with its types in our order."""
    config = TransformerConfig(**{**SIZES, "untie_embeddings": True})
    other = Transformer(config, TYPES, TYPES, padding_idx=IDS.pad).double().eval()
    state = model.state_dict()
    for name, tensor in state.items():
        if len(tensor) == TYPES and ("tokens" in name or "output_projection" in name):
            state[name] = tensor[ORDER]
    other.load_state_dict(state)
    return other


@pytest.fixture
def models() -> tuple[Transformer, Transformer]:
    model = lively_model(1)
    return model, renumbered(model)


def test_padding_of_another_id_is_hidden(models: Any) -> None:
    """Word 1 is a word where padding is 0: all logits and the loss are those of fairseq's order."""
    model, other = models
    source, previous, target = batch()
    expected = model(source, previous)
    logits = other(here(source), here(previous))
    real = target.ne(PAD)
    torch.testing.assert_close(logits[real], expected[real][:, ORDER])
    losses = [
        label_smoothed_loss(logits.log_softmax(-1), here(target), 0.1, IDS.pad)[0],
        label_smoothed_loss(expected.log_softmax(-1), target, 0.1, PAD)[0],
    ]
    torch.testing.assert_close(*losses)


def test_a_row_of_padding_is_refused_by_its_id(models: Any) -> None:
    _, other = models
    with pytest.raises(ValueError, match=r"only padding \(id 0\)"):
        other(torch.full((1, 3), 0), torch.full((1, 2), 1))
    other(torch.full((1, 3), 1), torch.full((1, 2), 1))  # the end of a sentence


def test_translations_have_the_callers_ids(models: Any) -> None:
    """Greedy, beam search with and without a cache: each token of fairseq's order, renumbered."""
    model, other = models
    source, _, _ = batch(1)
    expected = greedy_decode(model, source, 12)
    found = greedy_decode(other, here(source), 12, IDS)
    assert found == [here(torch.tensor(row)).tolist() for row in expected]
    expected = beam_search(model, source)
    found = beam_search(other, here(source), ids=IDS)
    assert found == [here(torch.tensor(row)).tolist() for row in expected]
    simple = simple_beam_search(other, here(source)[:1], ids=IDS)
    assert simple == found[0]


@pytest.mark.parametrize("length_penalty", ["fairseq", "gnmt"])
def test_the_penalty_of_unknown_words_is_for_their_id(models: Any, length_penalty: str) -> None:
    model, other = models
    source, _, _ = batch(1)
    options = SearchOptions(unkpen=0.7, max_len_b=12, length_penalty=length_penalty)
    scores = [
        search(model.decoder, model.encoder(source), source, options).scores,
        search(other.decoder, other.encoder(here(source)), here(source), options, ids=IDS).scores,
    ]
    torch.testing.assert_close(*scores)


@pytest.mark.parametrize("padding_idx", [0, 1, 5])
def test_fairseqs_sinusoids_begin_after_its_padding_id(padding_idx: int) -> None:
    expected = sinusoids(20, 8, "t2t")[padding_idx + 1 :]
    assert torch.equal(sinusoids(len(expected), 8, "fairseq", padding_idx), expected)
    model = Transformer(TransformerConfig(**SIZES, sinusoid_layout="fairseq"), 24, 24, padding_idx)
    for side in (model.encoder, model.decoder):
        first = side.embedding.positions.table[0]
        assert torch.equal(first, sinusoids(1, 16, "fairseq", padding_idx)[0].float())


# ---- Types and ids as in fairseq's dictionaries ----------------------------------------------


def load_vocabulary(folder: Path, text: str) -> Vocabulary:
    path = folder / "dict.en.txt"
    path.write_bytes(text.encode())
    return Vocabulary.load(path)


def test_words_become_ids_and_come_back(tmp_path: Path) -> None:
    """Ids follow the four special ones; unknown words are 3; ends and pads have no word."""
    vocabulary = load_vocabulary(tmp_path, "a@@ 5\nb 3\n")
    assert vocabulary.encode(["b", "a@@", "zebra"]) == [5, 4, 3, 2]
    assert vocabulary.decode([1, 5, 4, 3, 2]) == ["b", "a@@", "<unk>"]
    assert len(vocabulary) == 6 and vocabulary[4] == "a@@"


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    """A type may hold what other programs take for the end of a line, or fairseq's mark."""
    odd = ["\u2028", "\x85", "x\u00a0y", "#fairseq:overwrite"]
    vocabulary = load_vocabulary(tmp_path, "".join(f"{name} 1\n" for name in odd))
    assert vocabulary.types[4:] == odd
    assert load_vocabulary(tmp_path, "a 1 #fairseq:overwrite\n").types[4:] == ["a"]


def test_a_special_type_may_be_in_the_text_as_fairseq_reads_it(tmp_path: Path) -> None:
    """Encoded as the new id; what the vocabulary lacks stays 3, and so does its text."""
    text = "a 5\n<unk> 3 #fairseq:overwrite\na 1 #fairseq:overwrite\n"
    vocabulary = load_vocabulary(tmp_path, text)
    assert vocabulary.types[4:] == ["a", "<unk>", "a"]
    assert vocabulary.encode(["<unk>", "a", "zebra"]) == [5, 6, 3, 2]
    assert vocabulary.decode([3, 4, 5, 6]) == ["<unk>", "a", "<unk>", "a"]


@pytest.mark.parametrize("text", ["a\n", "a -1\n", "a 1\na 2\n", "</s> 1\n", " 1\n"])
def test_what_is_no_dictionary_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dict.en.txt"):
        load_vocabulary(tmp_path, text)
