"""``--init fairseq``: parameter by parameter as fairseq's own, freshly built model."""

import argparse
import math
from pathlib import Path

import pytest
import torch
from fairseq.models.transformer import TransformerModel, base_architecture
from omegaconf import OmegaConf

from tests.models import dictionary, small_model, task
from vaswani.model_folder.convert import to_fairseq

DIM, FFN, WORDS = 64, 256, 2000
SIZES = {"layers": 2, "embed_dim": DIM, "ffn_embed_dim": FFN, "attention_heads": 4}


def sized(**options):
    found = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in SIZES.items()}
    return {**found, **options}


@pytest.fixture(scope="module")
def theirs():
    """Fresh parameters of fairseq's model, one matrix for source, target and output."""
    torch.manual_seed(3)
    args = argparse.Namespace(**sized(share_all_embeddings=True))
    base_architecture(args)
    return TransformerModel.build_model(args, task(dictionary(WORDS))).state_dict()


@pytest.fixture(scope="module")
def ours():
    """Ours under fairseq's names."""
    model = small_model(4, for_task=task(dictionary(WORDS)), **sized(init="fairseq"))
    return to_fairseq(model.state_dict())


def test_every_parameter_has_fairseqs_distribution(ours, theirs):
    """Equal means and deviations, within their sampling error; equal limits where it has any."""
    for name, tensor in ours.items():
        their, count = theirs[name], tensor.numel()
        assert tensor.shape == their.shape
        deviation = their.std().item() if count > 1 else 0.0
        error = 5 * deviation * math.sqrt(2 / count)
        assert tensor.mean().item() == pytest.approx(their.mean().item(), abs=error + 1e-7), name
        assert tensor.std().item() == pytest.approx(deviation, abs=error + 1e-7), name
        if "embed_tokens" in name or "output_projection" in name:
            assert not tensor[1].any() and not their[1].any(), "the row of the padding"
        else:  # uniform, or constant: the largest of n numbers is near the limit
            near = 10 / count * their.abs().max().item()
            largest = tensor.abs().max().item()
            assert largest == pytest.approx(their.abs().max().item(), abs=near + 1e-7), name
    assert {name for name in theirs if is_parameter(name)} == set(ours)


def is_parameter(name: str) -> bool:
    """Not a constant, and not one of the copies that official fairseq keeps for its fast path."""
    copies = ("in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias", "fc1_", "fc2_")
    return not any(part in name for part in ("version", "_float_tensor", *copies))


@pytest.mark.parametrize("path", sorted(Path("configs").glob("wmt14_*.yaml")), ids=str)
def test_the_papers_experiments_say_where_they_start(path):
    """Whatever the default is; the authors' code's own model starts as theirs."""
    assert OmegaConf.load(path).model.init == ("t2t" if path.stem.endswith("_t2t") else "fairseq")
