from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.plan import Credit, DiversityFirst, Shuffle
from dflash_lightning.plan.judge.mix import judge_mix, window_counts
from tests.plan.judge.cases import array, documented_order

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
WINDOW = st.integers(1, 9)


def windows_by_hand(labels, size):
    return [labels[start : start + size] for start in range(0, len(labels), size)]


def shares(labels):
    """Bucket -> exact share."""
    return {bucket: Fraction(labels.count(bucket), len(labels)) for bucket in range(4)}


def distance(part, whole):
    """Total variation of two mixes."""
    return sum(abs(part[bucket] - whole[bucket]) for bucket in range(4)) / 2


@given(LABELS, WINDOW)
def test_every_batch_is_counted_in_its_window(labels, size):
    counts = window_counts(array(labels), 4, size)
    assert counts.tolist() == [
        [Counter(window)[bucket] for bucket in range(4)] for window in windows_by_hand(labels, size)
    ]


@given(LABELS, WINDOW)
def test_distances_as_computed_with_fractions(labels, size):
    full = [window for window in windows_by_hand(labels, size) if len(window) == size] or [labels]
    distances = [distance(shares(window), shares(labels)) for window in full]
    facts = judge_mix(array(labels), 4, size)
    assert facts.tv_mean == pytest.approx(float(sum(distances) / len(distances)))
    assert facts.tv_max == pytest.approx(float(max(distances)))
    assert facts.single_bucket_share == pytest.approx(sum(len(set(w)) == 1 for w in full) / len(full))


@settings(deadline=None)
@given(LABELS, st.integers(1, 5))
def test_the_floor_is_the_best_of_all_windows_that_can_be(labels, size):
    size = min(size, len(labels))
    thinkable = [counts for counts in product(range(size + 1), repeat=4) if sum(counts) == size]
    mixes = ({bucket: Fraction(count, size) for bucket, count in enumerate(counts)} for counts in thinkable)
    floor = min(distance(mix, shares(labels)) for mix in mixes)
    facts = judge_mix(array(labels), 4, size)
    assert facts.tv_floor == pytest.approx(float(floor))
    assert facts.tv_mean >= facts.tv_floor - 1e-12


@given(LABELS)
def test_an_epoch_shorter_than_a_window_is_its_own_mix(labels):
    facts = judge_mix(array(labels), 4, len(labels) + 3)
    assert (facts.tv_mean, facts.tv_max, facts.tv_floor) == (0, 0, 0)


@given(LABELS)
def test_tenths_drift_and_lag_as_counted_by_hand(labels):
    facts = judge_mix(array(labels), 4, 4)
    whole = shares(labels)
    tenths = [part.tolist() for part in np.array_split(array(labels), 10)]
    expected = [[part.count(bucket) / max(1, len(part)) for bucket in range(4)] for part in tenths]
    assert np.array(facts.tenths) == pytest.approx(np.array(expected))
    drifts = [abs(shares(part)[b] - whole[b]) for part in tenths if part for b in range(4)]
    assert facts.drift == pytest.approx(float(max(drifts)))
    lags = [
        abs(labels[:served].count(b) - served * whole[b])
        for served in range(1, len(labels) + 1)
        for b in range(4)
    ]
    assert facts.lag == pytest.approx(float(max(lags)))


@pytest.mark.parametrize(
    ("labels", "size", "estimate"),
    [([0, 1, 2, 3], 1, 1.0), ([0, 1, 0, 1], 4, 1 / 8), ([0, 1, 3] * 4, 3, 1 / 9), ([2] * 9, 3, 1.0)],
)
def test_the_estimate_for_equal_buckets_counts_those_that_hold_batches(labels, size, estimate):
    assert judge_mix(array(labels), 4, size).single_bucket_estimate == pytest.approx(estimate)


# The documented mix, spec/batching.md section 2.3: order, batches per window, mean and worst distance, floor,
# share of windows with one bucket. The worst distance of a random order is its seed's own.
PUBLISHED = [
    (Shuffle(), 4, 0.411, 0.925, 0.258, 0.074),
    (Shuffle(), 8, 0.280, 0.840, 0.099, 0.0055),
    (Shuffle(), 32, 0.139, 0.371, 0.026, 0.0),
    (DiversityFirst(), 4, 0.398, 0.854, 0.258, 0.190),
    (DiversityFirst(), 8, 0.306, 0.689, 0.099, 0.190),
    (DiversityFirst(), 32, 0.226, 0.477, 0.026, 0.190),
    (Credit(), 4, 0.308, 0.429, 0.258, 0.0),
    (Credit(), 8, 0.151, 0.331, 0.099, 0.0),
    (Credit(), 32, 0.041, 0.089, 0.026, 0.0),
]


@pytest.mark.parametrize(("order", "size", "mean", "worst", "floor", "single"), PUBLISHED)
def test_the_published_distances(order, size, mean, worst, floor, single):
    facts = judge_mix(documented_order(order), 6, size)
    assert facts.tv_mean == pytest.approx(mean, abs=0.003)
    assert facts.tv_max == pytest.approx(worst, abs=0.13)
    assert facts.tv_floor == pytest.approx(floor, abs=0.0006)
    assert facts.single_bucket_share == pytest.approx(single, abs=0.005)


@pytest.mark.parametrize(
    ("order", "drift", "lag"),
    [(Credit(), 0.001, 2.0), (Shuffle(), 0.03, 300.0), (DiversityFirst(), 0.48, 5_400.0)],
)
def test_only_credit_keeps_the_mix_of_every_tenth(order, drift, lag):
    """spec/batching.md 2.1: the largest bucket of diversity-first falls behind by 5,258 batches."""
    facts = judge_mix(documented_order(order), 6, 4)
    assert facts.drift < drift
    assert facts.lag < lag
    if isinstance(order, DiversityFirst):
        largest = [tenth[5] for tenth in facts.tenths]
        assert largest == pytest.approx(
            [0.374, 0.38, 0.393, 0.399, 0.408, 0.421, 0.442, 0.474, 0.94, 1], abs=0.02
        )
