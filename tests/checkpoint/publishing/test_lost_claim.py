"""A writer that outlives its run, or has not heard yet: where another has the claim, it publishes nothing."""

import threading
import time
from dataclasses import replace

import pytest
import torch

from dflash_lightning.checkpoint.claiming.claim import claim
from dflash_lightning.checkpoint.claiming.owner import OWNER, read_owner
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.publishing.confirmations import OverMapping
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.publishing.sharded import ShardedSave, publish_shard
from dflash_lightning.checkpoint.resuming.resume import resolve
from dflash_lightning.checkpoint.session import Memory, Session
from dflash_lightning.checkpoint.stores import StoreError, StoreSettings
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.saving import PREFIX, job, save, steps, writes

KEY = f"{PREFIX}/{OWNER}"


def take(store, run_id, *, now=1000.0):
    return claim(store, PREFIX, run_id, now=now, stale_after_s=300.0, sleep=lambda seconds: None)


def take_over(store, run_id):
    """As a run that starts when this one counts as dead, and saves at once."""
    nonce = take(store, run_id, now=9000.0).owner.nonce
    return publish(store, PREFIX, job(2, run_id=run_id), writes(2), nonce=nonce).manifest


def overtaken(store, run_id, first):
    """A function that writes, and is overtaken meanwhile."""

    def write(file):
        writes(100)(file)
        first.append(take_over(store, run_id))

    return write


@pytest.mark.parametrize("other", ["b", "a"], ids=["another run", "another start of this run"])
def test_a_save_that_was_overtaken_during_its_upload_is_given_up(other):
    store, theirs = MemoryStore(), []
    nonce = take(store, "a").owner.nonce
    with pytest.raises(StoreError, match=f"owner.json now belongs to run {other} .process") as caught:
        publish(store, PREFIX, job(100), overtaken(store, other, theirs), nonce=nonce)
    assert caught.value.kind == "conflict"
    assert list_manifests(store, PREFIX).manifests == tuple(theirs)
    assert resolve(store, PREFIX, "last").step == 2
    assert len(store.objects) == 4  # their data, manifest, pointer and claim; nothing of ours
    assert store.pending == {}


def test_shards_that_were_overtaken_are_given_up_on_all_ranks():
    store, theirs, said, outcomes = MemoryStore(), [], {}, {}
    nonce = take(store, "a").owner.nonce

    def work(rank):
        write = overtaken(store, "b", theirs) if rank else writes(0)
        ours = ShardedSave(
            store=store,
            prefix=PREFIX,
            job=job(100),
            confirmations=OverMapping(said),
            save_id="1",
            rank=rank,
            world=2,
            deadline_s=10.0,
            nonce="" if rank else nonce,
        )
        with pytest.raises(StoreError) as caught:
            publish_shard(ours, write)
        outcomes[rank] = str(caught.value)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all("now belongs to run b" in outcomes[rank] for rank in range(2))
    assert list_manifests(store, PREFIX).manifests == tuple(theirs)
    assert len(store.objects) == 4


def test_a_claim_that_is_there_or_deleted_by_hand_lets_it_pass():
    store = MemoryStore()
    nonce = take(store, "a").owner.nonce
    publish(store, PREFIX, job(1), writes(1), nonce=nonce)
    store.delete([KEY])
    publish(store, PREFIX, job(2), writes(2), nonce=nonce)
    assert steps(store) == [1, 2]


def test_it_costs_one_small_read_before_the_manifest():
    store, plain = FaultyStore(MemoryStore()), FaultyStore(MemoryStore())
    nonce = take(store.store, "a").owner.nonce
    publish(store, PREFIX, job(1), writes(1), nonce=nonce)
    publish(plain, PREFIX, job(1), writes(1))
    asked = [(event.operation, event.key == KEY) for event in store.events]
    assert len(asked) == len(plain.events) + 1
    assert asked[asked.index(("read", True)) + 1][0] == "put"
    assert [event.operation for event in store.events].index("list") > asked.index(("finish", False))


def test_an_answer_about_the_claim_that_is_lost_costs_no_upload():
    inner = MemoryStore()
    nonce = take(inner, "a").owner.nonce
    store = FaultyStore(inner, Fault("read", key=OWNER, times=2))
    assert publish(store, PREFIX, job(1), writes(1), nonce=nonce).retries == 2
    assert sum(event.operation == "open" for event in store.events) == 1


def test_what_is_published_during_an_upload_is_older_than_it():
    store = MemoryStore()

    def write(file):
        writes(8)(file)
        save(store, 9, run_id="b")

    publish(store, PREFIX, job(8), write)
    assert [(m.step, m.serial) for m in list_manifests(store, PREFIX).manifests] == [(8, 2), (9, 1)]


def test_a_run_gives_its_claim_to_its_writer(tmp_path):
    """Before its heartbeat has heard of the other."""
    session = Session(str(tmp_path), StoreSettings(), "ours", Memory(process=False))
    store = LocalStore(tmp_path)
    theirs = replace(read_owner(store, ""), run_id="theirs", nonce="theirs")
    store.put(OWNER, theirs.to_json())
    session.save(job(4), {"weight": torch.zeros(3)})
    deadline = time.monotonic() + 60
    while session.problem is None and time.monotonic() < deadline:
        session.poll()
        time.sleep(0.01)
    session.close()
    assert "the checkpoint of step 4 (step) cannot be stored" in str(session.problem)
    assert "now belongs to run theirs" in str(session.problem)
    assert list_manifests(store, "").manifests == ()
    assert read_owner(store, "") == theirs
