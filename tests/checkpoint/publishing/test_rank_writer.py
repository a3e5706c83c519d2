"""Two writers that know each other only by an address: one checkpoint, or a final error on both."""

import gc
import threading

import pytest

from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.publishing.publish import Published
from dflash_lightning.checkpoint.publishing.rank_writer import Meeting, open_meeting, publish_as_rank
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.writing.retrying import pause_after
from tests.checkpoint.saving import PREFIX, job, writes


def meeting(server, rank, *, deadline_s=10.0):
    return Meeting(host="127.0.0.1", port=server.port, rank=rank, world=2, deadline_s=deadline_s)


def both(server, store, *jobs):
    """What the two writers returned or raised, save by save."""
    outcomes = [[], []]

    def work(rank):
        for each in jobs:
            try:
                outcomes[rank].append(
                    publish_as_rank(meeting(server, rank), store, PREFIX, each, writes(rank))
                )
            except StoreError as error:
                outcomes[rank].append(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def test_saves_of_two_ranks_one_after_the_other():
    server, store = open_meeting("127.0.0.1"), MemoryStore()
    first, second = both(server, store, job(8), job(8, kind="best"), job(12))
    assert all(isinstance(published, Published) for published in first)
    assert [p.manifest_key for p in first] == [p.manifest_key for p in second]
    assert [p.uri for p in first] == [p.uri for p in second]
    assert {len(manifest.files) for manifest in list_manifests(store, PREFIX).manifests} == {2}


def test_a_failure_is_final_for_both_and_the_next_save_is_not_touched():
    store = FaultyStore(MemoryStore(), Fault("open", key="step=8", kind="denied"))
    first, second = both(open_meeting("127.0.0.1"), store, job(8), job(12))
    for failed, published in (first, second):
        assert "step 8 was not published" in str(failed) or "scripted" in str(failed)
        assert pause_after(failed.kind, failures=1, refused_s=0.0, random=0.0) is None
        assert published.manifest_key.startswith("manifests/step=000000000012")


def test_without_rank_0_it_is_one_clear_error(monkeypatch):
    monkeypatch.setattr("dflash_lightning.checkpoint.publishing.rank_writer.CONNECT_S", 0.5)
    server = open_meeting("127.0.0.1")
    ours = meeting(server, 1)
    del server
    gc.collect()
    with pytest.raises(StoreError, match=f"ranks cannot meet at 127.0.0.1, port {ours.port}"):
        publish_as_rank(ours, MemoryStore(), PREFIX, job(8), writes(1))
