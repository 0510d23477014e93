"""fairseq's generator with our model equals an independent, slow beam search under its rules.

The rules (fairseq's, not the paper's): at every step the 2k best continuations of k hypotheses
are looked at; an end of sentence counts if it is among the best k; the k best others go on; a
hypothesis scores log P / length^λ with the end of sentence counted; the search stops at k finished
hypotheses, or at the length limit, where the end of sentence is forced. No pad, no empty output.
"""

from typing import List, Tuple

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from tests.models import batch, dictionary, small_model
from transformer_plugin.model import VaswaniTransformerModel

PAD, EOS = 1, 2
Hypothesis = Tuple[float, List[int]]


def slow_beam_search(
    model: VaswaniTransformerModel, source: Tensor, beam: int, lenpen: float, max_len: int
) -> List[Hypothesis]:
    """One sentence, every prefix decoded anew without caches.

    Args:
        source: [S], without padding

    Returns:
        Finished hypotheses (score, tokens with the end of sentence), best first.
    """
    encoder_out = model.encoder(source[None])
    alive: List[Hypothesis] = [(0.0, [])]
    finished: List[Hypothesis] = []
    for step in range(max_len + 1):
        candidates: List[Hypothesis] = []
        for score, tokens in alive:
            logits, _ = model.decoder(torch.tensor([[EOS, *tokens]]), encoder_out)
            log_probs = torch.log_softmax(logits[0, -1].float(), dim=-1)
            for token, log_prob in enumerate(log_probs.tolist()):
                forbidden = token == PAD or (step == 0 and token == EOS)
                if not forbidden and (step < max_len or token == EOS):
                    candidates.append((score + log_prob, [*tokens, token]))
        candidates.sort(key=lambda c: -c[0])
        for score, tokens in candidates[:beam]:
            if tokens[-1] == EOS and len(finished) < beam:
                finished.append((score / len(tokens) ** lenpen, tokens))
        if len(finished) == beam:
            break
        alive = [c for c in candidates[: 2 * beam] if c[1][-1] != EOS][:beam]
    return sorted(finished, key=lambda h: -h[0])


def lively_model(seed: int) -> VaswaniTransformerModel:
    """Random weights under which ends of sentence come at different steps."""
    model = small_model(seed=seed, untie_embeddings=True).eval()
    with torch.no_grad():
        model.decoder.output_projection.weight[EOS].mul_(4)
        model.decoder.embedding.tokens.weight.mul_(2)
    return model


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("beam,lenpen", [(1, 1.0), (4, 0.6)])
def test_generator_equals_slow_search(seed: int, beam: int, lenpen: float) -> None:
    """A batch padded on the left, caches reordered at every step, against one by one without."""
    model = lively_model(seed)
    source, _, _ = batch(seed)
    generator = SequenceGenerator(
        [model], dictionary(), beam_size=beam, len_penalty=lenpen, max_len_a=1, max_len_b=4
    )
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}}
    with torch.no_grad():
        results = generator.generate([model], sample)
        for sentence, hypotheses in zip(source, results, strict=True):
            words = sentence[sentence.ne(PAD)]
            max_len = source.size(1) + 4  # fairseq counts the padded source
            expected = slow_beam_search(model, words, beam, lenpen, max_len)
            assert [h["tokens"].tolist() for h in hypotheses] == [tokens for _, tokens in expected]
            scores = [h["score"].item() for h in hypotheses]
            assert scores == pytest.approx([score for score, _ in expected], abs=1e-4)


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
