from dataclasses import replace

import pytest

from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    MixedBuckets,
    PlanConfig,
    RandomOrder,
    Shuffle,
    WindowFirst,
    final_run_warning,
    summarize,
)
from dflash_lightning.plan.judge.judgement import judge
from dflash_lightning.plan.judge.warnings import plan_warnings
from tests.plan.cases import make_plan, make_samples

SINGLE = PlanConfig(edges=(8, 16, 64), max_rows=1, packing=RandomOrder())
"""One sample makes one batch."""


def warned(samples, config, *, world=1, accumulate=1):
    return plan_warnings(
        judge(make_plan(samples, config), samples, config, world=world, accumulate=accumulate)
    )


def test_an_epoch_that_ends_on_one_bucket():
    samples = make_samples([8] * 200 + [16] * 200 + [64] * 400)
    config = replace(SINGLE, order=DiversityFirst())
    summary = summarize(make_plan(samples, config), samples)
    assert warned(samples, config) == [final_run_warning(summary)]


@pytest.mark.parametrize("packing", [MixedBuckets(), WindowFirst(window_batches=4)])
def test_batches_that_mix_lengths_are_not_counted_by_bucket(packing):
    samples = make_samples([8] * 300 + [64] * 700)
    assert warned(samples, replace(SINGLE, packing=packing)) == []


def test_a_bucket_that_makes_more_than_half_of_the_batches():
    samples = make_samples([8] * 300 + [64] * 700)
    assert warned(samples, SINGLE) == [
        "bucket 2 (17 to 64 tokens) makes 700 of 1,000 batches (70.0%): in any order at least 399 of them "
        "follow one of the same bucket; finer plan.edges within it spread its lengths over several buckets"
    ]


@pytest.mark.parametrize(
    "lengths",
    [
        [64] * 100,  # one bucket: there is nothing to mix
        [8] * 50 + [64] * 50,
        [8] * 50 + [64] * 51,  # more than half, and yet no two in a row
    ],
)
def test_a_large_bucket_that_forces_nothing_is_no_news(lengths):
    assert warned(make_samples(lengths), SINGLE) == []


def test_buckets_that_most_windows_do_not_see():
    samples = make_samples([8] * 40 + [16] * 50 + [64] * 40 + [60] * 50)
    config = replace(SINGLE, edges=(8, 16, 60, 64), order=Credit())
    assert warned(samples, config, world=2, accumulate=2) == [
        "fewer batches than the epoch has windows (45 of 4 batches): bucket 0 (1 to 8 tokens) has 40, "
        "bucket 3 (61 to 64 tokens) has 40; the windows left over never see such a bucket; merge it with a "
        "neighbour (plan.super_buckets, or other plan.edges), or accumulate until a window has 5 batches"
    ]
    assert warned(samples, config, world=5, accumulate=1) == []


def test_windows_of_one_batch_cannot_mix_and_are_not_blamed_for_it():
    samples = make_samples([8] * 40 + [16] * 50 + [64] * 40)
    assert warned(samples, replace(SINGLE, order=Shuffle())) == []


def test_an_empty_bucket_is_not_a_rare_one():
    samples = make_samples([8] * 40 + [64] * 40)
    assert warned(samples, SINGLE, world=2, accumulate=2) == []


def test_static_shapes_that_waste_more_than_a_twentieth():
    samples = make_samples([40] * 30 + [64] * 30)
    config = PlanConfig(edges=(64,), static_shapes=True)
    assert warned(samples, config) == [
        "padding every sample to its bucket's edge (plan.static_shapes) makes 18.8% of all padded tokens; "
        "more buckets waste less, and plan.edges optimal places them best"
    ]
    assert warned(samples, replace(config, edges="optimal")) == []


def test_rounding_that_wastes_more_than_a_twentieth():
    samples = make_samples([9] * 30 + [31] * 30)
    config = PlanConfig(edges=(64,), pad_multiple=16)
    # 30 x 16 + 30 x 32 rounded tokens, of which 30 x 7 + 30 x 1 are rounding, in batches of 64 rows.
    padded = summarize(make_plan(samples, config), samples).padded_tokens
    assert warned(samples, config) == [
        f"rounding lengths up to a multiple of 16 (plan.pad_multiple) makes {240 / padded:.1%} of all padded "
        "tokens; a smaller multiple wastes less"
    ]
    assert warned(samples, replace(config, pad_multiple=2)) == []


def test_several_faults_are_told_one_by_one():
    samples = make_samples([8] * 300 + [60] * 20 + [64] * 700)
    config = replace(SINGLE, edges=(8, 60, 64), order=DiversityFirst(), pad_multiple=7)
    kinds = ("the last ", "bucket 2 ", "fewer batches than ", "rounding lengths up ")
    told = warned(samples, config, world=4, accumulate=4)
    assert [text.startswith(kind) for text, kind in zip(told, kinds, strict=True)] == [True] * 4
