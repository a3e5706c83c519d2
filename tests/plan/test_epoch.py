from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    MixedBuckets,
    PlanConfig,
    PoolSorted,
    RandomOrder,
    Shuffle,
    WindowFirst,
    plan_batches_count,
    resolve_edges,
)
from tests.plan.cases import (
    BLOCKS,
    PACKINGS,
    agreed,
    datasets,
    knobs,
    make_plan,
    make_samples,
    require_legal_batch,
)


@settings(deadline=None)
@given(datasets(), knobs(), st.integers(0, 3))
def test_a_plan_holds_every_sample_once_in_legal_batches(samples, chosen, epoch):
    config = PlanConfig(**chosen)
    plan = make_plan(samples, config, epoch=epoch)
    assert sorted(plan.sample_ids.tolist()) == list(range(len(samples)))
    assert plan.offsets[0] == 0
    assert plan.offsets[-1] == len(samples)
    assert plan.edges == resolve_edges(samples, config)
    for i in range(plan.num_batches):
        facts = {"samples": samples, "config": config, "edges": plan.edges}
        require_legal_batch(plan.batch(i).tolist(), plan.bucket[i], plan.padded_length[i], **facts)
        blocks = np.minimum(samples.supervised[plan.batch(i)], BLOCKS["num_anchors"]) * BLOCKS["block_size"]
        assert plan.block_tokens[i] == blocks.sum()


@settings(deadline=None)
@given(datasets(), knobs(), st.integers(0, 2**40), st.integers(0, 3))
def test_a_plan_is_a_function_of_its_arguments(samples, chosen, seed, epoch):
    config = PlanConfig(**chosen)
    plan, again = (make_plan(samples, config, seed=seed, epoch=epoch) for _ in range(2))
    assert plan.digest == again.digest
    assert plan.sample_ids.tolist() == again.sample_ids.tolist()
    # The edges a rule finds, written down as given ones, make the same plan.
    written = make_plan(samples, replace(config, edges=plan.edges), seed=seed, epoch=epoch)
    assert written.digest == plan.digest


@settings(deadline=None)
@given(datasets(), knobs(), st.integers(0, 3))
def test_batches_are_counted_without_a_plan(samples, chosen, epoch):
    config = PlanConfig(**chosen)
    count = plan_batches_count(samples, config, **BLOCKS, seed=0, epoch=epoch)
    assert count == make_plan(samples, config, epoch=epoch).num_batches


SAMPLES = make_samples(np.arange(300) % 64 + 1)
CONFIG = PlanConfig(edges=(16, 40, 64), max_tokens=256, max_rows=8)


@pytest.mark.parametrize("packing", PACKINGS, ids=str)
@pytest.mark.parametrize("order", [Credit(), Shuffle(), DiversityFirst()], ids=str)
def test_epochs_and_seeds_differ_and_do_not_add_up(packing, order):
    config = replace(CONFIG, **agreed({"packing": packing, "order": order}))
    plans = [make_plan(SAMPLES, config, seed=s, epoch=e) for s in range(4) for e in range(4)]
    assert len({plan.digest for plan in plans}) == 16
    assert len({tuple(plan.sample_ids.tolist()) for plan in plans}) == 16


@pytest.mark.parametrize(
    "change",
    [
        {"edges": (16, 48, 64)},
        {"max_tokens": 255},
        {"max_rows": 7},
        {"max_block_tokens": 0},
        {"pad_multiple": 2},
        {"packing": RandomOrder()},
        {"packing": PoolSorted(pool_batches=63)},
        {"order": Shuffle()},
        {"oversize": "drop"},
        {"tail": "drop"},
        {"quadratic_length": None},
        {"block_cost": 0.5},
        {"super_buckets": 2},
        {"min_length": 1},
        {"quadratic_budget": 1e9},
        {"static_shapes": True},
        {"packing": MixedBuckets()},
        {"packing": WindowFirst(window_batches=2)},
    ],
    ids=str,
)
def test_the_digest_covers_every_setting(change):
    assert make_plan(SAMPLES, replace(CONFIG, **change)).digest != make_plan(SAMPLES, CONFIG).digest


def test_the_digest_covers_samples_and_blocks():
    plans = [
        make_plan(SAMPLES, CONFIG),
        make_plan(SAMPLES, CONFIG, num_anchors=7),
        make_plan(SAMPLES, CONFIG, block_size=5),
        make_plan(make_samples(SAMPLES.lengths[::-1]), CONFIG),
        make_plan(make_samples(SAMPLES.lengths, np.minimum(SAMPLES.lengths, 40)), CONFIG),  # no batch changes
    ]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert plans[0].sample_ids.tolist() == plans[-1].sample_ids.tolist()


