"""ddp_backend=fully_sharded is refused in a sentence where its package is missing."""

from importlib.util import find_spec

import pytest


@pytest.mark.skipif(find_spec("fairscale") is not None, reason="fairscale is installed")
def test_a_training_says_so_before_it_begins(workplace, cli):
    ended = cli("train", "small", "distributed_training.ddp_backend=fully_sharded")
    assert ended.code == 1
    assert "needs the package 'fairscale'" in ended.err
    assert not (workplace / "runs").exists()
