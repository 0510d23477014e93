"""Sections 3.1 to 3.5 and 5.4: encoder, decoder with and without its cache, shared matrices."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.plain.small import PAD, TYPES, batch, small_model
from vaswani_transformer import Transformer, TransformerConfig, base, big
from vaswani_transformer.attention import MultiHeadAttention
from vaswani_transformer.cache import INITIAL_CAPACITY, DecoderCache
from vaswani_transformer.embedding import SINUSOID_LAYOUTS
from vaswani_transformer.encoder import Memory
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.layers import FeedForward


@pytest.fixture(params=["readable", "fast"])
def model(request: Any) -> Transformer:
    own = small_model()
    if request.param == "fast":
        use_fast_kernels(own)
    return own


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_cached_decoding_equals_decoding_of_the_whole(model: Transformer) -> None:
    """Position by position, by features and by step, and several positions at once."""
    source, previous, target = batch()
    memory = model.encoder(source)
    whole = model.decoder(previous, memory)
    one_by_one, by_step, together = (DecoderCache(len(model.decoder.layers)) for _ in range(3))
    for place in range(previous.size(1)):
        real = target[:, place].ne(PAD)
        features, _ = model.decoder.features(previous[:, : place + 1], memory, one_by_one)
        assert_close(model.decoder.output_layer(features)[real, 0], whole[real, place])
        logits = model.decoder.step(previous[:, place], memory, by_step)
        assert_close(logits[real], whole[real, place])
    model.decoder.features(previous[:, :3], memory, together)
    features, _ = model.decoder.features(previous, memory, together)
    real = target[:, 3:].ne(PAD)
    assert_close(model.decoder.output_layer(features)[real], whole[:, 3:][real])


def test_the_cache_grows(model: Transformer) -> None:
    """More steps than there is memory for at first; its tensor grows twice, and loses nothing."""
    source = batch()[0][:1]
    previous = torch.randint(4, TYPES, (1, 2 * INITIAL_CAPACITY + 10))
    whole = model(source, previous)
    memory = model.encoder(source)
    cache = DecoderCache(len(model.decoder.layers))
    for place in range(previous.size(1)):
        assert_close(model.decoder.step(previous[:, place], memory, cache), whole[:, place])


def test_reordering_is_decoding_in_that_order(model: Transformer) -> None:
    """Beam search duplicates, drops and swaps rows between steps."""
    source, previous, _ = batch()
    cache = DecoderCache(len(model.decoder.layers))
    memory = model.encoder(source)
    model.decoder.step(previous[:, 0], memory, cache)
    for order in (torch.tensor([2, 0, 0, 1]), torch.tensor([0, 2, 3])):
        cache.reorder(order)
        cache.select_sentences(order)
        memory, source, previous = memory.select(order), source[order], previous[order]
    found = model.decoder.step(previous[:, 1], memory, cache)
    assert_close(found, model(source, previous[:, :2])[:, 1])


@pytest.mark.paper("3.2.3", "figure 1")
def test_no_position_sees_a_later_one(model: Transformer) -> None:
    """Section 3.2.3: changing token t changes outputs at t and after, none before."""
    source, previous, _ = (tensor[:1] for tensor in batch())
    before = model(source, previous[:, :5])
    for t in range(1, 5):
        changed = previous[:, :5].clone()
        changed[0, t] = 4 + (changed[0, t] - 3) % 20
        after = model(source, changed)
        assert_close(after[0, :t], before[0, :t])
        assert not torch.allclose(after[0, t], before[0, t])


@pytest.mark.parametrize("layout", SINUSOID_LAYOUTS)
@pytest.mark.parametrize("fast", [False, True])
def test_padding_and_neighbours_change_nothing(layout: str, fast: bool) -> None:
    """Each sentence alone, padded left, padded right, and in a batch."""
    model = small_model(sinusoid_layout=layout)
    if fast:
        use_fast_kernels(model)
    source, previous, target = batch()
    together = model(source, previous)
    pads = torch.full((3,), PAD)
    for row in range(3):
        words = source[row][source[row].ne(PAD)]
        length = int(target[row].ne(PAD).sum())
        for alone in (words, torch.cat([pads, words]), torch.cat([words, pads])):
            logits = model(alone[None], previous[row : row + 1, :length])
            assert_close(logits[0], together[row, :length])


def test_a_memory_without_padding_needs_no_mask(model: Transformer) -> None:
    source, previous, _ = (tensor[:1] for tensor in batch())
    states = model.encoder(source).states
    expected = model.decoder(previous, Memory(states, source.eq(PAD)))
    assert_close(model.decoder(previous, Memory(states)), expected)


@pytest.mark.paper("3.1")
def test_norm_comes_after_the_sum_and_no_norm_ends_the_stack(model: Transformer) -> None:
    """Section 3.1: LayerNorm(x + Sublayer(x)), so each stack's output is normalised already."""
    states = model.encoder(batch()[0]).states
    torch.testing.assert_close(
        states.mean(-1), torch.zeros(3, 6, dtype=torch.float64), atol=1e-6, rtol=0
    )
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 3 * 2
    assert {norm.eps for norm in norms} == {1e-6}