def test_a_digest_never_changes():
    """A checkpoint of today must be resumed by every later version, or be refused on purpose."""
    assert make_plan(SAMPLES, CONFIG).digest == "5f007479ef96abf8e8ac4df4"


def test_the_default_order_is_credit_over_pool_sorted_batches():
    assert isinstance(PlanConfig().order, Credit)
    assert isinstance(PlanConfig().packing, PoolSorted)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            PlanConfig(edges=(8, 16)),
            r"^3 of 5 samples are longer than 16 tokens, the last of plan.edges: "
            r"sample 1 \(17 tokens\), 2 \(90 tokens\), 4 \(20 tokens\); "
            "raise it, or set plan.oversize to drop or truncate$",
        ),
        (
            PlanConfig(max_tokens=64),
            r"^1 of 5 samples are longer than 64 tokens, plan.max_tokens: sample 2 \(90 tokens\); raise it",
        ),
        (
            PlanConfig(max_tokens=64, quadratic_budget=16.0),
            r"longer than 24 tokens, the most that plan.max_tokens 64 leaves to one row with plan.quadratic_",
        ),
        (
            PlanConfig(max_tokens=70, pad_multiple=32),
            r"longer than 64 tokens, the most that plan.max_tokens 70 leaves .* and plan.pad_multiple: ",
        ),
        (
            PlanConfig(edges=(8, 16), pad_multiple=5),
            r"longer than 20 tokens, the last of plan.edges, rounded up to plan.pad_multiple: sample 2",
        ),
        (
            PlanConfig(edges=(3,)),
            r"5 of 5 .* sample 0 \(5 tokens\), 1 .*, 2 .*, 3 .*, 4 \(20 tokens\); raise",
        ),
        (
            PlanConfig(edges=(3,), oversize="drop"),
            "plan.oversize drop leaves no sample: all 5 are longer than 3 tokens; raise plan.edges",
        ),
    ],
)
def test_oversize_samples_stop_the_run_before_it_starts(config, message):
    samples = make_samples([5, 17, 90, 16, 20])
    for use in (resolve_edges, make_plan):
        with pytest.raises(ValueError, match=message):
            use(samples, config)


def test_a_long_list_of_oversize_samples_is_cut():
    with pytest.raises(ValueError, match=r"9 of 9 .* 4 \(9 tokens\), \.\.\.; raise"):
        make_plan(make_samples([9] * 9), PlanConfig(edges=(8,)))


def test_an_empty_split_is_refused():
    with pytest.raises(ValueError, match="no samples to plan: the split is empty; prepare a token store"):
        make_plan(make_samples([]))


def test_dropped_samples_are_listed():
    plan = make_plan(make_samples([5, 17, 90, 16, 20]), PlanConfig(edges=(8, 16), oversize="drop"))
    assert plan.dropped.tolist() == [1, 2, 4]
    assert sorted(plan.sample_ids.tolist()) == [0, 3]
    assert plan.truncated == 0


def test_truncated_samples_count_as_long_as_the_last_edge():
    samples = make_samples([5, 17, 90, 16, 20])
    plan = make_plan(samples, PlanConfig(edges=(8, 16), oversize="truncate", max_rows=1))
    assert plan.truncated == 3
    assert sorted(plan.sample_ids.tolist()) == [0, 1, 2, 3, 4]
    assert sorted(plan.padded_length.tolist()) == [5, 16, 16, 16, 16]
    unlimited = make_plan(
        samples, PlanConfig(edges=(8, 16), oversize="truncate"), num_anchors=99, block_size=2
    )
    assert unlimited.block_tokens.sum() == 2 * (5 + 4 * 16)  # what was cut off cannot carry an anchor


@pytest.mark.parametrize("rule", ["quantile", "optimal"])
@pytest.mark.parametrize("oversize", ["drop", "truncate"])
def test_rules_find_edges_within_the_budget(rule, oversize):
    config = PlanConfig(edges=rule, max_tokens=30, pad_multiple=8, num_buckets=2, oversize=oversize)
    samples = make_samples([5, 17, 90, 16, 20])
    longest = 24  # the largest multiple of 8 in the budget: where truncation cuts
    assert resolve_edges(samples, config)[-1] == longest
    plan = make_plan(samples, config)
    assert (plan.padded_length * np.diff(plan.offsets)).max() <= 30
    assert plan.dropped.tolist() == ([2] if oversize == "drop" else [])


def test_an_edge_without_samples_makes_no_batch():
    plan = make_plan(make_samples([3, 30]), PlanConfig(edges=(8, 16, 32)))
    assert sorted(plan.bucket.tolist()) == [0, 2]
