"""The paper's search equals an independent, slow one; test_generator.py compares fairseq's.

tensor2tensor's rule: every end among the 2k counts; log P / ((5 + length) / 6)^α; the
search stops when the worst of the wanted results beats the best live hypothesis at the penalty of
the greatest length; hypotheses without an end are results only where there is nothing else.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests import models
from tests.models import batch, dictionary
from transformer_plugin.generator import VaswaniSequenceGenerator
from transformer_plugin.model import VaswaniTransformerModel

PAD, EOS = 1, 2
Hypothesis = tuple[float, list[int]]


def lively_model(seed: int) -> VaswaniTransformerModel:
    """Build the model in float64, in which the order of a sum never decides between hypotheses."""
    return models.lively_model(seed).double()


def continuations(
    model: VaswaniTransformerModel, encoder_out: Any, alive: list[Hypothesis]
) -> list[Hypothesis]:
    """Return every prefix with every next token, best first; decoded anew, without caches."""
    candidates: list[Hypothesis] = []
    for score, tokens in alive:
        logits, _ = model.decoder(torch.tensor([[EOS, *tokens]]), encoder_out)
        log_probs = torch.log_softmax(logits[0, -1], dim=-1)
        for token, log_prob in enumerate(log_probs.tolist()):
            if token != PAD and (tokens or token != EOS):
                candidates.append((score + log_prob, [*tokens, token]))
    return sorted(candidates, key=lambda c: -c[0])


def slow_gnmt_search(
    model: VaswaniTransformerModel,
    source: Tensor,
    beam: int,
    alpha: float,
    limit: int,
    wanted: int,
    early: bool = True,
) -> list[Hypothesis]:
    """Translate one sentence by tensor2tensor's rule.

    If not ``early``, always search up to ``limit`` tokens.
    """

    def penalty(length: int) -> float:
        return ((5 + length) / 6) ** alpha

    encoder_out = model.encoder(source[None])
    alive: list[Hypothesis] = [(0.0, [])]
    finished: list[Hypothesis] = []
    for length in range(1, limit + 1):
        best = continuations(model, encoder_out, alive)[: 2 * beam]
        ends = [(score / penalty(length), t) for score, t in best if t[-1] == EOS]
        finished = sorted(finished + ends, key=lambda h: -h[0])[:beam]
        alive = [c for c in best if c[1][-1] != EOS][:beam]
        could_come = alive[0][0] / penalty(limit)
        if early and len(finished) >= wanted and finished[wanted - 1][0] > could_come:
            break
    return finished or [(score / penalty(limit), tokens) for score, tokens in alive]


def assert_equal(results: list[Any], expected: list[Hypothesis]) -> None:
    """Assert equal tokens, and scores within the rounding of float32, in which fairseq adds."""
    assert [h["tokens"].tolist() for h in results] == [tokens for _, tokens in expected]
    scores = [h["score"].item() for h in results]
    assert scores == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.paper("6.1")
@pytest.mark.parametrize("seed", range(3))
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
        model = lively_model(seed)
        source, _, _ = batch(seed)
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
