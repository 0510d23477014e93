"""Sections 3.4 and 3.5: scaled embeddings, sinusoidal and learned positions."""

import math

import pytest
import torch
from torch import nn

from vaswani_transformer.embedding import (
    InputEmbedding,
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
    token_positions,
)


@pytest.mark.paper("3.5")
def test_paper_sinusoids_are_the_formula() -> None:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D))."""
    dim = 12
    table = sinusoids(40, 12)
    for pos in range(40):
        for i in range(dim // 2):
            angle = pos / 10000 ** (2 * i / dim)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_t2t_sinusoids_are_halves_with_geometric_timescales() -> None:
    """tensor2tensor: [sin | cos], timescales 1 to 10,000 over D/2 - 1 intervals, from 0."""
    dim = 8
    table = sinusoids(5, 8, "t2t")
    for pos in range(5):
        for i in range(4):
            angle = pos / 10000 ** (i / 3)
            assert table[pos, i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[pos, 4 + i].item() == pytest.approx(math.cos(angle), abs=1e-12)
    assert table.shape == (5, dim)


def test_fairseqs_sinusoids_are_t2ts_from_position_2() -> None:
    """The first token stands at padding_idx + 1."""
    assert torch.equal(sinusoids(5, 8, "fairseq"), sinusoids(7, 8, "t2t")[2:])


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="other"):
        sinusoids(3, 8, "other")


def test_positions_count_real_tokens_on_either_side_of_padding() -> None:
    tokens = torch.tensor([[1, 1, 7, 8, 9], [7, 8, 9, 1, 1], [5, 6, 7, 8, 9]])
    expected = [[0, 0, 0, 1, 2], [0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]
    assert token_positions(tokens, padding_idx=1).tolist() == expected


def test_no_length_limit() -> None:
    """A sentence longer than any before it makes the table grow; short ones stay the same."""
    positions = SinusoidalPositions(6)
    like = torch.zeros(1, dtype=torch.float64)
    longest = torch.arange(5000)[None]
    torch.testing.assert_close(positions(longest, 5000, like)[0], sinusoids(5000, 6))
    torch.testing.assert_close(positions(longest[:, :3], 3, like)[0], sinusoids(3, 6))


def test_sinusoids_take_the_embeddings_type_and_are_no_parameters() -> None:
    positions = SinusoidalPositions(6)
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert positions(torch.tensor([[0, 3]]), 4, torch.zeros(1, dtype=dtype)).dtype == dtype
    assert not positions.state_dict()


@pytest.mark.paper("3.5")
def test_learned_positions_have_an_end() -> None:
    positions = LearnedPositions(4, 6)
    like = torch.zeros(1)
    assert positions(torch.tensor([[0, 3]]), 4, like).shape == (1, 2, 6)
    with pytest.raises(ValueError, match="5 tokens .* 4 "):
        positions(torch.tensor([[4]]), 5, like)


def test_padding_needs_no_learned_position() -> None:
    """fairseq pads to a width beyond the table with ``--required-seq-len-multiple 8``."""
    embed = InputEmbedding(nn.Embedding(9, 16, padding_idx=1), LearnedPositions(5, 16), 0.0)
    tokens = torch.tensor([[4, 5, 6, 7, 2, 1, 1, 1]])
    torch.testing.assert_close(embed(tokens)[:, :5], embed(tokens[:, :5]))


@pytest.mark.paper("3.4")
def test_embeddings_are_scaled_and_positions_added() -> None:
    """Section 3.4: the embedding layers multiply the weights by √d_model."""
    tokens = nn.Embedding(9, 16, padding_idx=1)
    embed = InputEmbedding(tokens, SinusoidalPositions(16), dropout=0.0)
    result = embed(torch.tensor([[1, 5, 6]]))
    expected = tokens.weight[6] * 4 + sinusoids(2, 16)[1].float()
    torch.testing.assert_close(result[0, 2], expected)


def test_skipped_tokens_keep_their_count() -> None:
    """Incremental decoding embeds the last token alone, at the position it has in the whole."""
    embed = InputEmbedding(nn.Embedding(9, 16, padding_idx=1), SinusoidalPositions(16), 0.0)
    tokens = torch.tensor([[2, 5, 6, 7]])
    assert torch.equal(embed(tokens, skip=3), embed(tokens)[:, 3:])


@pytest.mark.paper("5.4")
def test_dropout_of_the_sum() -> None:
    """Section 5.4: of embeddings and positions together, so a dropped element has neither."""
    embed = InputEmbedding(nn.Embedding(9, 16, padding_idx=1), SinusoidalPositions(16), 0.5)
    tokens = torch.tensor([[2, 5, 6, 7]])
    found = embed(tokens)
    whole = embed.eval()(tokens)
    dropped = found.eq(0)
    assert 10 < dropped.sum() < 54
    torch.testing.assert_close(found, (2 * whole).masked_fill(dropped, 0.0))
