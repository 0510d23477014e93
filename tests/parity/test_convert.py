"""Our weights under fairseq's names, and back."""

import pytest
import torch

from tests.models import small_model
from vaswani.model_folder.convert import from_fairseq, to_fairseq


def test_there_and_back():
    """Every parameter; that these are fairseq's is tested by the logits, in the file beside."""
    ours = small_model().state_dict()
    torch.testing.assert_close(from_fairseq(to_fairseq(ours)), dict(ours), rtol=0, atol=0)


def test_widths_that_fairseq_lacks():
    """Row B of Table 3 cannot be had there."""
    with pytest.raises(ValueError, match="one width"):
        to_fairseq(small_model(head_key_dim=2).state_dict())
