"""``--attention-impl readable`` and the forms of ``fast/`` compute the same, in the whole model."""

from typing import Any, Dict, List

import pytest
import torch

from tests.models import dictionary, small_model
from tests.parity.test_criterion_parity import OURS, criterion, loss_and_gradients, sample
from tests.parity.test_generator import Results, lively_model, ragged
from tests.rounding import rounding_of_small_model
from transformer_plugin import attention
from transformer_plugin import criterion as criterion_file
from transformer_plugin.generator import VaswaniSequenceGenerator
from vaswani_transformer.fast import dropout, linear
from vaswani_transformer.fast.processor import AMD_AVX512

FAST_FORMS = [
    (attention, "fast_attention"),
    (linear, "linear"),
    (linear, "onednn"),
    (dropout, "keep_mask"),
    (criterion_file, "projected_loss"),
]


@pytest.fixture
def used(monkeypatch: Any) -> List[str]:
    """The names of the fast forms that were called, each of which is taken where it can be."""
    called: List[str] = []

    def watched(name: str, original: Any) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return original(*args, **kwargs)

        return function

    for module, name in FAST_FORMS:
        monkeypatch.setattr(module, name, watched(name, getattr(module, name)))
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # whatever the processor, and any size
        monkeypatch.setattr(linear, "choices_for", lambda device: AMD_AVX512)
        monkeypatch.setattr(linear, "MIN_MULTIPLICATIONS", 1)
    return called


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_and_gradients(dtype: torch.dtype, used: List[str]) -> None:
    """Of every parameter, without dropout, whose random numbers differ."""
    found = {}
    for choice in ("readable", "fast", "auto"):
        model = small_model(attention_impl=choice).to(dtype)
        loss, _, gradients, log = loss_and_gradients(OURS, model, sentence_avg=False)
        assert loss.dtype == dtype
        assert bool(used) == (choice != "readable")
        found[choice] = {"loss": loss, "nll": log["nll_loss"], **gradients}
    close = {"rtol": 0, "atol": sample()["ntokens"] * rounding_of_small_model(dtype)}  # summed
    for choice in ("fast", "auto"):
        assert len(found[choice]) > 20
        torch.testing.assert_close(found[choice], found["readable"], **close)


@pytest.mark.parametrize("penalty", ["fairseq", "gnmt"])
def test_hypotheses(penalty: str, used: List[str]) -> None:
    """All of the beam, by their scores: a tie's order is the last digit's."""
    found: Dict[str, Results] = {}
    for choice in ("readable", "auto"):
        model = lively_model(7, attention_impl=choice)
        generator = VaswaniSequenceGenerator(
            [model], dictionary(), length_penalty=penalty, nbest=4, beam_size=4, max_len_b=12
        )
        found[choice] = generator.generate([model], ragged(7))
        assert bool(used) == (choice != "readable")
    for readable, fast in zip(*(sum(found[c], []) for c in found), strict=True):
        torch.testing.assert_close(readable["score"], fast["score"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("choice", ["readable", "auto"])
def test_one_switch_is_the_whole_model(choice: str, used: List[str]) -> None:
    """Training with every dropout, validation, and decoding with prepared weights."""
    dropouts = dict.fromkeys(["dropout", "attention_dropout", "activation_dropout"], 0.1)
    model = small_model(attention_impl=choice, **dropouts)
    loss_and_gradients(OURS, model, sentence_avg=False)
    with torch.no_grad():
        criterion(OURS)(model.eval(), sample())
        for module in model.modules():
            if isinstance(module, linear.Linear):
                module.pack()
        generator = VaswaniSequenceGenerator([model], dictionary(), beam_size=2, max_len_b=3)
        generator.generate([model], ragged(1))
    without_onednn = not hasattr(torch.ops.mkldnn, "_linear_pointwise")
    expected = {name for _, name in FAST_FORMS} - ({"onednn"} if without_onednn else set())
    assert set(used) == (set() if choice == "readable" else expected)


def test_probabilities_of_float64_stay_float64() -> None:
    """Which fairseq's would round to float32."""
    logits = torch.randn(2, 3, 24, dtype=torch.float64)
    model = small_model()
    for log_probs, function in ((True, torch.log_softmax), (False, torch.softmax)):
        found = model.get_normalized_probs((logits, None), log_probs)
        torch.testing.assert_close(found, function(logits, -1), rtol=0, atol=1e-15)
    half = model.get_normalized_probs((logits.bfloat16(), None), True)
    assert half.dtype == torch.float32
