from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    PlanConfig,
    Shuffle,
    count_windows,
    cut_windows,
    require_ranks_fit,
    rng,
    windows_in,
)
from dflash_lightning.plan.deal import batch_cost, deal
from dflash_lightning.plan.tail import split_tail
from dflash_lightning.plan.windows import lost_to_tail
from tests.plan.cases import (
    ACCUMULATE,
    WORLDS,
    as_lists,
    datasets,
    knobs,
    make_plan,
    make_samples,
    real_ids,
    require_legal_batch,
)


def num_real(batch):
    """Rows that are not ghosts."""
    return int((batch.sample_ids >= 0).sum())


@settings(deadline=None, max_examples=60)
@given(datasets(), knobs(), WORLDS, ACCUMULATE)
def test_an_epoch_is_the_dataset_once_in_equal_steps_and_legal_batches(samples, chosen, world, accumulate):
    config = PlanConfig(**chosen)
    plan = make_plan(samples, config)
    windows = cut_windows(plan, samples, config, 0, world=world, accumulate=accumulate)
    assert real_ids(windows) == Counter(range(len(samples)))
    assert len(windows) == count_windows(plan, 0, world=world, accumulate=accumulate, tail="split")
    for window in windows:
        for batch in (batch for step in window.batches for batch in step):
            ids = [i if i >= 0 else ~i for i in batch.sample_ids.tolist()]
            facts = {"samples": samples, "config": config, "edges": plan.edges}
            require_legal_batch(ids, batch.bucket, batch.padded_length, **facts)
            assert num_real(batch) in (0, len(ids))  # a ghost has no real rows beside it
        assert all(len(step) == world for step in window.batches)
    assert all(len(window.batches) == accumulate for window in windows[:-1])
    assert [window.start for window in windows] + [plan.num_batches] == [0] + [
        window.stop for window in windows
    ]


@settings(deadline=None, max_examples=60)
@given(datasets(max_size=30), knobs(), WORLDS, ACCUMULATE)
def test_the_last_window_is_short_only_where_samples_are_too_few(samples, chosen, world, accumulate):
    config = PlanConfig(**chosen)
    last = cut_windows(make_plan(samples, config), samples, config, 0, world=world, accumulate=accumulate)[-1]
    flat = [batch for step in last.batches for batch in step]
    num_samples, num_ghosts = sum(map(num_real, flat)), sum(not num_real(b) for b in flat)
    if num_samples >= world * accumulate:
        assert (len(last.batches), num_ghosts) == (accumulate, 0)
    elif num_ghosts:
        assert num_ghosts == -num_samples % world
        assert all(len(batch.sample_ids) == 1 for batch in flat)
    else:
        assert len(last.batches) == num_samples // world


@settings(deadline=None, max_examples=60)
@given(datasets(), knobs(), st.data())
def test_resuming_on_other_worlds_again_and_again_loses_and_doubles_nothing(samples, chosen, data):
    config = PlanConfig(**chosen)
    plan = make_plan(samples, config)
    cursor, seen = 0, Counter()
    while cursor < plan.num_batches:
        world, accumulate = data.draw(WORLDS), data.draw(ACCUMULATE)
        windows = cut_windows(plan, samples, config, cursor, world=world, accumulate=accumulate)
        done = windows[: data.draw(st.integers(1, 3))]
        seen += real_ids(done)
        cursor = done[-1].stop
    assert seen == Counter(range(len(samples)))


@settings(deadline=None, max_examples=30)
@given(datasets(), knobs(), WORLDS, ACCUMULATE)
def test_resuming_at_any_window_is_the_uninterrupted_run(samples, chosen, world, accumulate):
    config = PlanConfig(**chosen)
    cut = {"world": world, "accumulate": accumulate}
    whole = as_lists(cut_windows(make_plan(samples, config), samples, config, 0, **cut))
    for done, (start, _, _) in enumerate(whole):
        again = make_plan(samples, config)  # as a new process would compute it
        assert as_lists(cut_windows(again, samples, config, start, **cut)) == whole[done:]


