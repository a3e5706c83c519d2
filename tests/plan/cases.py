"""Small random datasets and settings for the laws of the plan, and the checks by hand that they share."""

from collections import Counter

import numpy as np
from hypothesis import strategies as st

from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    MixedBuckets,
    PlanConfig,
    PoolSorted,
    RandomOrder,
    Samples,
    Shuffle,
    WindowFirst,
    plan_epoch,
)
from dflash_lightning.plan.packing import BucketPacking

LONGEST = 64
WORLDS = st.sampled_from([1, 2, 3, 5, 8])
ACCUMULATE = st.sampled_from([1, 2, 4])
BLOCKS = {"num_anchors": 6, "block_size": 4}


def make_samples(lengths, supervised=None):
    lengths = np.array(lengths, np.int64)
    return Samples(lengths, lengths.copy() if supervised is None else np.array(supervised, np.int64))


def make_plan(samples, config=None, *, seed=0, epoch=0, **blocks):
    return plan_epoch(samples, config or PlanConfig(), **(BLOCKS | blocks), seed=seed, epoch=epoch)


@st.composite
def datasets(draw, min_size=1, max_size=80):
    lengths = draw(
        st.one_of(
            st.lists(st.integers(1, LONGEST), min_size=min_size, max_size=max_size),
            # All equal, and all as long as can be.
            st.integers(min_size, max_size).map(lambda n: [17] * n),
            st.integers(min_size, max_size).map(lambda n: [LONGEST] * n),
        )
    )
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return make_samples(lengths, [int(share * length) for length in lengths])


PACKINGS = [
    PoolSorted(pool_batches=1),
    PoolSorted(pool_batches=4),
    RandomOrder(),
    MixedBuckets(),
    WindowFirst(window_batches=1),
    WindowFirst(window_batches=4),
]


def knobs(**fixed):
    """Keywords of a PlanConfig; the test builds it, since a strategy may not (type checks draw at random)."""
    choices = {
        "edges": st.sampled_from([(LONGEST,), (8, 20, LONGEST), "quantile", "optimal"]),
        "num_buckets": st.integers(1, 6),
        "super_buckets": st.sampled_from([None, 1, 2]),
        "max_tokens": st.integers(2 * LONGEST, 400),
        "quadratic_budget": st.sampled_from([None, float(LONGEST)]),  # the longest costs double
        "max_rows": st.sampled_from([1, 2, 7, 64]),
        "max_block_tokens": st.sampled_from([0, 1, 30, 100]),
        "pad_multiple": st.sampled_from([1, 4, 16]),
        "packing": st.sampled_from(PACKINGS),
        "static_shapes": st.booleans(),
        "order": st.sampled_from([Credit(), Shuffle(), DiversityFirst()]),
        "quadratic_length": st.sampled_from([None, 32.0]),
    }
    return st.fixed_dictionaries(choices | {name: st.just(value) for name, value in fixed.items()}).map(
        agreed
    )


def agreed(chosen):
    """The settings without those that the packing rules out."""
    ruled_out = {"order": Credit()} if chosen["packing"].decides_order else {}
    if not isinstance(chosen["packing"], BucketPacking):
        ruled_out["static_shapes"] = False
    return chosen | ruled_out


def require_legal_batch(ids, bucket, padded_length, *, samples, config, edges):
    """One batch against the spec's second invariant, sample by sample."""
    rounded = [-(-int(samples.lengths[i]) // config.pad_multiple) * config.pad_multiple for i in ids]
    anchors = [min(BLOCKS["num_anchors"], int(samples.supervised[i])) for i in ids]
    buckets = {next(b for b, edge in enumerate(edges) if length <= edge) for length in rounded}
    assert max(buckets) == bucket
    if isinstance(config.packing, BucketPacking):
        assert buckets == {bucket}
    if config.static_shapes:
        rounded, anchors = [edges[bucket]], [BLOCKS["num_anchors"]] * len(ids)
    cost = padded_length + padded_length**2 / (config.quadratic_budget or float("inf"))
    assert padded_length == max(rounded)
    assert 1 <= len(ids) <= config.max_rows
    assert len(ids) * cost <= config.max_tokens
    blocks = sum(anchors) * BLOCKS["block_size"]
    assert not config.max_block_tokens or len(ids) == 1 or blocks <= config.max_block_tokens


def real_ids(windows):
    """How often each sample occurs in the windows, over all ranks and micro-steps."""
    return Counter(
        int(i)
        for window in windows
        for step in window.batches
        for batch in step
        for i in batch.sample_ids
        if i >= 0
    )


def as_lists(windows):
    """Windows as plain values, for equality."""
    return [
        (
            window.start,
            window.stop,
            [[(b.sample_ids.tolist(), b.bucket, b.padded_length) for b in step] for step in window.batches],
        )
        for window in windows
    ]
