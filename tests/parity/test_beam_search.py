"""Both generators with our model equal independent, slow beam searches under the same rules.

fairseq's rule: at every step the 2k best continuations of k hypotheses are looked at; an end of
sentence counts if it is among the best k; the k best others go on; a hypothesis scores
log P / length^λ with the end of sentence counted; the search stops at k finished hypotheses, or at
the length limit, where the end of sentence is forced. No pad, no empty output.

tensor2tensor's, the paper's: every end among the 2k counts; log P / ((5 + length) / 6)^α; the
search stops when the worst of the wanted results beats the best live hypothesis at the penalty of
the greatest length; hypotheses without an end are results only where there is nothing else.
"""

from typing import Any, List, Tuple

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from tests import models
from tests.models import batch, dictionary
from transformer_plugin.generator import VaswaniSequenceGenerator
from transformer_plugin.model import VaswaniTransformerModel

PAD, EOS = 1, 2
Hypothesis = Tuple[float, List[int]]


def lively_model(seed: int) -> VaswaniTransformerModel:
    """In float64: there no two hypotheses are so close that the order of a sum decides."""
    return models.lively_model(seed).double()


def continuations(
    model: VaswaniTransformerModel, encoder_out: Any, alive: List[Hypothesis]
) -> List[Hypothesis]:
    """Every prefix with every next token, best first; decoded from the start, without caches."""
    candidates: List[Hypothesis] = []
    for score, tokens in alive:
        logits, _ = model.decoder(torch.tensor([[EOS, *tokens]]), encoder_out)
        log_probs = torch.log_softmax(logits[0, -1], dim=-1)
        for token, log_prob in enumerate(log_probs.tolist()):
            if token != PAD and (tokens or token != EOS):
                candidates.append((score + log_prob, [*tokens, token]))
    return sorted(candidates, key=lambda c: -c[0])


def slow_beam_search(
    model: VaswaniTransformerModel, source: Tensor, beam: int, lenpen: float, max_len: int
) -> List[Hypothesis]:
    """One sentence by fairseq's rule.

    Args:
        source: [S], without padding

    Returns:
        Finished hypotheses (score, tokens with the end of sentence), best first.
    """
    encoder_out = model.encoder(source[None])
    alive: List[Hypothesis] = [(0.0, [])]
    finished: List[Hypothesis] = []
    for step in range(max_len + 1):
        candidates = continuations(model, encoder_out, alive)
        if step == max_len:
            candidates = [c for c in candidates if c[1][-1] == EOS]
        for score, tokens in candidates[:beam]:
            if tokens[-1] == EOS and len(finished) < beam:
                finished.append((score / len(tokens) ** lenpen, tokens))
        if len(finished) == beam:
            break
        alive = [c for c in candidates[: 2 * beam] if c[1][-1] != EOS][:beam]
    return sorted(finished, key=lambda h: -h[0])


def slow_gnmt_search(
    model: VaswaniTransformerModel,
    source: Tensor,
    beam: int,
    alpha: float,
    limit: int,
    wanted: int,
    early: bool = True,
) -> List[Hypothesis]:
    """One sentence by tensor2tensor's rule, or, not ``early``, always up to ``limit`` tokens."""

    def penalty(length: int) -> float:
        return ((5 + length) / 6) ** alpha

    encoder_out = model.encoder(source[None])
    alive: List[Hypothesis] = [(0.0, [])]
    finished: List[Hypothesis] = []
    for length in range(1, limit + 1):
        best = continuations(model, encoder_out, alive)[: 2 * beam]
        ends = [(score / penalty(length), t) for score, t in best if t[-1] == EOS]
        finished = sorted(finished + ends, key=lambda h: -h[0])[:beam]
        alive = [c for c in best if c[1][-1] != EOS][:beam]
        could_come = alive[0][0] / penalty(limit)
        if early and len(finished) >= wanted and finished[wanted - 1][0] > could_come:
            break
    return finished or [(score / penalty(limit), tokens) for score, tokens in alive]


def assert_equal(results: List[Any], expected: List[Hypothesis]) -> None:
    """Tokens equal, scores within the rounding of float32, in which fairseq's search adds."""
    assert [h["tokens"].tolist() for h in results] == [tokens for _, tokens in expected]
    scores = [h["score"].item() for h in results]
    assert scores == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("cls", [SequenceGenerator, VaswaniSequenceGenerator])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("beam,lenpen", [(1, 1.0), (4, 0.6)])
