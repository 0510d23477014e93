"""Section 5.1: the tokens of an update, counted; what to change when they are not the paper's."""

from types import SimpleNamespace

import numpy as np
import pytest

from transformer_plugin.batch_size import Batching, batch_warning, measure_batches, rebatch


def test_tokens_are_counted_over_the_batches_that_were_made():
    """Lengths by hand: batches [0, 2] and [3] leave sentence 1 out."""
    dataset = SimpleNamespace(src_sizes=np.array([3, 50, 5, 7]), tgt_sizes=np.array([4, 60, 6, 1]))
    iterator = SimpleNamespace(frozen_batches=(np.array([0, 2]), [3]))
    assert measure_batches(iterator, dataset) == Batching(2, 3, 3 + 5 + 7, 4 + 6 + 1)


@pytest.mark.parametrize(
    ("batches", "accumulated", "gpus", "updates"),
    [
        (12, 4, 1, 3),
        (12, 2, 3, 2),
        (13, 2, 3, 3),  # 5 rounds of three GPUs, two rounds an update
        (3, 8, 8, 1),  # the whole epoch is less than an update
    ],
)
def test_an_update_takes_the_batches_of_all_gpus(batches, accumulated, gpus, updates):
    batching = Batching(batches, 100, 2400, 3600)
    assert batching.updates(accumulated, gpus) == updates
    assert batching.tokens_per_update(accumulated, gpus) == (2400 / updates, 3600 / updates)


@pytest.mark.parametrize(
    ("bounds", "accumulated", "ratio", "new", "freq"),
    [
        ({"max_tokens": 3584}, 1, 8.0, {"max_tokens": 3584}, 8),  # one GPU instead of eight
        ({"max_tokens": 4096}, 1, 0.5, {"max_tokens": 2048}, 1),
        ({"max_tokens": 4096}, 1, 1.2, {"max_tokens": 2456}, 2),  # 4096 × 1.2 / 2 = 2457.6
        ({"max_tokens": 800, "batch_size": 30}, 1, 3.0, {"max_tokens": 800, "batch_size": 30}, 3),
        ({"max_tokens": 8}, 1, 0.01, {"max_tokens": 8}, 1),  # no smaller batch exists
    ],
)
def test_rebatching_gives_the_wanted_batch(bounds, accumulated, ratio, new, freq):
    assert rebatch(bounds, accumulated, ratio) == (new, freq)


@pytest.mark.parametrize("have", [22_500, 27_500])
def test_a_batch_within_a_tenth_of_the_wish_is_not_warned_of(have):
    assert batch_warning(25_000, have, {"max_tokens": 3584}, 1) is None
    assert batch_warning(0, have, {"max_tokens": 3584}, 1) is None, "nothing was wished for"


@pytest.mark.parametrize(
    ("have", "change"),
    [
        (22_499, "dataset.max_tokens=1992 optimization.update_freq=[2]"),  # 3584 × 1.1112 / 2
        (50_000, "dataset.max_tokens=1792 optimization.update_freq=[1]"),
    ],
)
def test_another_batch_is_warned_of_with_the_remedy(have, change):
    assert change in batch_warning(25_000, have, {"max_tokens": 3584}, 1)
