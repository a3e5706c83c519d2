from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.plan import PlanConfig, WindowFirst
from dflash_lightning.plan.packing import Measured
from tests.plan.cases import BLOCKS, datasets, make_plan, make_samples


def measured(samples):
    """As planned without padding, in one bucket."""
    return Measured(
        edges=(int(samples.lengths.max()),),
        padded=samples.lengths,
        bucket=np.zeros(len(samples), np.int64),
        supervised=samples.supervised,
        static=False,
        **BLOCKS,
    )


def num_batches(samples, ids, config):
    """A sorted cut, one sample at a time."""
    count, batch = 0, []
    for i in sorted(ids, key=lambda i: -samples.lengths[i]):
        longest = int(samples.lengths[[*batch, i]].max())
        blocks = np.minimum(samples.supervised[[*batch, i]], BLOCKS["num_anchors"]) * BLOCKS["block_size"]
        full = (
            len(blocks) > config.max_rows
            or len(blocks) * longest > config.max_tokens
            or (config.max_block_tokens and blocks.sum() > config.max_block_tokens)
        )
        count, batch = (count + 1, [i]) if full or not batch else (count, [*batch, i])
    return count


@settings(deadline=None, max_examples=40)
@given(
    datasets(max_size=50),
    st.fixed_dictionaries(
        {
            "max_tokens": st.integers(64, 400),
            "max_rows": st.sampled_from([1, 2, 7, 64]),
            "max_block_tokens": st.sampled_from([0, 1, 30, 100]),
        }
    ),
    st.integers(1, 6),
)
def test_a_window_takes_as_many_samples_as_make_its_batches(samples, limits, window_batches):
    """Each window holds the next samples of the hashed order; one more would be a batch too many."""
    config = PlanConfig(packing=WindowFirst(window_batches=window_batches), **limits)
    plan = make_plan(samples, config)
    hashed = measured(samples).everyone(seed=0, epoch=0).tolist()
    borders = plan.offsets[[*range(0, plan.num_batches, window_batches), plan.num_batches]].tolist()
    for start, stop in pairwise(borders):
        assert sorted(plan.sample_ids[start:stop].tolist()) == sorted(hashed[start:stop])
        assert num_batches(samples, hashed[start:stop], config) <= window_batches
        if stop < len(hashed):
            assert num_batches(samples, hashed[start : stop + 1], config) > window_batches


def test_every_window_has_the_mix_of_the_whole():
    """Of the samples of a window half are long, as chance gives; sorted batches pad next to nothing."""
    samples = make_samples([8, 64] * 8_000)
    config = PlanConfig(
        edges=(8, 64), packing=WindowFirst(window_batches=8), max_tokens=640, max_block_tokens=0
    )
    plan = make_plan(samples, config)
    shares = []
    for at in range(0, plan.num_batches - 8, 8):
        ids = plan.sample_ids[plan.offsets[at] : plan.offsets[at + 8]]
        shares.append((samples.lengths[ids] == 64).mean())
    assert np.mean(shares) == pytest.approx(0.5, abs=0.01)
    assert max(shares) - min(shares) < 0.4
    real = samples.lengths.sum()
    assert real / (np.diff(plan.offsets) * plan.padded_length).sum() > 0.85


def test_batches_of_a_window_come_in_another_order_each_time():
    """A window sorted from long to short would put the longest batch on the same micro-step each time."""
    samples = make_samples(np.arange(4_000) % 64 + 1)
    plan = make_plan(samples, PlanConfig(packing=WindowFirst(window_batches=4), max_tokens=200))
    windows = plan.padded_length[: plan.num_batches // 4 * 4].reshape(-1, 4)
    longest_at = np.bincount(windows.argmax(axis=1), minlength=4)
    assert longest_at.min() > 0.15 * len(windows)


def test_a_window_that_a_sample_would_widen_by_two_batches_is_still_full():
    """The second sample is short of room beside either of the others, and lies between them by length."""
    samples = make_samples([10, 9, 8], [1, 6, 1])  # block positions 4, 24, 4
    config = PlanConfig(packing=WindowFirst(window_batches=2), max_block_tokens=24)
    first = [s for s in range(50) if measured(samples).everyone(seed=s, epoch=0).tolist() == [0, 2, 1]]
    assert first
    assert num_batches(samples, [0, 2], config) == 1
    assert num_batches(samples, [0, 2, 1], config) == 3
    for seed in first:
        plan = make_plan(samples, config, seed=seed)
        assert plan.offsets.tolist() == [0, 1, 2, 3]
        assert set(plan.sample_ids[:2].tolist()) == {0, 2}


def test_a_window_needs_a_batch():
    with pytest.raises(ValueError, match="window_batches must be at least 1, got 0"):
        WindowFirst(window_batches=0)
