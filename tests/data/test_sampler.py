"""What Lightning and the pipeline ask of a sampler. Order and resume in runs: tests/training."""

import numpy as np
import pytest

from dflash_lightning.data.sampler import InterleavedBatchSampler
from dflash_lightning.plan.windows import RankBatch, Window


def windows(*sizes, ranks=2):
    numbers = iter(range(100))
    return [
        Window(
            0,
            1,
            tuple(
                tuple(RankBatch(np.array([next(numbers)]), 0, 8) for _ in range(ranks)) for _ in range(size)
            ),
        )
        for size in sizes
    ]


@pytest.mark.parametrize("sizes", [(), (3,), (2, 2, 2), (4, 4, 1)])
def test_window_sizes_add_up_to_the_batches_of_one_rank(sizes):
    sampler = InterleavedBatchSampler(windows(*sizes), rank=1, epoch=0)
    assert list(sampler.window_sizes) == list(sizes)
    assert len(sampler) == len(list(sampler)) == sum(sizes)


def test_iterating_twice_gives_the_same_batches():
    sampler = InterleavedBatchSampler(windows(2, 1), rank=0, epoch=0)
    assert [b.sample_ids[0] for b in sampler] == [b.sample_ids[0] for b in sampler] == [0, 2, 4]


def test_another_epoch_is_refused():
    with pytest.raises(RuntimeError, match="holds the plan of epoch 3, but Lightning runs epoch 4"):
        InterleavedBatchSampler(windows(1), rank=0, epoch=3).set_epoch(4)
