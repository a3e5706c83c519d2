"""Regression figures on the lengths of the documented run, at full scale (spec/batching.md 1 to 3)."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.ordering.mix import ANCHORS, EDGES, documented_mix
from dflash_lightning.plan import (
    DiversityFirst,
    MixedBuckets,
    PlanConfig,
    PoolSorted,
    RandomOrder,
    Shuffle,
    WindowFirst,
    cut_windows,
    plan_batches_count,
    plan_epoch,
    resolve_edges,
    rng,
    summarize,
)
from dflash_lightning.plan.buckets import assign_buckets
from dflash_lightning.plan.judge.balance import judge_balance
from dflash_lightning.plan.judge.mix import judge_mix
from dflash_lightning.plan.judge.runs import judge_runs

SORTED = PlanConfig(edges=EDGES, max_block_tokens=0)
RANDOM = replace(SORTED, packing=RandomOrder())
DEFAULT = PlanConfig(edges=EDGES)


@pytest.fixture(scope="module")
def samples():
    return documented_mix()


@pytest.fixture(scope="module")
def sorted_plan(samples):
    return planned(samples, SORTED)


@pytest.fixture(scope="module")
def random_plan(samples):
    return planned(samples, RANDOM)


@pytest.fixture(scope="module")
def default_plan(samples):
    return planned(samples, DEFAULT)


def planned(samples, config):
    return plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)


def reordered(plan, order):
    """Labels of the same queues in another order, as plan_epoch would give them."""
    return order.labels(np.bincount(plan.bucket).tolist(), key=rng.key(0, 0, "order"))


def test_the_lengths_are_those_of_the_documented_run(samples):
    assert len(samples) == 905_600
    assert samples.lengths.mean() == pytest.approx(2_468, rel=0.01)
    assert np.median(samples.lengths) == pytest.approx(2_016, rel=0.02)


def test_random_packing_gives_the_published_figures(samples, random_plan):
    facts = summarize(random_plan, samples)
    rows = [bucket.samples / bucket.batches for bucket in facts.buckets]
    assert facts.batches == pytest.approx(57_970, rel=0.005)
    assert facts.padding_efficiency == pytest.approx(0.807, abs=0.005)
    assert facts.buckets[5].batches / facts.batches == pytest.approx(0.523, abs=0.003)
    assert rows[0] == pytest.approx(63, abs=0.5)
    assert rows[5] == pytest.approx(6, abs=0.1)
    assert facts.longest_run == 2
    assert facts.equal_neighbours <= facts.forced_neighbours + 54


def test_the_documented_order_ends_on_a_fifth_of_the_epoch_of_one_bucket(random_plan):
    runs = judge_runs(reordered(random_plan, DiversityFirst()), len(EDGES))
    assert runs.final_run == runs.longest_run
    assert runs.final_run / random_plan.num_batches == pytest.approx(0.19, abs=0.005)
    assert runs.final_bucket == 5


@pytest.mark.parametrize(
    ("order", "mean", "drift", "lag"),
    [(None, 0.041, 0.001, 2), (Shuffle(), 0.139, 0.02, 200), (DiversityFirst(), 0.226, 0.48, 5_400)],
)
def test_only_credit_gives_every_window_and_tenth_the_mix_of_the_epoch(random_plan, order, mean, drift, lag):
    """spec/batching.md 2.1 and 2.3, windows of 8 ranks x 4."""
    labels = random_plan.bucket if order is None else reordered(random_plan, order)
    mix = judge_mix(labels, len(EDGES), 32)
    assert mix.tv_mean == pytest.approx(mean, abs=0.003)
    assert mix.drift <= drift
    assert mix.lag <= lag


def test_pool_sorting_saves_a_seventh_of_the_batches(samples, sorted_plan):
    facts = summarize(sorted_plan, samples)
    assert facts.padding_efficiency > 0.99
    assert facts.batches == pytest.approx(49_740, rel=0.003)
    assert facts.longest_run == 2
    share = facts.buckets[5].batches / facts.batches
    for tenth in np.array_split(sorted_plan.bucket, 10):
        assert abs((tenth == 5).mean() - share) < 0.001


def test_every_stretch_of_a_bucket_holds_short_and_long_batches(sorted_plan):
    """Queues walk their length ranks: a sorted queue left as it is would run from long to short."""
    longest_bucket = sorted_plan.padded_length[sorted_plan.bucket == 5]
    means = [part.mean() for part in np.array_split(longest_bucket, 200)]
    assert np.std(means) / np.mean(means) < 0.01


def test_the_block_budget_levels_the_drafters_work(samples, sorted_plan, default_plan):
    """Without it a batch of short samples holds four times the blocks of a batch of long ones."""
    assert summarize(sorted_plan, samples).max_batch_block_tokens > 240_000
    assert summarize(default_plan, samples).max_batch_block_tokens <= 65_536


def test_the_block_budget_evens_out_the_buckets_too(default_plan):
    """It cuts batches of shorter samples only: no bucket dominates, and the documented order ends well."""
    assert default_plan.num_batches == pytest.approx(99_400, rel=0.005)
    assert (default_plan.bucket == 5).mean() == pytest.approx(0.266, abs=0.005)
    runs = judge_runs(reordered(default_plan, DiversityFirst()), len(EDGES))
    assert runs.final_run / default_plan.num_batches < 0.01


@pytest.mark.slow
def test_eight_ranks_get_equal_work_and_every_sample_once(samples, sorted_plan):
    windows = cut_windows(sorted_plan, samples, SORTED, 0, world=8, accumulate=4)
    tokens, seen = np.zeros(8), []
    for window in windows:
        for step in window.batches:
            for rank, batch in enumerate(step):
                seen.append(batch.sample_ids)
                tokens[rank] += samples.lengths[batch.sample_ids].sum()
    assert np.bincount(np.concatenate(seen)).tolist() == [1] * len(samples)
    assert tokens.max() / tokens.mean() < 1.005


def test_ranks_wait_little_for_each_other(samples, default_plan):
    """8 ranks x 4, dealt by tokens and attention; then by tokens and blocks, as the defaults do."""
    large = replace(SORTED, max_rows=128, quadratic_length=8192.0, block_cost=0.0)
    facts = judge_balance(planned(samples, large), samples, large, world=8, accumulate=4)
    assert facts.linear <= 1.05
    assert facts.quadratic <= 1.07
    assert judge_balance(default_plan, samples, DEFAULT, world=8, accumulate=4).blocks <= 1.06


def test_epochs_differ_in_their_number_of_batches_and_are_counted_alone(samples, sorted_plan):
    counts = [plan_batches_count(samples, SORTED, **ANCHORS, seed=0, epoch=epoch) for epoch in range(2)]
    assert counts[0] == sorted_plan.num_batches
    assert counts[0] != counts[1]


def test_optimal_edges_pad_less_than_quantiles_and_the_published_ones(samples):
    """spec/batching.md section 3, every sample padded to its edge: .850 against .787 and .757."""
    optimal, quantile = (resolve_edges(samples, PlanConfig(edges=rule)) for rule in ("optimal", "quantile"))
    fill = {
        name: samples.lengths.sum() / np.array(edges)[assign_buckets(samples.lengths, edges)].sum()
        for name, edges in (("optimal", optimal), ("quantile", quantile), ("published", EDGES))
    }
    assert fill["optimal"] == pytest.approx(0.850, abs=0.005)
    assert fill["quantile"] == pytest.approx(0.787, abs=0.01)
    assert fill["published"] == pytest.approx(0.757, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "fill", "batches"),
    [
        ({"packing": MixedBuckets()}, 0.424, 119_201),
        ({"packing": RandomOrder(), "super_buckets": 3}, 0.637, 73_599),
        ({"packing": RandomOrder(), "edges": (1216, 2240, 3296, 8192)}, 0.778, 60_018),
        ({"super_buckets": 3}, 0.994, 49_737),
        ({"packing": WindowFirst(window_batches=32)}, 0.957, 50_912),
        ({"packing": WindowFirst(window_batches=128)}, 0.989, 49_664),
        ({"packing": PoolSorted(pool_batches=16)}, 0.983, 51_458),
        ({"packing": PoolSorted(pool_batches=1024)}, 0.9997, 49_192),
        ({"max_rows": 128}, 0.9955, 47_723),
        ({"packing": RandomOrder(), "edges": "optimal"}, 0.864, 55_102),
    ],
)
def test_other_packings_and_edges_give_the_figures_of_the_specification(samples, changes, fill, batches):
    """spec/batching.md section 3."""
    facts = summarize(planned(samples, replace(SORTED, **changes)), samples)
    assert facts.padding_efficiency == pytest.approx(fill, abs=0.003)
    assert facts.batches == pytest.approx(batches, rel=0.003)
