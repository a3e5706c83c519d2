"""A claim that is renewed by itself. What claims promise: test_claim.py."""

import time

from dflash_lightning.checkpoint.claiming.claim import OWNER, claim
from dflash_lightning.checkpoint.claiming.heartbeat import Heartbeat
from dflash_lightning.checkpoint.stores.errors import StoreError
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
