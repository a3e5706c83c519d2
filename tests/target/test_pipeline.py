"""The pipeline with plain functions as targets: order, exactly once, memory, errors, and how it ends."""

import logging
import random
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.target import pipeline_pass
from dflash_lightning.target.dispatch import PrefetchPolicy
from dflash_lightning.target.pipeline import TargetPipeline
from dflash_lightning.target.pipeline_queues import BatchCost

PATIENCE = 60
"""Seconds after which a test says that the pipeline hangs."""


@dataclass(frozen=True)
class Toy:
    """A batch: its number, and the size of its states."""

    number: int
    size: int = 1


def toy_cost(batch):
    return BatchCost(tokens=batch.size, bucket=batch.number % 3, bytes=batch.size)


def square(batch):
    return batch.number**2


def pipeline_of(workers, **options):
    policy = {
        name: options.pop(name)
        for name in ("dispatch", "delivery", "depth", "memory_bytes")
        if name in options
    }
    return TargetPipeline(workers, cost=toy_cost, policy=PrefetchPolicy(**policy), **options)


def within_patience(work):
    """What `work` returns or raises; a hang fails the test."""
    results = []

    def run():
        try:
            results.append((work(), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert results, "the pipeline hangs"
    value, error = results[0]
    if error is not None:
        raise error
    return value


def everything(pipeline, batches, windows):
    def work():
        with pipeline.run(batches, windows) as pairs:
            return list(pairs)

    return within_patience(work)


def prefetch_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not prefetch_threads()


class Jittery:
    """A target whose time varies."""

    def __init__(self, seed, most=0.002):
        self.random = random.Random(seed)
        self.most = most

    def __call__(self, batch):
        time.sleep(self.random.random() * self.most)
        return batch.number**2


class Gated:
    """A target that computes a batch only when the test lets it."""

    def __init__(self):
        self.begun: list[int] = []
        self.gate = threading.Semaphore(0)

    def __call__(self, batch):
        self.begun.append(batch.number)
        assert self.gate.acquire(timeout=PATIENCE)
        return batch.number**2


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.001)


windows_of_batches = st.lists(st.integers(1, 4), max_size=8)
policies = st.fixed_dictionaries(
    {
        "dispatch": st.sampled_from(["round_robin", "least_loaded"]),
        "depth": st.integers(1, 4),
        "memory_bytes": st.none() | st.integers(1, 12),
    }
)
sizes = st.integers(1, 20)


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


# --- errors


def explode_at(number):
    def explode(batch):
        if batch.number == number:
            raise FloatingPointError("the target broke")
        return batch.number

    return explode


@pytest.mark.parametrize("delivery", ["in_order", "ready_first"])
def test_what_a_worker_raises_is_raised_in_training(delivery):
    pipeline = pipeline_of([explode_at(4)] * 2, delivery=delivery, names=["cuda:4", "cuda:5"])
    with pytest.raises(FloatingPointError, match="the target broke") as caught:
        everything(pipeline, [Toy(i, 7) for i in range(9)], [9])
    text = "".join(traceback.format_exception(caught.value))
    assert "in explode" in text  # its own traceback
    assert "cuda:4, batch 4 of this pass, bucket 1, 7 padded tokens" in text
    assert "(in thread 'prefetch cuda:4')" in text


def test_an_error_is_not_kept_back_by_batches_that_are_ready():
    pipeline = pipeline_of([square, explode_at(1)], depth=4)
    with pipeline.run([Toy(i) for i in range(4)], [4]) as pairs:
        until(lambda: len(prefetch_threads()) == 1 or pipeline.counters().devices[0].ready_batches == 2)
        until(lambda: not any(t.name == "prefetch device 1" for t in prefetch_threads()))
        with pytest.raises(FloatingPointError):
            next(pairs)


def test_what_the_source_raises_is_raised_in_training():
    def source():
        yield Toy(0)
        raise OSError("the store is gone")

    pipeline = pipeline_of([square])
    with pytest.raises(OSError, match="the store is gone") as caught:
        everything(pipeline, source(), [4])
    text = "".join(traceback.format_exception(caught.value))
    assert "in source" in text
    assert "(in thread 'prefetch feed')" in text


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_no_exception_passes_for_the_end(error):
    def leave(batch):
        raise error

    expected = RuntimeError if error is StopIteration else error
    with pytest.raises(expected):
        everything(pipeline_of([leave]), [Toy(0)], [1])


@pytest.mark.parametrize(
    ("batches", "windows", "message"),
    [
        (3, [2, 2], "ended in optimizer window 1 of 2: it must give 4 batches"),
        (5, [2, 2], "more than the 4 batches of its optimizer windows"),
    ],
)
def test_a_source_of_another_length_is_refused(batches, windows, message):
    with pytest.raises(ValueError, match=message):
        everything(pipeline_of([square]), [Toy(i) for i in range(batches)], windows)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pipeline_of([]), "needs at least one worker"),
        (lambda: pipeline_of([square], depth=0), "depth 0 means no pipeline"),
        (lambda: pipeline_of([square]).set_depth(0), "depth 0 means no pipeline"),
    ],
)
def test_pipelines_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- the end


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_pass_left_early_ends_its_threads(taken):
    pipeline = pipeline_of([Jittery(1), Jittery(2)], depth=2)
    with pipeline.run((Toy(i) for i in range(10**6)), [2] * 500_000) as pairs:
        for _ in range(taken):
            next(pairs)
        assert len(prefetch_threads()) == 3
    assert not prefetch_threads()


def test_a_generator_over_a_pass_closes_it_when_dropped():
    pipeline = pipeline_of([square])

    def pairs():
        with pipeline.run((Toy(i) for i in range(99)), [99]) as running:
            yield from running

    iterator = pairs()
    next(iterator)
    assert prefetch_threads()
    del iterator
    assert not prefetch_threads()


def test_a_new_pass_closes_the_one_before():
    pipeline = pipeline_of([square])
    old = pipeline.run([Toy(i) for i in range(9)], [9]).__enter__()
    next(old)
    assert len(everything(pipeline, [Toy(i) for i in range(3)], [3])) == 3
    with pytest.raises(RuntimeError, match="closed before its end"):
        next(old)


def test_a_source_that_blocks_for_ever_is_left_behind_and_named(monkeypatch, caplog):
    monkeypatch.setattr(pipeline_pass, "CLOSE_SECONDS", 0.05)
    blocked = threading.Event()

    def source():
        yield Toy(0)
        assert blocked.wait(PATIENCE)

    pipeline = pipeline_of([square])
    with caplog.at_level(logging.WARNING), pipeline.run(source(), [2]) as pairs:
        next(pairs)
    assert "still at a batch: prefetch feed" in caplog.text
    blocked.set()
    until(lambda: not prefetch_threads())


def test_an_idle_pipeline_keeps_no_states_alive():
    import weakref

    class States:
        pass

    alive = []

    def compute(batch):
        states = States()
        alive.append(weakref.ref(states))
        return states

    with pipeline_of([compute]).run([Toy(0)], [1]) as pairs:
        next(pairs)
        until(lambda: not prefetch_threads())
        assert alive[0]() is None


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
