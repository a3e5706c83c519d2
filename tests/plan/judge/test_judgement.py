from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dflash_lightning.plan import PlanConfig, count_windows, cut_windows, summarize
from dflash_lightning.plan.judge.balance import judge_balance
from dflash_lightning.plan.judge.judgement import judge, over_budget, rounded_tokens
from dflash_lightning.plan.judge.mix import judge_mix
from dflash_lightning.plan.judge.runs import judge_runs
from tests.plan.cases import ACCUMULATE, LONGEST, WORLDS, datasets, knobs, make_plan, make_samples


@pytest.mark.slow
@settings(deadline=None)
@given(datasets(), knobs(), WORLDS, ACCUMULATE, st.sampled_from(["split", "drop"]))
def test_a_judgement_puts_the_parts_together(samples, chosen, world, accumulate, tail):
    config = PlanConfig(**chosen, tail=tail)
    plan = make_plan(samples, config)
    assume(tail == "split" or plan.num_batches >= world)
    facts = judge(plan, samples, config, world=world, accumulate=accumulate)
    parallel = {"world": world, "accumulate": accumulate}
    assert facts.summary == summarize(plan, samples)
    assert facts.runs == judge_runs(plan.bucket, len(plan.edges))
    assert facts.mix == judge_mix(plan.bucket, len(plan.edges), world * accumulate)
    assert facts.balance == judge_balance(plan, samples, config, **parallel)
    assert facts.steps_per_epoch == count_windows(plan, 0, **parallel, tail=tail)
    assert facts.steps_per_epoch == len(cut_windows(plan, samples, config, 0, **parallel))
    assert (facts.world, facts.accumulate, facts.window_batches) == (world, accumulate, world * accumulate)


@settings(deadline=None)
@given(datasets(), knobs())
def test_no_plan_is_over_its_own_budget(samples, chosen):
    config = PlanConfig(**chosen)
    assert over_budget(make_plan(samples, config), config) == 0


@pytest.mark.parametrize(("quadratic", "above"), [(None, 0), (1000.0, 0), (200.0, 2), (64.0, 3)])
def test_a_quadratic_budget_charges_long_batches_more(quadratic, above):
    """Batches of 4 x 16, 2 x 32 and 2 x 32 tokens; charged at 200 they count 69, 74 and 74."""
    samples = make_samples([16] * 4 + [32] * 4)
    plan = make_plan(samples, PlanConfig(edges=(16, 32), max_tokens=64, max_block_tokens=0))
    assert sorted(np.diff(plan.offsets).tolist()) == [2, 2, 4]
    judged = PlanConfig(edges=(16, 32), max_tokens=72, max_block_tokens=0, quadratic_budget=quadratic)
    assert over_budget(plan, judged) == above


@settings(deadline=None)
@given(
    datasets(), knobs(), st.sampled_from([1, 3, 30]), st.sampled_from([64, 90]), st.sampled_from([1, 9, 40])
)
def test_batches_over_a_smaller_budget_as_counted_by_hand(samples, chosen, rows, tokens, blocks):
    plan = make_plan(samples, PlanConfig(**chosen))
    smaller = PlanConfig(edges=(LONGEST,), max_rows=rows, max_tokens=tokens, max_block_tokens=blocks)
    above = 0
    for i in range(plan.num_batches):
        size = len(plan.batch(i))
        too_many_blocks = int(plan.block_tokens[i]) > blocks and size > 1  # one row cannot be cut
        above += size > rows or size * int(plan.padded_length[i]) > tokens or too_many_blocks
    assert over_budget(plan, smaller) == above


def rounded_by_hand(length, edges, config):
    rounded = -(-length // config.pad_multiple) * config.pad_multiple
    return min(edge for edge in edges if edge >= rounded) if config.static_shapes else rounded


@settings(deadline=None)
@given(datasets(), knobs(oversize="drop"), st.sampled_from([8, LONGEST]), st.sampled_from([0, 6]))
def test_rounding_as_counted_sample_by_sample(samples, chosen, last_edge, min_length):
    config = PlanConfig(**chosen, min_length=min_length)
    if not isinstance(config.edges, str):
        config = replace(config, edges=(4, last_edge))
    assume(((samples.lengths <= config.longest) & (samples.lengths >= min_length)).any())
    plan = make_plan(samples, config)
    kept = [int(samples.lengths[i]) for i in plan.sample_ids]
    rounded = sum(rounded_by_hand(length, plan.edges, config) for length in kept)
    assert rounded_tokens(plan, samples, config) == rounded
    facts = judge(plan, samples, config, world=1, accumulate=1)
    assert facts.rounding_share == pytest.approx((rounded - sum(kept)) / facts.summary.padded_tokens)


def test_nothing_is_rounded_of_what_a_sample_loses_by_being_cut():
    samples = make_samples([3, 30, 16, 90, 9])
    config = PlanConfig(edges=(16,), max_tokens=32, pad_multiple=4, oversize="truncate")
    assert rounded_tokens(make_plan(samples, config), samples, config) == 4 + 16 + 16 + 16 + 12
