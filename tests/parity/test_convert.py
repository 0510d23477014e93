"""fairseq's own weights under our names are the weights they were copied from, and back."""

import pytest
import torch

from tests.models import small_model
from tests.parity.test_fairseq_transformer import reference
from vaswani.model_folder.convert import from_fairseq, to_fairseq


def test_there_and_back():
    """Every parameter of ours, and none else; the logits' equality is tested in its own file."""
    ours = small_model()
    theirs = reference(ours, keep_positions=True).state_dict()
    converted = from_fairseq(theirs)
    assert set(converted) == set(ours.state_dict())
    for name, parameter in ours.state_dict().items():
        assert torch.equal(converted[name], parameter), name
    small_model(seed=1).load_state_dict(converted)
    back = to_fairseq(ours.state_dict())
    assert len(back) == len(ours.state_dict()) + 2 * 2 * 2 + 2 * 2 * (2 + 1)  # fused: 3 and 2 parts
    for name, parameter in back.items():
        assert torch.equal(theirs[name], parameter), name


def test_widths_that_fairseq_lacks():
    """Row B of Table 3 cannot be had there."""
    with pytest.raises(ValueError, match="one width"):
        to_fairseq(small_model(head_key_dim=2).state_dict())
