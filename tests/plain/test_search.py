"""Section 6.1: the quick search finds what the shortest one does."""

import math

import pytest
import torch
from torch import Tensor

from tests.plain.small import EOS, PAD, TYPES, batch, lively_model
from vaswani_transformer import SearchOptions, beam_search, greedy_decode
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.search import search, simple_beam_search
from vaswani_transformer.search.incremental import IncrementalModel, rule_and_limit
from vaswani_transformer.search.loop import BLOCK, top_candidates
from vaswani_transformer.vocabulary import FAIRSEQ_IDS


def sentences(source: Tensor) -> list[Tensor]:
    """Return each sentence of a batch by itself, without padding: [1, S']."""
    return [row[row.ne(PAD)][None] for row in source]


@pytest.mark.paper("6.1")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("beam, alpha, extra", [(1, 0.6, 6), (4, 0.6, 9), (3, 2.0, 9), (8, 0, 3)])
def test_beam_search_equals_the_simple_one(beam: int, alpha: float, extra: int, fast: bool) -> None:
    """A padded batch with a cache, against one sentence after another without; random models."""
    for seed in range(5):
        model = lively_model(seed)
        source, _, _ = batch(seed)
        expected = [simple_beam_search(model, one, beam, alpha, extra) for one in sentences(source)]
        if fast:
            use_fast_kernels(model)
        assert beam_search(model, source, beam, alpha, extra) == expected


@pytest.mark.parametrize("seed", range(6))
def test_greedy_decoding_takes_the_likeliest_token_each_time(seed: int) -> None:
    """One sentence, one token at a time; padded on either side it says the same."""
    model = lively_model(seed)
    source, _, _ = batch(seed)
    expected = []
    for one in sentences(source):
        tokens: list[int] = []
        while len(tokens) < 12 and EOS not in tokens:
            logits = model(one, torch.tensor([[EOS, *tokens]]))[0, -1]
            logits[PAD] = -math.inf
            tokens.append(int(logits.argmax()))
        expected.append(tokens)
    right = source.gather(1, source.eq(PAD).int().argsort(dim=1, stable=True))
    assert greedy_decode(model, source, 12) == greedy_decode(model, right, 12) == expected


@pytest.mark.parametrize("fast", [False, True])
def test_a_row_of_padding_has_an_empty_translation(fast: bool) -> None:
    """As an empty line has with every engine; the other rows are translated as without it."""
    model = lively_model(3)
    source, _, _ = batch(3)
    if fast:
        use_fast_kernels(model)
    beside = torch.cat([source[:1], torch.full_like(source[:1], PAD), source[1:]])
    for translate in (greedy_decode, beam_search):
        alone = translate(model, source)
        assert translate(model, beside) == [alone[0], [EOS], *alone[1:]]
        assert translate(model, beside[1:2]) == [[EOS]]


@pytest.mark.parametrize("penalty", ["fairseq", "gnmt"])
@pytest.mark.parametrize("fast", [False, True])
def test_a_score_is_that_of_one_pass_over_the_whole(penalty: str, fast: bool) -> None:
    """The tokens' log-probabilities, and their sum by the penalty of the length."""
    model = lively_model(5)
    source, _, _ = batch(5)
    if fast:
        use_fast_kernels(model)
    options = SearchOptions(beam=4, lenpen=0.6, length_penalty=penalty, max_len_b=9)
    found = search(model.decoder, model.encoder(source), source, options)
    assert len(found.sentences) >= 6
    for number, sentence in enumerate(found.sentences):
        tokens = found.tokens[number]
        if tokens[-1] != EOS:  # cut off at the limit: nothing to begin the target with
            continue
        log_probs = model(sentences(source)[sentence], tokens.roll(1)[None])[0].log_softmax(1)
        own = log_probs.gather(1, tokens[:, None])[:, 0]
        torch.testing.assert_close(found.token_scores[number], own, rtol=0, atol=1e-10)
        divisor = len(own) ** 0.6 if penalty == "fairseq" else ((5 + len(own)) / 6) ** 0.6
        assert float(found.scores[number]) == pytest.approx(own.sum().item() / divisor)


def test_a_beam_wider_than_the_vocabulary_is_searched() -> None:
    model = lively_model(2)
    source, _, _ = batch(2)
    assert len(beam_search(model, source, beam=2 * TYPES, extra=3)) == 3


@pytest.mark.parametrize("penalty", ["fairseq", "gnmt"])
def test_a_model_that_has_diverged_is_no_translation(penalty: str) -> None:
    model = lively_model(1)
    source, _, _ = batch(1)
    model.decoder.output_projection.weight.data.fill_(math.nan)
    options = SearchOptions(beam=2, length_penalty=penalty)
    with pytest.raises(FloatingPointError):
        search(model.decoder, model.encoder(source), source, options)


def test_the_limit_of_the_paper_is_not_rounded_down() -> None:
    """1.05 times 180 words and 50 are 239; in float32 a little less."""
    options = SearchOptions(max_len_a=1.05, max_len_b=50, length_penalty="gnmt")
    rule, limit = rule_and_limit(options, torch.full((1, 180), 5))
    assert rule.limits.tolist() == [239] and limit == 239  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "options, named",
    [
        ({"min_len": 7, "max_len_b": 4}, "--min-len 7"),
        ({"lenpen": -1.0, "length_penalty": "gnmt"}, "--lenpen -1"),
        ({"unkpen": -1.0, "length_penalty": "gnmt"}, "--unkpen -1"),
        ({"length_penalty": "foo"}, "--length-penalty must be fairseq or gnmt, not foo"),
        ({"lenpen": math.nan}, "--lenpen must be a finite number, not nan"),
        ({"unkpen": math.nan}, "--unkpen"),
        ({"temperature": math.nan}, "--temperature"),
        ({"max_len_a": math.inf}, "--max-len-a"),
        ({"temperature": -1.0}, "--temperature must be above 0, not -1"),
        ({"beam": 0}, "--beam"),
    ],
)
def test_options_that_find_nothing_are_refused(options: dict, named: str) -> None:
    model = lively_model(1)
    source, _, _ = batch(1)
    with pytest.raises(ValueError, match=named):
        search(model.decoder, model.encoder(source), source, SearchOptions(**options))


def test_a_half_models_probabilities_are_in_float32() -> None:
    """Sums of log-probabilities over a sentence would lose all but two digits in bfloat16."""
    model = lively_model(1).bfloat16()
    source, _, _ = batch(1)
    memory = model.encoder(source)
    incremental = IncrementalModel(SearchOptions(), model.decoder, memory, 20, FAIRSEQ_IDS)
    log_probs = incremental.log_probs(torch.full((3,), EOS), 2)
    assert log_probs.dtype == torch.float32


@pytest.mark.parametrize("width", [40, 4 * 8 * BLOCK, 50 * BLOCK + 13])
def test_top_candidates_is_topk(width: int) -> None:
    scores = torch.randn(5, width)
    scores[0, -8:] += 10  # all of them at the end, outside of the blocks
    scores[1, 3:11] += 10  # all of them in one block
    values, positions = top_candidates(scores, 8)
    expected = scores.topk(8)
    assert torch.equal(values, expected.values)
    assert torch.equal(positions, expected.indices)
