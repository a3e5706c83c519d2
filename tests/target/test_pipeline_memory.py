"""What may exist at a time, and what the counters say."""

import logging
import threading
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.target.pipelines import (
    PATIENCE,
    Gated,
    Toy,
    everything,
    pipeline_of,
    policies,
    sizes,
    square,
    until,
    within_patience,
)
from tests.target.pipelines import no_thread_is_left as no_thread_is_left

# --- memory


class Ledger:
    """Bytes of states that exist, counted from outside the pipeline."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now = self.peak = 0

    def add(self, size):
        with self.lock:
            self.now += size
            self.peak = max(self.peak, self.now)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(sizes, min_size=1, max_size=20),
    policies,
    st.sampled_from(["in_order", "ready_first"]),
    st.integers(1, 4),
    st.data(),
)
def test_bytes_in_flight_stay_within_the_budget(shapes, policy, delivery, workers, data):
    budget = data.draw(st.integers(1, 25))
    cut = data.draw(st.integers(1, len(shapes)))
    windows = [cut, len(shapes) - cut]
    ledger = Ledger()

    def compute(batch):
        ledger.add(batch.size)
        return batch.size

    policy |= {"memory_bytes": budget, "delivery": delivery}
    pipeline = pipeline_of([compute] * workers, **policy)
    batches = [Toy(i, size) for i, size in enumerate(shapes)]

    def train():
        with pipeline.run(batches, windows) as pairs:
            for _, size in pairs:
                ledger.add(-size)

    within_patience(train)
    largest = max(shapes)  # what is larger than the budget runs alone
    assert ledger.peak <= max(budget, largest)
    assert pipeline.counters().peak_bytes <= max(budget, largest)
    assert pipeline.counters().bytes_in_flight == 0


def test_the_batch_in_training_counts():
    pipeline = pipeline_of([square], depth=4, memory_bytes=10)
    with pipeline.run([Toy(i, 5) for i in range(4)], [4]) as pairs:
        next(pairs)
        until(lambda: pipeline.counters().devices[0].ready_batches == 1)
        time.sleep(0.02)
        counters = pipeline.counters()
        assert counters.bytes_in_flight == 10
        assert counters.devices[0].queued_batches == 1


# --- what is told


def test_counters_say_who_did_what():
    pipeline = pipeline_of([square, square], names=["a", "b"], depth=2)
    assert pipeline.counters().delivered == 0
    with pipeline.run([Toy(i, 10) for i in range(7)], [7]) as pairs:
        until(lambda: sum(device.ready_batches for device in pipeline.counters().devices) == 4)
        a, b = pipeline.counters().devices
        assert (a.name, a.queued_batches, a.queued_tokens, a.pending_tokens) == ("a", 2, 20, 0)
        assert (a.dispatched, b.dispatched) == ({0: 1, 2: 1}, {0: 1, 1: 1})
        list(pairs)
    counters = pipeline.counters()
    assert counters.dispatched == Counter({0: 3, 1: 2, 2: 2})
    assert [device.total for device in counters.devices] == [4, 3]
    assert counters.delivered == 7
    assert counters.peak_bytes in (40, 50)
    assert all(device.queued_batches == device.queued_tokens == 0 for device in counters.devices)


def test_waits_are_told_apart():
    target = Gated()
    pipeline = pipeline_of([target], depth=1)

    def source():
        for i in range(3):
            time.sleep(0.02)
            yield Toy(i)

    with pipeline.run(source(), [3]) as pairs:
        threading.Timer(0.1, target.gate.release, [3]).start()
        list(pairs)
    counters = pipeline.counters()
    assert counters.consumer_wait_seconds >= 0.05
    assert counters.source_seconds >= 0.06
    assert counters.devices[0].busy_seconds > 0
    assert counters.devices[0].idle_seconds > 0


@pytest.mark.parametrize("kind", ["target", "source"])
def test_whoever_is_slow_is_named_once(kind, caplog):
    gate = threading.Event()

    def wait(batch):
        assert gate.wait(PATIENCE)

    def source():
        if kind == "source":
            wait(None)
        yield Toy(0, 7)

    target = wait if kind == "target" else square
    pipeline = pipeline_of([target], names=["cuda:3"], slow_seconds=0.01)
    threading.Timer(0.2, gate.set).start()
    with caplog.at_level(logging.WARNING):
        everything(pipeline, source(), [1])
    (record,) = caplog.records
    expected = {
        "target": "for cuda:3: batch 0 of this pass (bucket 0, 7 padded tokens) has been computed for",
        "source": "for the data loader: batch 0 of this pass has not come yet",
    }
    assert expected[kind] in record.getMessage()
