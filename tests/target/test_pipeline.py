"""In which order batches are computed and delivered. Memory: test_pipeline_memory.py; the end: _end.py."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.target.dispatch import PrefetchPolicy
from tests.target.pipelines import (
    Gated,
    Jittery,
    Toy,
    everything,
    pipeline_of,
    policies,
    square,
    until,
    windows_of_batches,
)
from tests.target.pipelines import no_thread_is_left as no_thread_is_left

# --- order


@settings(deadline=None, max_examples=40)
@given(windows_of_batches, policies, st.integers(1, 4), st.integers(0, 99))
def test_in_order_is_the_plan_order(windows, policy, workers, seed):
    batches = [Toy(i, 1 + i % 5) for i in range(sum(windows))]
    pipeline = pipeline_of([Jittery(seed + i) for i in range(workers)], delivery="in_order", **policy)
    assert everything(pipeline, batches, windows) == [(batch, square(batch)) for batch in batches]


@settings(deadline=None, max_examples=40)
@given(windows_of_batches, policies, st.integers(1, 4), st.integers(0, 99))
def test_ready_first_permutes_inside_windows_only(windows, policy, workers, seed):
    batches = [Toy(i, 1 + i % 5) for i in range(sum(windows))]
    pipeline = pipeline_of([Jittery(seed + i) for i in range(workers)], delivery="ready_first", **policy)
    pairs = everything(pipeline, batches, windows)
    assert all(states == square(batch) for batch, states in pairs)
    numbers = iter([batch.number for batch, _ in pairs])
    planned = iter(range(len(batches)))
    for size in windows:
        assert {next(numbers) for _ in range(size)} == {next(planned) for _ in range(size)}


def test_ready_first_does_not_wait_for_a_slow_device():
    slow, fast = Gated(), square
    pipeline = pipeline_of([slow, fast], delivery="ready_first")
    with pipeline.run([Toy(i) for i in range(4)], [4]) as pairs:
        until(lambda: pipeline.counters().devices[1].ready_batches == 2)
        assert [next(pairs)[0].number for _ in range(2)] == [1, 3]
        slow.gate.release(2)
        assert [batch.number for batch, _ in pairs] == [0, 2]


def test_ready_first_drains_a_window_before_the_next():
    slow, fast = Gated(), square
    pipeline = pipeline_of([slow, fast], delivery="ready_first")
    with pipeline.run([Toy(i) for i in range(4)], [1, 3]) as pairs:
        until(lambda: pipeline.counters().devices[1].ready_batches == 2)
        threading.Timer(0.05, slow.gate.release, [2]).start()
        assert next(pairs)[0].number == 0
        assert sorted(batch.number for batch, _ in pairs) == [1, 2, 3]


# --- dispatch


def test_the_shared_counter_deals_evenly_whatever_batches_cost():
    pipeline = pipeline_of([Jittery(i, 0.001 * (i + 1)) for i in range(3)], depth=3)
    for batches in (50, 51):  # it goes on from one pass to the next
        everything(pipeline, [Toy(i) for i in range(batches)], [batches])
        counts = [device.total for device in pipeline.counters().devices]
        assert max(counts) - min(counts) <= 1
    assert sum(counts) == 101


@pytest.mark.parametrize("delivery", ["in_order", "ready_first"])
def test_turns_keep_counts_and_queues_together_at_every_moment(delivery):
    pipeline = pipeline_of([Jittery(i, 0.002 * (i + 1)) for i in range(3)], depth=4, delivery=delivery)
    seen = []
    with pipeline.run([Toy(i, 1 + i % 5) for i in range(90)], [6] * 15) as pairs:
        for _ in pairs:
            seen.append(pipeline.counters().devices)
    assert len(seen) == 90
    for devices in seen:
        counts = [device.total for device in devices]
        assert max(counts) - min(counts) <= 1
        depths = [device.queued_batches for device in devices]
        assert max(depths) - min(depths) <= 4


def test_least_loaded_passes_a_stuck_device_over():
    stuck = Gated()
    pipeline = pipeline_of([stuck, square], dispatch="least_loaded", delivery="ready_first", depth=1)
    with pipeline.run([Toy(i) for i in range(9)], [9]) as pairs:
        assert [next(pairs)[0].number for _ in range(8)] == list(range(1, 9))
        stuck.gate.release()
        assert next(pairs)[0].number == 0
    assert [device.total for device in pipeline.counters().devices] == [1, 8]


@pytest.mark.parametrize("delivery", ["in_order", "ready_first"])
def test_least_loaded_gives_a_slow_device_less_however_deep(delivery):
    """Filled as deep as the others, its queue would in the end be given as many batches as theirs."""

    def slow(batch):
        """Ready when the other device has done all that it may."""
        until(lambda: _full(pipeline.counters()))
        return square(batch)

    def _full(counters):
        queued = sum(device.queued_batches for device in counters.devices)
        return queued == 2 * 6 or sum(counters.dispatched.values()) == 40

    pipeline = pipeline_of([slow, square], dispatch="least_loaded", delivery=delivery, depth=6)
    assert len(everything(pipeline, [Toy(i) for i in range(40)], [40])) == 40
    stuck, fast = pipeline.counters().devices
    assert fast.total > 2 * stuck.total


def test_a_new_policy_holds_from_the_next_decision_on():
    stuck = Gated()
    pipeline = pipeline_of([stuck, square], depth=1)
    with pipeline.run([Toy(i) for i in range(6)], [6]) as pairs:
        until(lambda: pipeline.counters().devices[1].ready_batches == 1)
        pipeline.set_policy(PrefetchPolicy(dispatch="least_loaded", delivery="ready_first", depth=1))
        assert next(pairs)[0].number == 1
        assert next(pairs)[0].number == 2
        pipeline.set_depth(3)
        stuck.gate.release(6)
        assert sorted(batch.number for batch, _ in pairs) == [0, 3, 4, 5]
    assert pipeline.policy.depth == 3


def test_depth_bounds_what_is_ahead_and_can_change_on_the_way():
    pipeline = pipeline_of([square], depth=1)
    with pipeline.run([Toy(i) for i in range(9)], [9]) as pairs:
        until(lambda: pipeline.counters().devices[0].ready_batches == 1)
        time.sleep(0.02)
        assert pipeline.counters().devices[0].queued_batches == 1
        pipeline.set_depth(4)
        until(lambda: pipeline.counters().devices[0].ready_batches == 4)
        pipeline.set_depth(2)
        assert [next(pairs)[0].number for _ in range(2)] == [0, 1]
        assert pipeline.counters().devices[0].queued_batches == 2
        assert len(list(pairs)) == 7