@settings(deadline=None)
@given(datasets(), knobs(tail="drop"), WORLDS, ACCUMULATE, st.integers(0, 40))
def test_a_dropped_tail_loses_fewer_batches_than_ranks(samples, chosen, world, accumulate, cursor):
    config = PlanConfig(**chosen)
    plan = make_plan(samples, config)
    if plan.num_batches < world or cursor > plan.num_batches:
        return
    windows = cut_windows(plan, samples, config, cursor, world=world, accumulate=accumulate)
    lost = lost_to_tail(plan, cursor, world=world, tail="drop")
    left = Counter(plan.sample_ids[plan.offsets[cursor] :].tolist())
    assert real_ids(windows) == left - Counter(lost.tolist())
    assert len(lost) <= (world - 1) * config.max_rows
    if len(windows):
        assert windows[-1].stop == plan.num_batches  # the epoch is finished, lost batches included
    assert len(windows) == windows_in(
        plan.num_batches - cursor, world=world, accumulate=accumulate, tail="drop"
    )


def literal_deal(costs, world, key):
    """Sorted, dealt like cards left to right and back, then rows and columns shuffled."""
    order = sorted(range(len(costs)), key=lambda i: (-costs[i], i))
    layers = [order[i : i + world] for i in range(0, len(order), world)]
    layers = [layer[::-1] if i % 2 else layer for i, layer in enumerate(layers)]
    slots = rng.permutation(rng.key(key, "slots"), np.arange(len(layers))).tolist()
    ranks = rng.permutation(rng.key(key, "ranks"), np.arange(world)).tolist()
    return [[layers[slot][rank] for rank in ranks] for slot in slots]


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(1, 4), st.integers(0, 2**64 - 1), st.data())
def test_batches_are_dealt_like_cards(world, slots, key, data):
    costs = data.draw(st.lists(st.integers(0, 9), min_size=world * slots, max_size=world * slots))
    dealt = deal(np.array(costs, np.float64), world=world, key=key).tolist()
    assert dealt == literal_deal(costs, world, key)


@settings(deadline=None)
@given(datasets(max_size=20), st.integers(2, 8), ACCUMULATE)
def test_the_tail_is_split_and_dealt_by_the_cost_of_what_is_left_of_each_sample(samples, world, accumulate):
    config = PlanConfig(
        edges=(8, 20), max_tokens=80, oversize="truncate", quadratic_length=30.0, block_cost=0.7
    )
    plan = make_plan(samples, config)
    last = cut_windows(plan, samples, config, 0, world=world, accumulate=accumulate)[-1]
    if plan.num_batches % (world * accumulate) == 0:
        return

    def cost(ids):
        rows = [i if i >= 0 else ~i for i in ids]
        longest = max(min(20, int(samples.lengths[i])) for i in rows)
        blocks = sum(min(6, 20, int(samples.supervised[i])) * 4 for i in rows)
        return len(rows) * longest * (1 + longest / 30) + 0.7 * blocks

    left = [plan.batch(i) for i in range(last.start, plan.num_batches)]
    pieces = [ids.tolist() for _, ids in split_tail(left, cost, world=world, accumulate=accumulate)]
    key = rng.key(plan.seed, plan.epoch, "window", last.start)
    dealt = literal_deal([cost(ids) for ids in pieces], world, key)
    assert [[batch.sample_ids.tolist() for batch in step] for step in last.batches] == [
        [pieces[i] for i in turn] for turn in dealt
    ]


def test_one_rank_keeps_the_order_of_the_plan():
    assert deal(np.array([3.0, 9.0, 1.0]), world=1, key=4).tolist() == [[0], [1], [2]]


