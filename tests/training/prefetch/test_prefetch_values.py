"""Names and values of prefetch/*, by hand."""

import math
from dataclasses import replace

import pytest

from dflash_lightning.training.prefetch.prefetch_values import GIB, imbalance, prefetch_values
from tests.target.balance.intervals import interval


def two_ranks():
    """Three devices each; rank 1 waits, and its last device has dealt out more."""
    first = interval(wait=0.5, busy=(5.0,) * 3, queued=100.0, in_flight=1.0 * GIB, delivered=90.0)
    second = interval(wait=2.0, busy=(5.0,) * 3, queued=200.0, in_flight=2.0 * GIB, delivered=90.0)
    *same, last = second.devices
    last = replace(last, dispatched=90.0, depth=8.0, queued_tokens=500.0)
    return [first, replace(second, devices=(*same, last), buckets=(60.0, 90.0))]  # 150 dealt


def test_every_value_of_two_ranks_with_three_devices():
    values = prefetch_values(two_ranks(), depth=4)
    dealt = 90 + 150
    assert values == pytest.approx(
        {
            "prefetch/depth": 4,
            **{f"prefetch/queue_depth_{i}": 2 for i in range(5)},
            "prefetch/queue_depth_5": 8,
            "prefetch/queue_depth": 18,
            "prefetch/imbalance": 500 / (1200 / 6),
            "prefetch/wait_s": 2.5,
            "prefetch/wait_pct": 12.5,
            "prefetch/tokens_in_flight": 1200,
            "prefetch/gib_in_flight": 3,
            "prefetch/peak_gib": 2,
            **{f"prefetch/dispatched_device_{i}_pct": 100 * 30 / dealt for i in range(5)},
            "prefetch/dispatched_device_5_pct": 100 * 90 / dealt,
            "prefetch/dispatched_bucket_0_pct": 100 * (22.5 + 60) / dealt,
            "prefetch/dispatched_bucket_1_pct": 100 * (67.5 + 90) / dealt,
            "prefetch/wait_imbalance": 2 / 1.25,
            "prefetch/imbalance_rank_0": 1,
            "prefetch/imbalance_rank_1": 500 / (900 / 3),
            "prefetch/dispatched_bucket_0_pct_rank_0": 25,
            "prefetch/dispatched_bucket_1_pct_rank_0": 75,
            "prefetch/dispatched_bucket_0_pct_rank_1": 40,
            "prefetch/dispatched_bucket_1_pct_rank_1": 60,
            "prefetch/wait_s_rank_0": 0.5,
            "prefetch/wait_s_rank_1": 2,
            "prefetch/wait_pct_rank_0": 5,
            "prefetch/wait_pct_rank_1": 20,
            "prefetch/tokens_in_flight_rank_0": 300,
            "prefetch/tokens_in_flight_rank_1": 900,
        }
    )


def test_one_rank_has_no_values_by_rank():
    names = [name for name in prefetch_values([interval()], depth=1) if "rank" in name or "wait_im" in name]
    assert names == []


def test_one_queue_a_rank_has_no_imbalance_within_it():
    values = prefetch_values([interval(wait=3.0), interval(wait=1.0)], depth=1)
    assert not [name for name in values if name.startswith("prefetch/imbalance_rank")]
    assert values["prefetch/wait_imbalance"] == 1.5


@pytest.mark.parametrize(
    ("tokens", "expected"), [([5.0, 5.0, 5.0], 1), ([9.0, 0.0, 0.0], 3), ([0.0, 0.0], math.nan)]
)
def test_imbalance_is_largest_over_mean(tokens, expected):
    assert imbalance(tokens) == pytest.approx(expected, nan_ok=True)
