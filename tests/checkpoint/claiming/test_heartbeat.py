"""A claim that is renewed by itself. What claims promise: test_claim.py."""

import threading
import time

import pytest

from dflash_lightning.checkpoint.claiming.claim import OWNER, claim
from dflash_lightning.checkpoint.claiming.heartbeat import Heartbeat
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore


def until(reached, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_renews_and_gives_back():
    store = MemoryStore()
    heartbeat = Heartbeat(claim(store, "run", "a", now=1.0, stale_after_s=60.0, settle_s=0.0), every_s=0.01)
    first = store.read(f"run/{OWNER}")
    until(lambda: store.read(f"run/{OWNER}") != first)
    heartbeat.stop()
    assert store.head(f"run/{OWNER}") is None


def test_another_owner_is_noticed_and_left_alone():
    store = MemoryStore()
    heartbeat = Heartbeat(claim(store, "run", "a", now=1.0, stale_after_s=60.0, settle_s=0.0), every_s=0.01)
    store.put(f"run/{OWNER}", b"{}")
    until(lambda: heartbeat.lost is not None)
    assert isinstance(heartbeat.lost, StoreError)
    assert heartbeat.lost.kind == "conflict"
    heartbeat.stop()
    assert store.read(f"run/{OWNER}") == b"{}"


class Hanging(MemoryStore):
    """From a call on, no answer comes."""

    def __init__(self):
        super().__init__()
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()

    def read(self, key, start=0, stop=None):
        self.asked.set()
        self.answers.wait()
        return super().read(key, start, stop)


@pytest.mark.parametrize("every_s", [0.01, 3600.0], ids=["in the middle of a renewal", "between two"])
def test_a_store_that_hangs_does_not_hold_up_the_end(every_s, caplog):
    store = Hanging()
    ours = claim(store, "run", "a", now=1.0, stale_after_s=60.0, settle_s=0.0)
    store.answers.clear()
    store.asked.clear()
    heartbeat = Heartbeat(ours, every_s=every_s, stop_s=1.0)
    if every_s < 1:
        assert store.asked.wait(60.0)
    stopping = threading.Thread(target=heartbeat.stop, daemon=True)
    stopping.start()
    stopping.join(60.0)
    assert not stopping.is_alive()
    assert "the prefix stays claimed for 300 s: storage has not answered for 1 s" in caplog.text
    store.answers.set()  # the answer that came late still gives the prefix back
    until(lambda: store.head(f"run/{OWNER}") is None)


def test_a_release_that_fails_says_how_long_the_prefix_stays_claimed(caplog):
    store = FaultyStore(MemoryStore(), Fault("delete", kind="denied"))
    Heartbeat(claim(store, "run", "a", now=1.0, stale_after_s=60.0, settle_s=0.0)).stop()
    assert "the prefix stays claimed for 300 s: " in caplog.text


@pytest.mark.parametrize(
    "raised", [StoreError("down", kind="endpoint"), ValueError("half a line"), OSError(2, "no")]
)
def test_no_error_ends_the_signs_of_life(raised, monkeypatch):
    store = MemoryStore()
    ours = claim(store, "run", "a", now=1.0, stale_after_s=60.0, settle_s=0.0)
    first = store.read(f"run/{OWNER}")
    left, put = [raised] * 3, store.put

    def fail_at_first(*args, **options):
        if left:
            raise left.pop()
        put(*args, **options)

    monkeypatch.setattr(store, "put", fail_at_first)
    heartbeat = Heartbeat(ours, every_s=0.01)
    until(lambda: store.read(f"run/{OWNER}") != first)
    heartbeat.stop()
    assert store.head(f"run/{OWNER}") is None
