"""Pipelines over plain functions in place of targets: what the tests of the pipeline share."""

import random
import threading
import time
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st

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
def no_thread_is_left():
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
