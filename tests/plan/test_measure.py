"""Which samples a plan takes, and to what they are padded."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.plan import PlanConfig, PoolSorted, RandomOrder, cut_windows, resolve_edges
from tests.plan.cases import (
    ACCUMULATE,
    BLOCKS,
    LONGEST,
    WORLDS,
    datasets,
    knobs,
    make_plan,
    make_samples,
    real_ids,
)


@settings(deadline=None)
@given(datasets(), knobs(oversize="drop"), st.integers(0, LONGEST), WORLDS, ACCUMULATE)
def test_short_samples_are_left_out_and_listed(samples, chosen, least, world, accumulate):
    least = min(least, int(samples.lengths.max()))
    config = PlanConfig(**chosen, min_length=least)
    plan = make_plan(samples, config)
    kept = np.flatnonzero(samples.lengths >= least).tolist()
    assert sorted(plan.sample_ids.tolist()) == kept
    assert plan.dropped.tolist() == np.flatnonzero(samples.lengths < least).tolist()
    windows = cut_windows(plan, samples, config, 0, world=world, accumulate=accumulate)
    assert real_ids(windows) == Counter(kept)


def test_edges_are_found_among_the_samples_that_are_kept():
    samples = make_samples([1, 1, 1, 1, 30, 40, 50, 60, 900])
    config = PlanConfig(edges="quantile", num_buckets=2, max_tokens=100, min_length=2, oversize="drop")
    assert resolve_edges(samples, config) == (40, 60)
    assert make_plan(samples, config).dropped.tolist() == [0, 1, 2, 3, 8]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"min_length": 10},
            "no sample is left: plan.min_length leaves out the 3 shorter than 10 tokens; lower plan",
        ),
        (
            {"min_length": 9, "edges": (9,), "oversize": "drop"},
            "leaves out the 2 shorter than 9 tokens, and plan.oversize drop the 1 longer than 9; lower",
        ),
    ],
)
def test_leaving_out_every_sample_is_refused(settings, message):
    samples = make_samples([2, 3, 5] if settings["min_length"] == 10 else [2, 3, 30])
    for use in (resolve_edges, make_plan):
        with pytest.raises(ValueError, match=message):
            use(samples, PlanConfig(**settings))


DOCUMENTED = (1216, 1728, 2240, 2784, 3296, 8192)


@pytest.mark.parametrize(
    ("super_buckets", "edges"),
    [
        (None, DOCUMENTED),
        (9, DOCUMENTED),
        (6, DOCUMENTED),
        (4, (1728, 2784, 3296, 8192)),
        (3, (1728, 2784, 8192)),
        (1, (8192,)),
    ],
)
def test_super_buckets_are_neighbours_merged(super_buckets, edges):
    samples = make_samples([100, 8000])
    config = PlanConfig(edges=DOCUMENTED, super_buckets=super_buckets)
    assert make_plan(samples, config).edges == resolve_edges(samples, config) == edges


def test_super_buckets_of_a_rule_are_merged_from_what_it_finds():
    config = PlanConfig(edges="quantile", num_buckets=6, super_buckets=3)
    assert resolve_edges(make_samples([1, 2, 3, 4, 5, 6]), config) == (2, 4, 6)


@settings(deadline=None)
@given(
    datasets(min_size=5),
    knobs(packing=PoolSorted(pool_batches=2), static_shapes=True)
    | knobs(packing=RandomOrder(), static_shapes=True),
    WORLDS,
    ACCUMULATE,
)
def test_static_shapes_are_one_shape_a_bucket_one_remainder_and_the_tail(samples, chosen, world, accumulate):
    config = PlanConfig(**chosen)
    plan = make_plan(samples, config)
    blocks = BLOCKS["num_anchors"] * BLOCKS["block_size"]
    for bucket, edge in enumerate(plan.edges):
        mine = plan.bucket == bucket
        rows = config.batch_limits.most_rows(np.array([edge]))[0]
        rows = max(1, min(rows, config.max_block_tokens // blocks if config.max_block_tokens else rows))
        sizes = np.diff(plan.offsets)[mine].tolist()
        assert set(plan.padded_length[mine].tolist()) <= {edge}
        assert sum(size != rows for size in sizes) <= 1
        assert max(sizes, default=0) <= rows
    for window in cut_windows(plan, samples, config, 0, world=world, accumulate=accumulate):
        for batch in (batch for step in window.batches for batch in step):
            assert batch.padded_length == plan.edges[batch.bucket]


def test_static_shapes_change_no_sample_and_cost_padding():
    samples = make_samples(np.arange(1000) % 64 + 1)
    config = {"edges": (16, 40, 64), "max_tokens": 640, "max_block_tokens": 0}
    free, static = (make_plan(samples, PlanConfig(**config, static_shapes=on)) for on in (False, True))
    assert sorted(free.sample_ids.tolist()) == sorted(static.sample_ids.tolist())
    padded = [int((np.diff(plan.offsets) * plan.padded_length).sum()) for plan in (free, static)]
    assert padded[1] > 1.2 * padded[0]
    assert static.block_tokens.sum() == free.block_tokens.sum()  # real ones: what it charges stays inside
