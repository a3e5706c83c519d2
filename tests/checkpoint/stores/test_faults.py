"""The script around a store: what it does when, and that it does the same again."""

import subprocess
import sys
import time

import pytest

from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.fault_script import Died, Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore, name_store, named_store


def scripted(*faults):
    return FaultyStore(MemoryStore(), *faults)


def test_the_call_that_was_named_fails_and_nothing_was_done():
    store = scripted(Fault("put", 2, kind="denied", times=2))
    store.put("a", b"")
    for key in ("b", "c"):
        with pytest.raises(StoreError, match=f"scripted: put of {key} failed") as caught:
            store.put(key, b"")
        assert caught.value.kind == "denied"
    store.put("d", b"")
    assert list(store.store.objects) == ["a", "d"]


def test_calls_are_counted_for_the_keys_that_are_meant():
    store = scripted(Fault("put", 1, key="manifests/"))
    store.put("data/a", b"")
    with pytest.raises(StoreError):
        store.put("manifests/a", b"")


def test_an_answer_that_is_lost_comes_after_the_work():
    store = scripted(Fault("put", does="lose"), Fault("finish", does="lose"))
    with pytest.raises(StoreError):
        store.put("a", b"data")
    upload = store.open_upload("b", size_hint=0)
    upload.write(b"data")
    with pytest.raises(StoreError):
        upload.finish()
    assert store.store.objects == {"a": b"data", "b": b"data"}


def test_bits_that_flip_up_are_refused_and_down_are_not_noticed():
    store = scripted(Fault("put", does="flip"), Fault("write", does="flip"), Fault("read", does="flip"))
    with pytest.raises(StoreError) as caught:
        store.put("a", b"data")
    assert caught.value.kind == "corrupt"
    upload = store.open_upload("a", size_hint=0)
    with pytest.raises(StoreError):
        upload.write(b"data")
    assert upload.failure().kind == "corrupt"
    with pytest.raises(StoreError):
        upload.finish()
    store.put("a", b"data")
    assert store.read("a") != b"data"
    assert store.read("a") == b"data"


def test_rot_is_not_noticed_by_anyone():
    store = scripted(Fault("write", does="rot"))
    upload = store.open_upload("a", size_hint=0)
    upload.write(b"data")
    facts = upload.finish()
    assert facts.crc32 != store.head("a").crc32
    assert store.read("a") != b"data"


def test_a_dead_process_does_nothing_more_and_the_next_one_finds_what_was_there():
    store = scripted(Fault("any", 3, does="die"))
    store.put("a", b"1")
    store.put("b", b"2")
    for _ in range(2):
        with pytest.raises(Died):
            store.put("c", b"3")
    assert FaultyStore(store.store).read("b") == b"2"
    assert list(store.store.objects) == ["a", "b"]


def test_a_process_can_end_at_a_call(tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from dflash_lightning.checkpoint.stores.faults import FaultyStore, Fault\n"
        "from dflash_lightning.checkpoint.stores.local import LocalStore\n"
        "store = FaultyStore(LocalStore(Path(sys.argv[1])), Fault('put', 2, does='exit'))\n"
        "store.put('a', b''); store.put('b', b'')"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == 137
    assert [facts.key for facts in LocalStore(tmp_path).list("")] == ["a"]


def test_waiting_takes_time_and_changes_nothing():
    store = scripted(Fault("put", does="wait", seconds=0.05))
    started = time.monotonic()
    store.put("a", b"data")
    assert time.monotonic() - started >= 0.05
    assert store.read("a") == b"data"


def test_every_call_is_in_the_log_in_order():
    store = scripted()
    upload = store.open_upload("a", size_hint=0)
    upload.write(b"data")
    upload.finish()
    upload.abort()
    store.read("a")
    list(store.list("x"))
    store.delete(["a", "b"])
    assert [(event.number, event.operation, event.key) for event in store.events] == [
        (1, "open", "a"),
        (2, "write", "a"),
        (3, "finish", "a"),
        (4, "abort", "a"),
        (5, "read", "a"),
        (6, "list", "x"),
        (7, "delete", "a"),
    ]


def test_an_abort_that_fails_leaves_the_upload_pending():
    store = scripted(Fault("abort"))
    store.open_upload("a", size_hint=0).abort()
    assert [pending.key for pending in store.list_uploads("")] == ["a"]


def test_a_name_means_one_store_and_can_mean_a_scripted_one():
    assert named_store("of-this-test") is named_store("of-this-test")
    mine = scripted()
    name_store("of-this-test", mine)
    assert named_store("of-this-test") is mine
