"""fairseq's own weights under our names are the weights they were copied from."""

import torch

from tests.models import small_model
from tests.parity.test_fairseq_transformer import reference
from vaswani.convert import from_fairseq


def test_there_and_back():
    """Every parameter of ours, and none else; the logits' equality is tested in its own file."""
    ours = small_model()
    converted = from_fairseq(reference(ours, keep_positions=True).state_dict())
    assert set(converted) == set(ours.state_dict())
    for name, parameter in ours.state_dict().items():
        assert torch.equal(converted[name], parameter), name
    small_model(seed=1).load_state_dict(converted)
