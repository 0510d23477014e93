"""The task's beam search has the results of fairseq's, whatever the options.

fairseq's generator is the reference. Sums in another order flip what is nearly equal: the models
compute in float64, and two hypotheses are the same if their tokens are, or if their scores differ
by less than 1e-4.
"""

import logging
from typing import Any

import pytest
import torch
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from tests.models import (
    dictionary,
    dictionary_from_padding,
    lively_model,
    small_model,
    task,
)
from tests.parity.test_fairseq_transformer import reference
from transformer_plugin.config import ConfigError
from transformer_plugin.generator import VaswaniSequenceGenerator
from transformer_plugin.model import VaswaniTransformerModel
from vaswani_transformer.search.loop import BLOCK

PAD, EOS = 1, 2
Results = list[list[dict[str, Tensor]]]


def ragged(seed: int, sentences: int = 9, vocabulary: int = 24, longest: int = 12) -> dict:
    """Return sentences of 1 to ``longest`` tokens, padded on the left, as fairseq collates them."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (sentences,), generator=random)
    lengths[0] = longest
    source = torch.randint(4, vocabulary, (sentences, longest), generator=random)
    source[:, -1] = EOS
    source[torch.arange(longest) < longest - lengths[:, None]] = PAD
    return {"net_input": {"src_tokens": source, "src_lengths": lengths}}


def both(
    model: VaswaniTransformerModel, sample: dict, vocabulary: int = 24, **options: Any
) -> list[Results]:
    """Search a batch with fairseq's generator and with ours, in float64."""
    model = model.double()
    classes = (SequenceGenerator, VaswaniSequenceGenerator)
    words = dictionary(vocabulary)
    return [cls([model], words, **options).generate([model], sample) for cls in classes]


@pytest.mark.parametrize("unkpen", [0.0, 0.7])
def test_ids_are_those_of_the_dictionary(unkpen: float) -> None:
    """Where padding is type 0, the end of a sentence 1 and unknown words 2."""
    words = dictionary_from_padding()
    model = small_model(3, task(words), untie_embeddings=True).double().eval()
    with torch.no_grad():
        model.decoder.output_projection.weight[words.eos()].mul_(4)
        model.decoder.embedding.tokens.weight.mul_(2)
    sample = ragged(3)
    sample["net_input"]["src_tokens"] -= 1
    results = [
        cls([model], words, beam_size=4, max_len_b=12, unk_penalty=unkpen).generate([model], sample)
        for cls in (SequenceGenerator, VaswaniSequenceGenerator)
    ]
    assert_same(*results)


def assert_same(expected: Results, results: Results) -> None:
    """Assert that all hypotheses are equal, in order, with every value that fairseq returns."""
    assert [len(hypotheses) for hypotheses in results] == [len(h) for h in expected]
    for ours, theirs in zip(sum(results, []), sum(expected, []), strict=True):
        torch.testing.assert_close(
            ours["score"], theirs["score"], rtol=0, atol=1e-4, check_dtype=False
        )
        assert sorted(ours) == sorted(theirs)
        if ours["tokens"].tolist() == theirs["tokens"].tolist():
            torch.testing.assert_close(
                *(one["positional_scores"] for one in (ours, theirs)),
                **{"rtol": 0, "atol": 1e-4, "check_dtype": False},
            )