def test_cost_counts_tokens_attention_and_blocks():
    batch = np.array([2]), np.array([100]), np.array([30])
    assert batch_cost(*batch, PlanConfig(quadratic_length=None, block_cost=0.0)).tolist() == [200]
    assert batch_cost(*batch, PlanConfig(quadratic_length=None, block_cost=2.0)).tolist() == [260]
    assert batch_cost(*batch, PlanConfig(quadratic_length=50.0)).tolist() == [2 * 100 * (1 + 100 / 50) + 30]


@pytest.mark.parametrize(
    ("world", "share", "order"),
    [
        (2, 0.5, Credit()),
        (8, 0.5, Credit()),
        (2, 0.2, Credit()),
        (8, 0.2, Credit()),
        (2, 0.5, Shuffle()),
        (2, 0.5, DiversityFirst()),
    ],
)
def test_every_rank_gets_its_share_of_every_bucket(world, share, order):
    """A regular order dealt by stride would give one rank nearly all of a bucket that makes up one half."""
    num_samples = 2_500 * world
    long = int(num_samples * share)
    samples = make_samples([64] * long + [8] * (num_samples - long))
    config = PlanConfig(edges=(8, 64), max_tokens=64, max_rows=1, order=order)
    windows = cut_windows(make_plan(samples, config), samples, config, 0, world=world, accumulate=4)
    buckets = np.array([[batch.bucket for batch in step] for window in windows for step in window.batches])
    for rank in range(world):
        assert abs((buckets[:, rank] == 1).mean() - share) < 0.01
    strided = make_plan(samples, config).bucket.reshape(-1, world)
    if share == 0.5 and order == Credit():
        assert abs((strided[:, 0] == 1).mean() - share) > 0.4  # so the law has something to prevent


@pytest.mark.parametrize(
    ("num_batches", "world", "accumulate", "split", "drop"),
    [
        (16, 2, 4, 2, 2),
        (17, 2, 4, 3, 2),  # one batch is split in eight, or dropped
        (18, 2, 4, 3, 3),  # two are split in eight, or make a window of one micro-step
        (1, 1, 4, 1, 1),
        (0, 2, 4, 0, 0),
    ],
)
def test_windows_are_counted(num_batches, world, accumulate, split, drop):
    assert windows_in(num_batches, world=world, accumulate=accumulate, tail="split") == split
    assert windows_in(num_batches, world=world, accumulate=accumulate, tail="drop") == drop


def test_windows_are_made_on_demand_and_slices_are_views():
    samples = make_samples([8] * 10_000)
    config = PlanConfig(edges=(8,), max_rows=1)
    windows = cut_windows(make_plan(samples, config), samples, config, 0, world=2, accumulate=2)
    assert len(windows) == 2_500
    assert as_lists(windows[7::1000]) == as_lists([windows[7], windows[1007], windows[2007]])
    assert windows[-1].stop == 10_000
    with pytest.raises(IndexError):
        windows[2_500]


@pytest.mark.parametrize("cursor", [-1, 4])
def test_a_cursor_outside_the_plan_is_refused(cursor):
    samples, config = make_samples([8] * 3), PlanConfig(max_rows=1)
    with pytest.raises(ValueError, match=f"cursor {cursor} lies outside the plan, which has 3 batches"):
        cut_windows(make_plan(samples, config), samples, config, cursor, world=1, accumulate=1)


def test_dropping_the_whole_epoch_is_refused():
    samples, config = make_samples([8] * 3), PlanConfig(tail="drop")
    with pytest.raises(
        ValueError, match="plan.tail drop would lose the whole epoch: 1 batches for 2 ranks; set"
    ):
        cut_windows(make_plan(samples, config), samples, config, 0, world=2, accumulate=1)


def test_fewer_samples_than_ranks_are_refused():
    require_ranks_fit(8, 8)
    with pytest.raises(
        ValueError, match="7 samples cannot feed 8 ranks: fewer samples than ranks; use more data"
    ):
        require_ranks_fit(7, 8)
