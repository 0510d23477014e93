"""With the plugin loaded, what fairseq's own models and commands could do they still can."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.nan_detector import NanDetector
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator

from tests import stock
from tests.models import batch, dictionary, small_model
from tests.parity.test_fairseq_transformer import reference

# --- torch.jit.script ---------------------------------------------------------------------------


def their_transformer() -> Any:
    return reference(small_model(), keep_positions=True).eval()


def test_their_generator_becomes_torchscript(tmp_path: Path) -> None:
    """Model, ensemble and search in one program, which decodes what they decode."""
    words = dictionary()
    source, _, _ = batch()
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(1).sum(1)}}
    generator = SequenceGenerator(
        EnsembleModel([their_transformer()]), words, beam_size=2, max_len_b=8
    )
    torch.jit.script(generator).save(str(tmp_path / "generator.pt"))
    expected = generator(sample)
    found = torch.jit.load(str(tmp_path / "generator.pt"))(sample)
    for theirs, ours in zip(sum(expected, []), sum(found, []), strict=True):
        assert ours["tokens"].tolist() == theirs["tokens"].tolist()
        torch.testing.assert_close(ours["score"], theirs["score"])


# --- divergence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["ours", "theirs"])
def test_the_detector_of_nan_names_where_it_began(model: str) -> None:
    """In the forward and in the backward pass of a padded batch; nowhere, in a healthy model."""
    built = small_model() if model == "ours" else their_transformer()
    built.train()
    source, previous, _ = batch()

    def reports() -> list[str]:
        with stock.logged() as lines, NanDetector(built):
            built(source, source.ne(1).sum(1), previous)[0].sum().backward()
        return [line for line in lines if "detected in output" in line]

    assert reports() == []
    layer = built.decoder.layers[1]
    with torch.no_grad():
        (layer.feed_forward.fc1 if model == "ours" else layer.fc1).weight.fill_(float("inf"))
    for way in ("forward", "backward"):
        first = next(line for line in reports() if way in line)
        assert "output of decoder.layers.1" in first
