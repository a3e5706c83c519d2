"""Case 17: two jobs on one prefix."""

import json
import os
import subprocess
import sys

import pytest

from dflash_lightning.checkpoint.claim import OWNER, claim
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.memory import MemoryStore

STALE_S = 300.0


def take(store, run_id, *, now=1000.0, prefix="runs/a", **options):
    options.setdefault("sleep", lambda seconds: None)
    return claim(store, prefix, run_id, now=now, stale_after_s=STALE_S, **options)


class Careless(MemoryStore):
    """Ignores "only if absent", as some servers do."""

    def put(self, key, data, *, only_if_absent=False):
        super().put(key, data)


def change_owner(store, **changes):
    key = f"runs/a/{OWNER}"
    store.put(key, json.dumps(json.loads(store.read(key)) | changes).encode())


def test_the_second_run_is_refused_with_who_where_since_when_and_the_way_out():
    store = MemoryStore()
    take(store, "first", now=1000.0)
    with pytest.raises(StoreError) as caught:
        take(store, "second", now=1042.0)
    assert caught.value.kind == "conflict"
    for text in (
        "memory://memory/runs/a/owner.json says that run first",
        f"process {os.getpid()} on ",
        "last alive 42 s ago",
        "Give this run another prefix, or stop that one",
        "silent for 300 s, or delete owner.json",
    ):
        assert text in str(caught.value)


def test_other_prefixes_are_free():
    store = MemoryStore()
    take(store, "first")
    take(store, "second", prefix="runs/b")


def test_a_released_prefix_is_free():
    store = MemoryStore()
    take(store, "first").release()
    second = take(store, "second")
    assert second.owner.run_id == "second"
    second.release()
    second.release()
    assert store.objects == {}


def test_heartbeats_keep_a_prefix():
    store = MemoryStore()
    first = take(store, "first", now=1000.0)
    first.renew(1250.0)
    with pytest.raises(StoreError, match="last alive 249 s ago"):
        take(store, "second", now=1499.0)


def test_a_silent_owner_is_taken_over_with_a_warning_and_learns_it(caplog):
    store = MemoryStore()
    first = take(store, "first", now=1000.0)
    take(store, "second", now=1300.0)
    assert "taking over memory://memory/runs/a from run first" in caplog.text
    assert "silent for 300 s" in caplog.text
    with pytest.raises(
        StoreError, match="now belongs to run second .*must not write there any more"
    ) as caught:
        first.renew(1301.0)
    assert caught.value.kind == "conflict"
    first.release()
    assert json.loads(store.read(f"runs/a/{OWNER}"))["run_id"] == "second"


def test_a_run_killed_on_this_machine_need_not_wait(caplog):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = MemoryStore()
    take(store, "first")
    change_owner(store, pid=ended.pid)
    take(store, "first", now=1001.0)
    assert "taking over" in caplog.text


@pytest.mark.parametrize("machine", ["", "another boot pid:[1]"])
def test_process_ids_of_other_machines_say_nothing(machine):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = MemoryStore()
    take(store, "first")
    change_owner(store, pid=ended.pid, machine=machine)
    with pytest.raises(StoreError, match="run first"):
        take(store, "second", now=1001.0)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"run_id": "x"}', b"\xff\xfe"])
def test_a_file_that_nobody_can_read_locks_nobody_out(text):
    store = MemoryStore()
    store.put(f"runs/a/{OWNER}", text)
    assert take(store, "first").owner.run_id == "first"


def test_one_that_was_overwritten_after_its_look_learns_it_at_its_heartbeat():
    store = Careless()
    first = take(store, "first")
    store.objects.clear()
    take(store, "second")
    with pytest.raises(StoreError, match="now belongs to run second"):
        first.renew(1001.0)
