"""Counters of several moments become the numbers of the time between them, and a row and back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.target.balance.interval import Interval, IntervalSums
from dflash_lightning.target.pipeline_counters import DeviceCounters, PipelineCounters
from tests.target.balance.intervals import interval


def device(queued, tokens, pending, dispatched, busy, idle):
    return DeviceCounters(
        name="d",
        queued_batches=queued,
        queued_tokens=tokens,
        ready_batches=0,
        pending_tokens=pending,
        dispatched=dispatched,
        busy_seconds=busy,
        idle_seconds=idle,
    )


def counters(*devices, delivered=0, source=0.0, feed=0.0, wait=0.0, in_flight=0, peak=0):
    return PipelineCounters(
        devices=devices,
        delivered=delivered,
        source_seconds=source,
        feed_wait_seconds=feed,
        consumer_wait_seconds=wait,
        bytes_in_flight=in_flight,
        peak_bytes=peak,
    )


START = counters(device(1, 10, 10, {0: 7}, 1.0, 2.0), delivered=6, source=1.0, feed=1.0, wait=1.0)
FIRST = counters(
    device(2, 30, 20, {0: 9, 1: 1}, 3.0, 2.5), delivered=8, source=1.5, feed=3.0, wait=1.25,
    in_flight=10, peak=40,
)  # fmt: skip
SECOND = counters(
    device(4, 50, 0, {0: 9, 1: 4}, 6.0, 2.5), delivered=11, source=1.5, feed=4.0, wait=2.0,
    in_flight=20, peak=50,
)  # fmt: skip


def test_sums_are_differences_and_depths_are_means_over_steps():
    sums = IntervalSums(num_buckets=3)
    sums.go_on(START)
    sums.step(FIRST, 4.0)
    sums.step(SECOND, 6.0)
    found = sums.take()
    assert (found.seconds, found.wait, found.feed_wait, found.source) == (10.0, 1.0, 3.0, 0.5)
    assert (found.delivered, found.bytes_in_flight, found.peak_bytes) == (5, 15, 50)
    assert found.buckets == (2, 4, 0)
    (only,) = found.devices
    assert (only.depth, only.queued_tokens, only.pending_tokens) == (3, 40, 10)
    assert (only.busy, only.idle, only.dispatched) == (5.0, 0.5, 6)


def test_the_next_interval_begins_where_the_last_one_ended():
    sums = IntervalSums(num_buckets=2)
    sums.go_on(START)
    sums.step(FIRST, 4.0)
    sums.take()
    sums.step(SECOND, 6.0)
    found = sums.take()
    assert (found.seconds, found.wait, found.delivered, found.buckets) == (6.0, 0.75, 3, (0, 3))
    assert found.devices[0].depth == 4


def test_what_passes_during_a_pause_counts_nowhere():
    sums = IntervalSums(num_buckets=2)
    sums.go_on(START)
    sums.pause(FIRST, 4.0)
    validated = replace(SECOND, consumer_wait_seconds=100.0)
    sums.go_on(validated)
    sums.step(validated, 1.0)
    found = sums.take()
    assert (found.seconds, found.wait, found.delivered) == (5.0, 0.25, 2)


@given(st.integers(1, 5), st.lists(st.floats(0, 1e9), min_size=1, max_size=4))
def test_a_row_says_everything(buckets, busy):
    before = replace(interval(busy=busy, wait=3.0), buckets=tuple(float(i) for i in range(buckets)))
    row = before.row()
    assert Interval.of_row(row, len(busy)) == before
    assert len(row) == len(interval(busy=busy).row()) - 2 + buckets
    assert Interval.of_row(tuple(row), len(busy)).row() == pytest.approx(row)