OPTIONS = [
    {"len_penalty": 1.0, "max_len_b": 12},
    {"len_penalty": 0.6, "max_len_a": 1, "max_len_b": 3},
    {"len_penalty": 0.0, "max_len_a": 0.5, "max_len_b": 2},
    {"unk_penalty": 0.7, "temperature": 1.5, "max_len_b": 8},
    {"unk_penalty": -2.0, "min_len": 4, "max_len_b": 9},
    {"normalize_scores": False, "max_len_b": 1},
    {"max_len": 5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(f"{k}={o[k]}" for k in o))
@pytest.mark.parametrize("beam", [1, 4, 5])
def test_same_as_fairseqs(beam: int, options: dict[str, Any]) -> None:
    """All hypotheses of the beam, so ``--nbest`` too."""
    identical = total = 0
    for seed in range(3):
        model = lively_model(seed)
        sample = ragged(seed)
        expected, results = both(model, sample, beam_size=beam, **options)
        assert_same(expected, results)
        for ours, theirs in zip(sum(results, []), sum(expected, []), strict=True):
            identical += ours["tokens"].tolist() == theirs["tokens"].tolist()
            total += 1
    assert identical >= 0.98 * total


def test_same_with_a_large_vocabulary() -> None:
    """Where candidates are chosen by blocks, some types lie outside of whole blocks."""
    vocabulary = 16 * BLOCK + 7
    model = lively_model(1, vocabulary)
    expected, results = both(model, ragged(1, 5, vocabulary), vocabulary, beam_size=4, max_len_b=15)
    assert_same(expected, results)


@pytest.mark.parametrize("penalty", ["fairseq", "gnmt"])
@pytest.mark.parametrize(
    "options, call, models",
    [
        ({"search_strategy": Sampling(dictionary())}, {}, [lively_model]),
        ({"beam_size": 12}, {}, [lively_model]),
        ({}, {"prefix_tokens": torch.full((9, 1), 5)}, [lively_model]),
        ({}, {}, [lively_model, lambda seed: lively_model(2)]),
        ({}, {}, [lambda seed: reference(small_model(), keep_positions=True).eval()]),
    ],
    ids=["sampling", "wide beam", "prefix", "ensemble", "fairseq's model"],
)
def test_what_our_search_cannot_do_fairseqs_does(
    options: dict[str, Any], call: dict[str, Any], models: list[Any], penalty: str, caplog: Any
) -> None:
    """It is said once, as a warning where it scores by another length penalty than was asked."""
    models, sample = [build(1) for build in models], ragged(1)
    options = {"beam_size": 2, "max_len_b": 13, **options}
    torch.manual_seed(1)
    expected = SequenceGenerator(models, dictionary(), **options).generate(models, sample, **call)
    caplog.set_level(logging.INFO)
    generator = VaswaniSequenceGenerator(models, dictionary(), length_penalty=penalty, **options)
    torch.manual_seed(1)
    assert_same(expected, generator.generate(models, sample, **call))
    generator.generate(models, sample, **call)
    (record,) = caplog.records
    assert "fairseq's own search" in record.getMessage()
    assert record.levelno == (logging.WARNING if penalty == "gnmt" else logging.INFO)


def repeats(tokens: list[int], size: int) -> bool:
    """Return whether a window of ``size`` tokens occurs twice."""
    windows = [tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1)]
    return len(set(windows)) < len(windows)


def greedy_without_repeats(model: Any, source: Tensor, size: int, longest: int) -> list[int]:
    """Take the most probable token that repeats no window, from the whole prefix each time."""
    end, pad = dictionary().eos(), dictionary().pad()
    tokens: list[int] = []
    while len(tokens) < longest:
        previous = torch.tensor([[end, *tokens]])
        logits = model(source, source.ne(pad).sum(1), previous)[0][0, -1].clone()
        logits[pad] = float("-inf")
        if not tokens:  # as fairseq's min_len 1: no translation is empty
            logits[end] = float("-inf")
        for token in range(len(logits)):
            if token != end and repeats([*tokens, token], size):
                logits[token] = float("-inf")
        tokens.append(int(logits.argmax()))
        if tokens[-1] == end:
            return tokens
    return [*tokens, end]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_is_repeated(size: int) -> None:
    """Greedily as by hand; with a beam no hypothesis repeats, where without the option most do."""
    model = lively_model(2).double()
    sample = ragged(2)
    options = {"max_len_b": 14, "no_repeat_ngram_size": size}
    greedy = VaswaniSequenceGenerator([model], dictionary(), beam_size=1, **options)
    source = sample["net_input"]["src_tokens"]
    with torch.no_grad():
        expected = [greedy_without_repeats(model, row[None], size, 14) for row in source]
    results = greedy.generate([model], sample)
    assert [best[0]["tokens"].tolist() for best in results] == expected
    wide = VaswaniSequenceGenerator([model], dictionary(), beam_size=4, **options)
    hypotheses = sum(wide.generate([model], sample), [])
    assert not any(repeats(one["tokens"].tolist()[:-1], size) for one in hypotheses)
    free = VaswaniSequenceGenerator([model], dictionary(), beam_size=4, max_len_b=14)
    assert any(
        repeats(one["tokens"].tolist()[:-1], size)
        for one in sum(free.generate([model], sample), [])
    )


def test_repeated_ngrams_are_not_left_to_fairseqs_search() -> None:
    """Where it does nothing on a CPU."""
    models = [lively_model(1), lively_model(2)]
    with pytest.raises(ConfigError, match="--no-repeat-ngram-size cannot be used with an ensemble"):
        VaswaniSequenceGenerator(models, dictionary(), no_repeat_ngram_size=2)