def test_generator_equals_slow_search(cls: Any, seed: int, beam: int, lenpen: float) -> None:
    """A batch padded on the left, caches reordered at every step, against one by one without."""
    model = lively_model(seed)
    source, _, _ = batch(seed)
    generator = cls(
        [model], dictionary(), beam_size=beam, len_penalty=lenpen, max_len_a=1, max_len_b=4
    )
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}}
    with torch.no_grad():
        results = generator.generate([model], sample)
        for sentence, hypotheses in zip(source, results, strict=True):
            words = sentence[sentence.ne(PAD)]
            max_len = source.size(1) + 4  # fairseq counts the padded source
            assert_equal(hypotheses, slow_beam_search(model, words, beam, lenpen, max_len))


@pytest.mark.paper("6.1")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "beam,alpha,extra,wanted", [(1, 0.6, 6, 1), (4, 0.6, 9, 1), (4, 0.6, 9, 4), (3, 2.0, 9, 2)]
)
def test_gnmt_equals_slow_search(
    seed: int, beam: int, alpha: float, extra: int, wanted: int
) -> None:
    """Each sentence has its own limit: its real tokens with the end, plus ``extra``."""
    model = lively_model(seed)
    source, _, _ = batch(seed)
    options = {"beam_size": beam, "len_penalty": alpha, "max_len_a": 1, "max_len_b": extra}
    generator = VaswaniSequenceGenerator(
        [model], dictionary(), length_penalty="gnmt", nbest=wanted, **options
    )
    with torch.no_grad():
        results = generator.generate([model], {"net_input": {"src_tokens": source}})
        for sentence, hypotheses in zip(source, results, strict=True):
            words = sentence[sentence.ne(PAD)]
            limits = (beam, alpha, len(words) + extra, wanted)
            assert_equal(hypotheses, slow_gnmt_search(model, words, *limits))
            exhausted = slow_gnmt_search(model, words, *limits, early=False)
            assert_equal(hypotheses[:wanted], exhausted[: min(wanted, len(hypotheses))])


def test_gnmt_without_an_end() -> None:
    """No end of sentence within the limit: the live hypotheses are the results, without one."""
    unfinished = 0
    options = {"beam_size": 2, "len_penalty": 0.6, "max_len_b": 3}
    for seed in range(6):
        model, (source, _, _) = lively_model(seed), batch(seed)
        words = source[0][source[0].ne(PAD)]
        generator = VaswaniSequenceGenerator(
            [model], dictionary(), length_penalty="gnmt", **options
        )
        with torch.no_grad():
            model.decoder.output_projection.weight[EOS].zero_()
            (results,) = generator.generate([model], {"net_input": {"src_tokens": words[None]}})
            assert_equal(results, slow_gnmt_search(model, words, 2, 0.6, 3, 1))
        unfinished += EOS not in results[0]["tokens"]
    assert unfinished >= 3


def test_the_rules_differ() -> None:
    """The two penalties and stopping rules choose differently somewhere; α decides lengths."""
    different, lengths = 0, {0.0: 0, 2.0: 0}
    for seed in range(12):
        model, (source, _, _) = lively_model(seed), batch(seed)
        words = source[0][source[0].ne(PAD)]
        with torch.no_grad():
            fairseqs = slow_beam_search(model, words, 4, 0.6, 10)[0]
            gnmt = slow_gnmt_search(model, words, 4, 0.6, 11, 1)[0]
            for alpha in lengths:
                lengths[alpha] += len(slow_gnmt_search(model, words, 4, alpha, 11, 1)[0][1])
        different += fairseqs[1] != gnmt[1]
    assert different
    assert lengths[2.0] > lengths[0.0]


def test_the_search_has_choices_to_make() -> None:
    """The comparison is no comparison of trivial outputs: lengths and first words differ."""
    outputs = []
    for seed in range(6):
        source, _, _ = batch(seed)
        words = source[1][source[1].ne(PAD)]
        with torch.no_grad():
            outputs += slow_beam_search(lively_model(seed), words, 4, 0.6, 10)
    assert len({len(tokens) for _, tokens in outputs}) > 3
    assert len({tokens[0] for _, tokens in outputs}) > 2
