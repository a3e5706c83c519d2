from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    PlanConfig,
    RandomOrder,
    Shuffle,
    describe,
    final_run_warning,
    summarize,
)
from tests.plan.cases import datasets, knobs, make_plan, make_samples


@settings(deadline=None)
@given(datasets(), knobs())
def test_the_summary_counts_what_the_plan_holds(samples, chosen):
    config = PlanConfig(**chosen)
    plan = make_plan(samples, config)
    facts = summarize(plan, samples)
    labels = plan.bucket.tolist()
    runs = [[labels[0]]]
    for label in labels[1:]:
        if label == runs[-1][-1]:
            runs[-1].append(label)
        else:
            runs.append([label])
    padded = [len(plan.batch(i)) * int(plan.padded_length[i]) for i in range(plan.num_batches)]
    assert facts.samples == len(samples)
    assert facts.tokens == samples.lengths.sum()
    assert facts.padded_tokens == sum(padded)
    assert facts.max_batch_tokens == max(padded)
    assert facts.padding_efficiency == facts.tokens / sum(padded) <= 1
    assert facts.longest_run == max(len(run) for run in runs)
    assert facts.final_run == len(runs[-1])
    assert facts.final_bucket == labels[-1]
    assert facts.equal_neighbours == sum(a == b for a, b in zip(labels, labels[1:], strict=False))
    assert facts.equal_neighbours >= facts.forced_neighbours
    assert [bucket.batches for bucket in facts.buckets] == [labels.count(b) for b in range(len(plan.edges))]
    assert sum(bucket.samples for bucket in facts.buckets) == len(samples)


SAMPLES = make_samples([8] * 400 + [64] * 600)
CONFIG = PlanConfig(edges=(8, 16, 64), max_rows=1, packing=RandomOrder())


def test_a_long_final_run_is_told_with_its_exact_length():
    config = replace(CONFIG, order=DiversityFirst())
    facts = summarize(make_plan(SAMPLES, config), SAMPLES)
    assert facts.final_run > 10
    assert final_run_warning(facts) == (
        f"the last {facts.final_run} of 1,000 batches ({facts.final_run / 10:.1f}% of the epoch) all come "
        "from bucket 2 (17 to 64 tokens): every epoch ends on one length only; "
        "plan.order Credit spreads every bucket evenly"
    )


@pytest.mark.parametrize(
    ("samples", "config"),
    [
        (SAMPLES, replace(CONFIG, order=Credit())),
        (SAMPLES, replace(CONFIG, order=Shuffle())),
        (make_samples([8] * 400), CONFIG),  # one bucket: no order can mix it
        (
            make_samples([8] * 90 + [64] * 10),
            replace(CONFIG, order=Credit()),
        ),  # runs of nine cannot be avoided
    ],
)
def test_an_order_that_mixes_as_well_as_any_gets_no_warning(samples, config):
    assert final_run_warning(summarize(make_plan(samples, config), samples)) is None


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"oversize": "truncate"}, ", 0 samples dropped and 1 cut as oversize"),
        ({"oversize": "drop"}, ", 1 samples dropped and 0 cut as oversize"),
        (
            {"oversize": "drop", "min_length": 8},
            ", 1 samples dropped and 0 cut as oversize, 2 samples left out as too short",
        ),
        ({"edges": (70,), "min_length": 8}, ", 2 samples left out as too short"),
        ({"edges": (70,)}, ""),
    ],
)
def test_what_is_left_out_or_cut_is_told(chosen, told):
    samples = make_samples([5, 7, 8, 60, 64, 70], np.ones(6))
    config = PlanConfig(**({"edges": (8, 16, 64)} | chosen))
    first_line = describe(summarize(make_plan(samples, config), samples)).splitlines()[0]
    assert first_line.partition(" tokens")[2] == told


def test_a_plan_is_described_in_a_table():
    samples = make_samples([5, 8, 60, 64, 70], np.ones(5))
    config = PlanConfig(edges=(8, 16, 64), max_tokens=128, oversize="truncate", order=Credit())
    plan = make_plan(samples, config)
    lines = describe(summarize(plan, samples)).splitlines()
    assert lines[0] == (
        f"plan {plan.digest}, epoch 0: 5 samples, 201 tokens, 0 samples dropped and 1 cut as oversize"
    )
    assert lines[1].split() == ["bucket", "tokens", "samples", "batches", "share", "rows", "fill"]
    assert lines[2].split() == ["0", "1", "-", "8", "2", "1", "33.3%", "2.0", "81.2%"]
    assert lines[3].split() == ["1", "9", "-", "16", "0", "0", "0.0%", "0.0", "0.0%"]
    assert lines[4].split() == ["2", "17", "-", "64", "3", "2", "66.7%", "1.5", "100.0%"]
    assert lines[5] == "3 batches, padding efficiency 98.5%; largest batch 128 tokens, 8 block positions"
    assert lines[6].startswith("order: longest run of one bucket ")
