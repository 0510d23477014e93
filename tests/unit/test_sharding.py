"""--ddp-backend fully_sharded is refused in a sentence where its package is missing."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from transformer_plugin.checks import check_sharding
from transformer_plugin.config import ConfigError


@pytest.mark.skipif(find_spec("fairscale") is not None, reason="fairscale is installed")
def test_sharding_without_fairscale_is_refused():
    with pytest.raises(ConfigError, match="needs the package fairscale"):
        check_sharding(SimpleNamespace(ddp_backend="fully_sharded"))


@pytest.mark.parametrize("section", [None, SimpleNamespace(ddp_backend="pytorch_ddp")])
def test_other_backends_are_left_alone(section):
    check_sharding(section)


def test_a_training_says_so_before_it_begins(workplace, cli):
    ended = cli("train", "small", "distributed_training.ddp_backend=fully_sharded")
    assert ended.code == 1
    assert "needs the package fairscale" in ended.err
