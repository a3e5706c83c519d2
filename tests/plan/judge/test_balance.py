from dataclasses import astuple, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.plan_million import ANCHORS, EDGES, documented_mix
from dflash_lightning.plan import PlanConfig, RandomOrder, cut_windows, plan_epoch
from dflash_lightning.plan.judge.balance import judge_balance
from tests.plan.cases import ACCUMULATE, BLOCKS, WORLDS, datasets, knobs, make_plan, make_samples


def loads_by_hand(batch, samples, plan, config):
    """(linear, quadratic, blocks) of one batch as training hands it to a rank."""
    ids = [int(i) if i >= 0 else ~int(i) for i in batch.sample_ids]
    tokens = len(ids) * batch.padded_length
    supervised = [min(int(samples.supervised[i]), plan.edges[-1]) for i in ids]
    blocks = sum(min(BLOCKS["num_anchors"], count) * BLOCKS["block_size"] for count in supervised)
    quadratic = tokens * (1 + batch.padded_length / 8192)
    return tokens, quadratic, tokens + blocks


def factors_by_hand(plan, samples, config, *, world, accumulate):
    """Every window built as for training, batch by batch: the slowest rank's load by the mean rank's."""
    windows = cut_windows(plan, samples, config, 0, world=world, accumulate=accumulate)
    waits = [[], []]  # once per window, once per micro-step: [loads of each rank]
    for window in windows:
        loads = [[loads_by_hand(b, samples, plan, config) for b in step] for step in window.batches]
        waits[0].append([[sum(step[rank][m] for step in loads) for m in range(3)] for rank in range(world)])
        waits[1] += loads
    return [
        sum(max(rank[m] for rank in wait) for wait in kind)
        / sum(sum(rank[m] for rank in wait) / world for wait in kind)
        for kind in waits
        for m in range(3)
    ]


@settings(deadline=None)
@given(
    datasets(), knobs(), WORLDS, ACCUMULATE, st.sampled_from(["split", "drop"]), st.sampled_from([0.0, 2.5])
)
def test_ranks_are_compared_as_training_deals_them(samples, chosen, world, accumulate, tail, block_cost):
    """Split tails and ghosts included."""
    config = PlanConfig(**chosen, tail=tail, block_cost=block_cost)
    plan = make_plan(samples, config)
    assume(tail == "split" or plan.num_batches >= world)
    facts = judge_balance(plan, samples, config, world=world, accumulate=accumulate)
    expected = factors_by_hand(plan, samples, config, world=world, accumulate=accumulate)
    assert astuple(facts) == pytest.approx(expected)


@settings(deadline=None)
@given(datasets(), knobs(), WORLDS, ACCUMULATE)
def test_no_factor_is_below_one_and_waiting_more_often_costs_more(samples, chosen, world, accumulate):
    config = PlanConfig(**chosen)
    facts = judge_balance(make_plan(samples, config), samples, config, world=world, accumulate=accumulate)
    assert min(astuple(facts)) >= 1 - 1e-12
    assert facts.micro_linear >= facts.linear - 1e-12
    assert facts.micro_quadratic >= facts.quadratic - 1e-12
    assert facts.micro_blocks >= facts.blocks - 1e-12
    if world == 1:
        assert set(astuple(facts)) == {1.0}


def test_samples_cut_to_the_last_edge_count_as_cut():
    config = PlanConfig(edges=(8, 16), max_tokens=32, oversize="truncate")
    samples = make_samples([4, 30, 16, 90, 9])
    plan = make_plan(samples, config)
    facts = judge_balance(plan, samples, config, world=2, accumulate=2)
    assert astuple(facts) == pytest.approx(factors_by_hand(plan, samples, config, world=2, accumulate=2))


# spec/batching.md 2.4 and the bounds of the plan command: 8 ranks, 4 micro-steps, samples like the documented
# ones. How batches are dealt changes no plan, so one plan is dealt by several costs.
TOKENS_AND_ATTENTION = {"quadratic_length": 8192.0, "block_cost": 0.0}
LARGE_BATCHES = PlanConfig(edges=EDGES, max_rows=128, max_block_tokens=0)


@pytest.fixture(scope="module")
def documented():
    return documented_mix(200_000)


@pytest.fixture(scope="module")
def large_batches(documented):
    return plan_epoch(documented, LARGE_BATCHES, **ANCHORS, seed=0, epoch=0)


def judged(plan, samples, config):
    return judge_balance(plan, samples, config, world=8, accumulate=4)


def test_the_published_factors_with_random_packing(documented):
    config = PlanConfig(edges=EDGES, max_block_tokens=0, packing=RandomOrder(), **TOKENS_AND_ATTENTION)
    facts = judged(plan_epoch(documented, config, **ANCHORS, seed=0, epoch=0), documented, config)
    assert facts.linear == pytest.approx(1.021, abs=0.002)
    assert facts.quadratic == pytest.approx(1.023, abs=0.002)
    assert facts.micro_linear == pytest.approx(1.027, abs=0.002)
    assert facts.micro_quadratic == pytest.approx(1.062, abs=0.003)


def test_sorted_batches_are_level_when_dealt_by_the_cost_that_is_judged(documented, large_batches):
    facts = judged(large_batches, documented, replace(LARGE_BATCHES, **TOKENS_AND_ATTENTION))
    assert facts.linear <= 1.05
    assert facts.quadratic <= 1.07


def test_a_load_that_no_budget_bounds_spoils_the_balance_of_all(documented, large_batches):
    """Block positions in the cost of dealing, without their budget: a batch of short samples has tenfold."""
    facts = judged(large_batches, documented, LARGE_BATCHES)
    assert facts.quadratic > 1.07
    assert facts.blocks > 1.2


def test_the_block_budget_levels_target_and_drafter_together(documented):
    config = replace(LARGE_BATCHES, max_block_tokens=PlanConfig().max_block_tokens)
    facts = judged(plan_epoch(documented, config, **ANCHORS, seed=0, epoch=0), documented, config)
    assert facts.blocks <= 1.06
    assert facts.linear <= 1.05
