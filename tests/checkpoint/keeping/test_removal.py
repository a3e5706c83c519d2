"""What goes, goes whole; what a crash left is found by its age, and nothing of a live run is touched."""

import pytest

from dflash_lightning.checkpoint.claiming.claim import claim
from dflash_lightning.checkpoint.keeping.removal import clean_leftovers
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.saving import PREFIX, data_of, keep, save, save_and_sweep, steps


def test_data_that_could_not_be_deleted_goes_once_it_is_old():
    inner = MemoryStore()
    store = FaultyStore(inner, Fault("delete", key="/data/"))
    save(store, 1)
    assert len(save_and_sweep(store, 2)[1].problems) == 1
    save(store, 3)
    assert len(data_of(inner)) == 2  # it might be another's that is about to be published
    for key in data_of(inner):
        inner.modified[key] -= 3601
    save(store, 4)
    assert [key.split("=")[1].split("-")[0] for key in data_of(inner)] == ["4"]


def test_a_broken_manifest_hides_nothing_and_keeps_its_data():
    store = MemoryStore()
    broken = save(store, 1, retention=keep()).manifest
    store.put(f"{PREFIX}/{broken.key}", b"{")
    for key in store.modified:
        store.modified[key] -= 9999
    save(store, 2)
    assert steps(store) == [2]
    assert len(data_of(store)) == 2


@pytest.mark.parametrize(
    ("fault", "said", "left"),
    [
        (Fault("list_uploads", kind="denied"), "may still take space: scripted: list_uploads", (1, 0)),
        (Fault("abort_upload"), "may still take space: scripted: abort_upload", (1, 0)),
        (Fault("delete"), "still takes space: scripted: delete", (0, 1)),
    ],
)
def test_leftovers_that_stay_do_not_stop_a_run(fault, said, left, caplog):
    store = MemoryStore()
    store.open_upload(f"{PREFIX}/data/step=6-0000000a.ckpt", size_hint=0)
    store.put(f"{PREFIX}/data/step=7-0000000b.ckpt", b"no manifest")
    owner = claim(store, PREFIX, "a", now=9e9, stale_after_s=300.0, sleep=lambda seconds: None)
    clean_leftovers(FaultyStore(store, fault), PREFIX, owner, older_than_s=5.0, now=9e9)
    assert said in caplog.text
    assert (len(store.pending), len(data_of(store))) == left


def test_leftovers_are_left_to_a_run_that_took_over():
    store = MemoryStore()
    store.put(f"{PREFIX}/data/step=7-0000000b.ckpt", b"of the other run, about to be published")
    first = claim(store, PREFIX, "first", now=0.0, stale_after_s=300.0, sleep=lambda seconds: None)
    claim(store, PREFIX, "second", now=1000.0, stale_after_s=300.0, sleep=lambda seconds: None)
    with pytest.raises(StoreError, match="now belongs to run second"):
        clean_leftovers(store, PREFIX, first, older_than_s=0.0)
    assert data_of(store)
