from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.plan import Credit, DiversityFirst, Shuffle
from dflash_lightning.plan.judge.runs import RUN_BINS, judge_runs, run_lengths
from tests.plan.judge.cases import DOCUMENTED, array, documented_order

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("labels", "runs"),
    [([2], [1]), ([1, 1, 0, 1], [2, 1, 1]), ([0, 0, 0], [3]), ([0, 1, 0, 1], [1, 1, 1, 1])],
)
def test_a_run_ends_where_the_bucket_changes(labels, runs):
    assert run_lengths(array(labels)).tolist() == runs


@given(LABELS)
def test_runs_and_neighbours_as_counted_by_hand(labels):
    runs = [(bucket, len(list(run))) for bucket, run in groupby(labels)]
    facts = judge_runs(array(labels), 4)
    assert run_lengths(array(labels)).tolist() == [length for _, length in runs]
    assert facts.longest_run == max(length for _, length in runs)
    assert (facts.final_bucket, facts.final_run) == runs[-1]
    assert facts.equal_neighbours == sum(a == b for a, b in zip(labels, labels[1:], strict=False))
    assert labels.count(facts.largest_bucket) == max(labels.count(bucket) for bucket in range(4))


@given(LABELS)
def test_no_order_has_fewer_equal_neighbours_than_the_forced_ones(labels):
    facts = judge_runs(array(labels), 4)
    assert facts.equal_neighbours >= facts.forced_neighbours
    # Spread as evenly as can be, the largest bucket between all the others, exactly the forced ones remain.
    large = [bucket for bucket in labels if bucket == facts.largest_bucket]
    others = sorted(bucket for bucket in labels if bucket != facts.largest_bucket)
    if len(large) > len(others):
        spread = [bucket for pair in zip(large, others, strict=False) for bucket in pair]
        spread += large[len(others) :]
        assert judge_runs(array(spread), 4).equal_neighbours == facts.forced_neighbours


@given(LABELS)
def test_the_largest_buckets_batches_are_counted_by_the_run_they_sit_in(labels):
    facts = judge_runs(array(labels), 4)
    runs = [len(list(run)) for bucket, run in groupby(labels) if bucket == facts.largest_bucket]
    assert facts.largest_in_runs == tuple(
        sum(run for run in runs if low <= run <= (high or len(labels))) for low, high in RUN_BINS
    )
    assert sum(facts.largest_in_runs) == labels.count(facts.largest_bucket)


@pytest.mark.parametrize(
    ("labels", "share"),
    [
        ([0, 1, 0, 1], 1.0),
        ([0, 1, 0, 1, 0], 1.0),
        ([0, 0, 0, 0], 0.0),
        ([0, 1, 2, 0, 1], 0.0),
        ([0, 1, 0, 1, 1], 0.5),
        ([0, 1, 0], 0.0),  # too short to alternate
    ],
)
def test_alternation_is_two_buckets_in_turn(labels, share):
    assert judge_runs(array(labels), 3).alternating_share == share


@given(LABELS)
def test_alternation_as_counted_by_hand(labels):
    stretches = [tuple(labels[i : i + 4]) for i in range(len(labels) - 3)]
    found = sum(a == c != b == d for a, b, c, d in stretches)
    expected = found / len(stretches) if stretches else 0.0
    assert judge_runs(array(labels), 4).alternating_share == pytest.approx(expected)


# The documented mix, spec/batching.md section 2.1: longest run, final run, equal neighbours, and the share of
# the largest bucket's batches in runs of 1, 2, 3, 4, 5-9 and 10 or more. Means of five seeds.
PUBLISHED = [
    (Shuffle(), (16, 4), (2, 4), 0.320, (0.232, 0.234, 0.185, 0.132, 0.200, 0.017)),
    (DiversityFirst(), (11_024, 120), (11_024, 120), 0.190, (0.641, 0, 0, 0, 0, 0.359)),
    (Credit(), (2, 0), (1.5, 0.5), 0.046, (0.823, 0.177, 0, 0, 0, 0)),
]


@pytest.mark.parametrize(("order", "longest", "final", "equal", "in_runs"), PUBLISHED)
def test_the_published_runs(order, longest, final, equal, in_runs):
    facts = judge_runs(documented_order(order), 6)
    assert facts.forced_neighbours == 2 * 30322 - 57975 - 1 == 2668
    assert facts.longest_run == pytest.approx(longest[0], abs=longest[1])
    assert facts.final_run == pytest.approx(final[0], abs=final[1])
    assert facts.equal_neighbours / sum(DOCUMENTED) == pytest.approx(equal, abs=0.005)
    assert np.array(facts.largest_in_runs) / 30322 == pytest.approx(in_runs, abs=0.01)
