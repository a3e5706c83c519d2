"""A dry run must not need less than the run."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.plan import PlanConfig
from dflash_lightning.plan.deal import batch_cost
from dflash_lightning.plan.rehearsal import rehearsal
from dflash_lightning.plan.windows import cut_windows
from tests.plan.cases import WORLDS, datasets, make_plan, make_samples

CONFIG = PlanConfig(edges=(8, 24, 64), max_tokens=128, max_rows=4)


def windows_of(lengths, world):
    samples = make_samples(lengths)
    plan = make_plan(samples, CONFIG)
    return cut_windows(plan, samples, CONFIG, 0, world=world, accumulate=2)


def test_one_window_a_bucket_with_its_heaviest_batches():
    windows = rehearsal(windows_of([8] * 9 + [60, 61, 62], world=2))
    assert [w.batches[0][0].bucket for w in windows] == [0, 2]  # no sample lies in bucket 1
    assert [(w.start, w.stop) for w in windows] == [(0, 2), (2, 4)]
    short, long = (w.batches[0] for w in windows)
    assert [len(batch.sample_ids) for batch in short] == [4, 4]
    assert sorted(len(batch.sample_ids) for batch in long) == [1, 2]


@given(samples=datasets(), world=WORLDS)
def test_no_batch_of_the_epoch_costs_more(samples, world):
    plan = make_plan(samples, CONFIG)
    windows = cut_windows(plan, samples, CONFIG, 0, world=world, accumulate=1)
    cost = batch_cost(np.diff(plan.offsets), plan.padded_length, plan.block_tokens, CONFIG)
    costs = {tuple(plan.batch(i).tolist()): cost[i] for i in range(plan.num_batches)}
    rehearsed = rehearsal(windows)
    assert {w.batches[0][0].bucket for w in rehearsed} == set(plan.bucket.tolist())
    for window in rehearsed:
        (ranks,) = window.batches
        assert len(ranks) == world
        first = costs[tuple(ranks[0].sample_ids.tolist())]
        assert first == max(cost[plan.bucket == ranks[0].bucket])


@given(world=st.integers(1, 5))
def test_too_few_batches_are_used_again(world):
    (window,) = rehearsal(windows_of([8], world))
    assert {tuple(batch.sample_ids.tolist()) for batch in window.batches[0]} == {(0,)}
