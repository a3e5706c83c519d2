"""Regression figures on the lengths of the documented run, at full scale (spec/batching.md 1 to 3)."""

import numpy as np
import pytest

from benchmarks.plan_million import ANCHORS, EDGES, documented_mix
from dflash_lightning.plan import (
    PlanConfig,
    RandomOrder,
    cut_windows,
    plan_batches_count,
    plan_epoch,
    resolve_edges,
    summarize,
)
from dflash_lightning.plan.buckets import assign_buckets

SORTED = PlanConfig(edges=EDGES, max_block_tokens=0)
RANDOM = PlanConfig(edges=EDGES, max_block_tokens=0, packing=RandomOrder())


@pytest.fixture(scope="module")
def samples():
    return documented_mix()


@pytest.fixture(scope="module")
def sorted_plan(samples):
    return planned(samples, SORTED)


def planned(samples, config):
    return plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)


def test_the_lengths_are_those_of_the_documented_run(samples):
    assert len(samples) == 905_600
    assert samples.lengths.mean() == pytest.approx(2_468, rel=0.01)
    assert np.median(samples.lengths) == pytest.approx(2_016, rel=0.02)


def test_random_packing_gives_the_published_figures(samples):
    facts = summarize(planned(samples, RANDOM), samples)
    rows = [bucket.samples / bucket.batches for bucket in facts.buckets]
    assert facts.batches == pytest.approx(57_970, rel=0.005)
    assert facts.padding_efficiency == pytest.approx(0.807, abs=0.005)
    assert facts.buckets[5].batches / facts.batches == pytest.approx(0.523, abs=0.003)
    assert rows[0] == pytest.approx(63, abs=0.5)
    assert rows[5] == pytest.approx(6, abs=0.1)
    assert facts.longest_run <= 2
    assert facts.equal_neighbours <= facts.forced_neighbours + 54


def test_pool_sorting_saves_a_seventh_of_the_batches(samples, sorted_plan):
    facts = summarize(sorted_plan, samples)
    assert facts.padding_efficiency > 0.99
    assert facts.batches == pytest.approx(49_740, rel=0.003)
    assert facts.longest_run <= 2
    share = facts.buckets[5].batches / facts.batches
    for tenth in np.array_split(sorted_plan.bucket, 10):
        assert abs((tenth == 5).mean() - share) < 0.001


def test_every_stretch_of_a_bucket_holds_short_and_long_batches(sorted_plan):
    """Queues walk their length ranks: a sorted queue left as it is would run from long to short."""
    longest_bucket = sorted_plan.padded_length[sorted_plan.bucket == 5]
    means = [part.mean() for part in np.array_split(longest_bucket, 200)]
    assert np.std(means) / np.mean(means) < 0.01


def test_the_block_budget_levels_the_drafters_work(samples, sorted_plan):
    """Without it a batch of short samples holds four times the blocks of a batch of long ones."""
    free = summarize(sorted_plan, samples)
    bound = summarize(planned(samples, PlanConfig(edges=EDGES)), samples)
    assert free.max_batch_block_tokens > 240_000
    assert bound.max_batch_block_tokens <= 65_536


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