@pytest.mark.paper("5.4")
def test_each_dropout_rate_is_where_its_option_says() -> None:
    """5.4: sub-layers' outputs, and sums of embeddings and positions; the others by option only."""
    model = small_model(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    places = {n: m.p for n, m in model.named_modules() if isinstance(m, nn.Dropout)}
    residual = [n for n, p in places.items() if p == 0.3]
    assert all("after_" in n or n.endswith("embedding.dropout") for n in residual)
    assert len(residual) == 2 + 2 * 2 + 3 * 2
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert [m.dropout.p for m in attentions] == [0.2] * (2 + 2 * 2)
    assert sum(n.endswith("feed_forward.dropout") for n, p in places.items() if p == 0.1) == 4
    assert len(places) == 12 + 6 + 4


@pytest.mark.paper("figures 3 to 5")
def test_weights_per_head_on_request_change_nothing_else(model: Transformer) -> None:
    source, previous, _ = batch()
    memory, encoder_weights = model.encoder.encode(source, need_weights=True)
    features, weights = model.decoder.features(previous, memory, need_weights=True)
    expected, unasked = model.decoder.features(previous, memory)
    assert_close(features, expected)
    shapes = [(3, 4, 6, 6), (3, 4, 7, 7), (3, 4, 7, 6)]
    for found, shape in zip([encoder_weights, *weights], shapes):  # noqa: B905
        assert [tuple(w.shape) for w in found] == [shape, shape]
        assert_close(found[0].sum(-1), torch.ones(shape[:-1]).double())
    _, aligned = model.decoder.features(previous, memory, need_alignment=True)
    assert len(aligned.cross_attention) == 1 and not aligned.self_attention
    assert_close(aligned.cross_attention[-1], weights.cross_attention[-1])
    assert unasked.self_attention == unasked.cross_attention == []


def test_an_overridden_output_layer_decides_every_logit(model: Transformer) -> None:
    """It is the only way to them, in training, in decoding and in every search."""
    source, previous, _ = batch()
    model.decoder.output_layer = lambda x: x.sum(-1, keepdim=True)  # type: ignore[method-assign]
    cache = DecoderCache(len(model.decoder.layers))
    assert model(source, previous).shape == (3, 7, 1)
    assert model.decoder.step(previous[:, 0], model.encoder(source), cache).shape == (3, 1)


def matrices(model: Transformer) -> list:
    own = (model.encoder.embedding.tokens, model.decoder.embedding.tokens)
    return [*(part.weight for part in own), model.decoder.output_projection.weight]


@pytest.mark.paper("3.4")
def test_options_say_which_matrices_are_one() -> None:
    """Section 3.4: all three; of a target of its own, two; untied, none."""
    two = {"share_decoder_input_output_embed": True}
    for options, different in (
        ({}, 1),
        (two, 2),
        ({**two, "share_all_embeddings": True}, 1),
        ({"untie_embeddings": True}, 3),
    ):
        source, target, output = matrices(small_model(**options))
        assert len({id(source), id(target), id(output)}) == different
        assert (target is output) == (different < 3)


def test_vocabularies_of_two_sizes_cannot_share_a_matrix() -> None:
    with pytest.raises(ValueError, match="untie_embeddings"):
        Transformer(TransformerConfig(), 24, 30)
    own = base(layers=1, d_model=16, d_ff=8, untie_embeddings=True)
    assert [len(matrix) for matrix in matrices(Transformer(own, 24, 30))] == [24, 30, 30]


@pytest.mark.parametrize("untied", [False, True])
def test_the_padding_row_reaches_no_real_token(untied: bool) -> None:
    """Looked up it gets no gradient; as a class of the output matrix it does (3.4)."""
    model = small_model(untie_embeddings=untied)
    source, previous, target = batch()
    real = target.ne(PAD)
    classes = [c for c in range(TYPES) if c != PAD]
    logits = model(source, previous)
    nn.functional.cross_entropy(logits[real], target[real]).backward()
    row = model.encoder.embedding.tokens.weight
    assert row.grad is not None and bool(row.grad[PAD].any()) is not untied
    with torch.no_grad():
        row[PAD] = 7.0
        other = model(source, previous)
    torch.testing.assert_close(other[real][:, classes], logits[real][:, classes])


@pytest.mark.paper("6.2")
def test_the_two_sizes_are_those_of_table_3() -> None:
    """65 and 213 million parameters, the first and the last row; at 37,000 types."""
    with torch.device("meta"):
        counts = [
            sum(p.numel() for p in Transformer(size, 37_000, 37_000).parameters())
            for size in (base(), big())
        ]
    assert [round(count / 1e6) for count in counts] == [63, 214]
    assert (base().dropout, big().dropout, big(dropout=0.1).dropout) == (0.1, 0.3, 0.1)


def test_a_size_is_given_for_both_sides_at_once() -> None:
    """Besides fairseq's names, which decide where the sides differ."""
    small = base(layers=2, d_model=64, d_ff=256, heads=4, decoder_layers=1, dropout=0.2)
    assert small == TransformerConfig(
        encoder_layers=2,
        encoder_embed_dim=64,
        encoder_ffn_embed_dim=256,
        encoder_attention_heads=4,
        decoder_layers=1,
        decoder_embed_dim=64,
        decoder_ffn_embed_dim=256,
        decoder_attention_heads=4,
        dropout=0.2,
    )
    assert base() == TransformerConfig()


def test_a_variant_is_the_paper_with_one_part_replaced() -> None:
    """The other parts, their names and their initial weights are the paper's."""

    class Swish(FeedForward):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(self.dropout(nn.functional.silu(self.fc1(x))))

    class SwishTransformer(Transformer):
        def build_feed_forward(self, d_ff: int) -> FeedForward:
            return Swish(self.d_model, d_ff, self.config.activation_dropout)

    config = base(layers=2, d_model=16, d_ff=32, heads=4)
    models = []
    for kind in (Transformer, SwishTransformer):
        torch.manual_seed(1)
        models.append(kind(config, TYPES, TYPES).eval())
    paper, swish = models
    for name, parameter in paper.state_dict().items():
        assert torch.equal(swish.state_dict()[name], parameter)
    source, previous, _ = batch()
    different = swish(source, previous)
    assert not torch.allclose(different, paper(source, previous), atol=1e-3)
    use_fast_kernels(swish)  # takes what is the paper's alone
    torch.testing.assert_close(swish(source, previous), different)
    assert {type(layer.feed_forward) for layer in swish.encoder.layers} == {Swish}
