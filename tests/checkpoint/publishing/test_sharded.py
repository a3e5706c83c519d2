"""Case 6: shards become a checkpoint when every rank has confirmed, or not at all. No rank's loop waits."""

import threading
import time

import pytest

from dflash_lightning.checkpoint.keeping.removal import remove
from dflash_lightning.checkpoint.layout import name_of_data
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.publishing.confirmations import OverMapping, ShardReport
from dflash_lightning.checkpoint.publishing.publish import Published
from dflash_lightning.checkpoint.publishing.sharded import ShardedSave, publish_shard
from dflash_lightning.checkpoint.resuming.fetch import fetch
from dflash_lightning.checkpoint.stores import StoreError, StoreSettings
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore, name_store
from dflash_lightning.checkpoint.verify import check
from tests.checkpoint.saving import PREFIX, content, job, writes


def save_of(rank, store, said, *, world=2, deadline_s=10.0, save_id="1"):
    return ShardedSave(
        store=store,
        prefix=PREFIX,
        job=job(8),
        confirmations=OverMapping(said),
        save_id=save_id,
        rank=rank,
        world=world,
        deadline_s=deadline_s,
    )


def rank_1(store, said):
    return save_of(1, store, said, deadline_s=0.2)


def run_ranks(saves, write=None):
    """What each rank's background thread returned or raised."""
    outcomes = [None] * len(saves)

    def work(rank):
        try:
            outcomes[rank] = publish_shard(saves[rank], (write or writes)(saves[rank].rank))
        except Exception as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(saves))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


def shards(store):
    return [key for key in store.objects if name_of_data(key.removeprefix(f"{PREFIX}/"))]


def test_all_confirmed_is_one_checkpoint(tmp_path):
    store, said = MemoryStore("shards"), {}
    published, name, _ = run_ranks([save_of(rank, store, said, world=3) for rank in range(3)])
    assert isinstance(published, Published)
    assert published.manifest.name == name
    assert [file.key for file in published.manifest.files] == [f"data/{name}/rank={r}.ckpt" for r in range(3)]
    name_store("shards", store)
    folder = fetch(f"memory://shards/{PREFIX}", StoreSettings(), tmp_path)
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == [content(rank) for rank in range(3)]


def test_two_saves_do_not_mix():
    store, said = MemoryStore(), {}
    names = {
        run_ranks([save_of(rank, store, said, save_id=save_id) for rank in range(2)])[1] for save_id in "12"
    }
    assert len(names) == 2


@pytest.mark.parametrize("bad", [0, 1])
def test_one_rank_that_fails_ends_it_for_all_at_once(bad):
    def write(rank):
        def fail(file):
            raise KeyError("not picklable")

        return fail if rank == bad else writes(rank)

    store, said = MemoryStore(), {}
    started = time.monotonic()
    outcomes = run_ranks([save_of(rank, store, said, world=3) for rank in range(3)], write)
    assert time.monotonic() - started < 5  # not the deadline
    assert isinstance(outcomes[bad], KeyError)
    for rank in {0, 1, 2} - {bad}:
        assert isinstance(outcomes[rank], StoreError)
        for text in ("step 8 was not published", f"rank {bad}: KeyError", "not picklable"):
            assert text in str(outcomes[rank])
    assert store.objects == store.pending == {}


def test_a_rank_that_says_nothing_is_named_at_the_deadline():
    store, said = MemoryStore(), {}
    (outcome,) = run_ranks([save_of(0, store, said, deadline_s=0.2)])
    assert "within 0 s: rank 1: no report" in str(outcome)
    assert store.objects == {}
    (late,) = run_ranks([rank_1(store, said)])
    assert "rank 1: no report" in str(late)  # it comes too late, and takes its shard away
    assert store.objects == {}


def test_without_a_verdict_the_shard_stays_for_the_next_start(monkeypatch):
    monkeypatch.setattr("dflash_lightning.checkpoint.publishing.sharded._VERDICT_S", 0.1)
    store, said = MemoryStore(), {"checkpoint/1/name": "step=8-1a2b3c4d"}
    (outcome,) = run_ranks([rank_1(store, said)])
    assert "rank 0 did not say within 0 s whether step 8 was published" in str(outcome)
    assert shards(store) == [f"{PREFIX}/data/step=8-1a2b3c4d/rank=1.ckpt"]


def test_without_rank_0_nothing_is_stored():
    store = MemoryStore()
    (outcome,) = run_ranks([rank_1(store, {})])
    assert "rank 0 did not begin to save step 8 within 0 s" in str(outcome)
    assert store.objects == {}


@pytest.mark.parametrize(
    "fault", [Fault("put", key="manifests", kind="denied"), Fault("list", key="manifests", kind="denied")]
)
def test_a_manifest_that_cannot_be_written_is_told_to_all(fault):
    store, said = FaultyStore(MemoryStore(), fault), {}
    outcomes = run_ranks([save_of(rank, store, said) for rank in range(2)])
    assert all("scripted: " in str(outcome) for outcome in outcomes)
    assert store.store.objects == {}


def test_a_fault_that_passes_costs_one_rank_a_moment_and_nobody_the_checkpoint(monkeypatch):
    monkeypatch.setattr("dflash_lightning.checkpoint.writing.retrying.pause_after", lambda kind, **_: 0.01)
    store, said = FaultyStore(MemoryStore(), Fault("finish", key="rank=1", kind="transient", times=2)), {}
    published, _ = run_ranks([save_of(rank, store, said) for rank in range(2)])
    assert isinstance(published, Published)


@pytest.mark.parametrize("died", ["before its upload", "behind its manifest", "behind its verdict"])
def test_the_writer_of_rank_0_is_killed_and_another_takes_its_place(died):
    """Whatever was done is not done again: one name, one manifest, and no other rank notices."""
    store, said = MemoryStore(), {}
    if died == "before its upload":
        said["checkpoint/1/name"] = "step=8-1a2b3c4d"
    else:
        first = run_ranks([save_of(rank, store, said) for rank in range(2)])[0]
        assert isinstance(first, Published)
        if died == "behind its manifest":
            del said["checkpoint/1/verdict"]
    published, name = run_ranks([save_of(rank, store, said) for rank in range(2)])
    assert isinstance(published, Published)
    assert said["checkpoint/1/name"] == name == published.manifest.name
    (manifest,) = list_manifests(store, PREFIX).manifests
    assert manifest == published.manifest


def no_new_data(store):
    """Any touch of a shard's key fails for good: what an earlier writer stored must do."""
    touched = ("open", "finish", "delete")
    return FaultyStore(store, *(Fault(each, key="/data/", kind="denied", times=99) for each in touched))


def whole(store):
    (manifest,) = list_manifests(store, PREFIX).manifests
    check(store, PREFIX, manifest, deep=True)
    return manifest


@pytest.mark.parametrize(
    ("died", "ranks"),
    [
        ("behind the reports", (0, 1)),
        ("behind the manifest", (0, 1)),
        ("behind the verdict", (0, 1)),
        ("behind the verdict", (0,)),
        ("behind the verdict", (1,)),
    ],
)
def test_what_a_dead_writer_had_reported_is_not_written_again(died, ranks):
    """Its key may be a published one by now: a second upload that fails would take that away."""
    store, said = MemoryStore(), {}
    name = run_ranks([save_of(rank, store, said) for rank in range(2)])[1]
    if died != "behind the verdict":
        del said["checkpoint/1/verdict"]
    if died == "behind the reports":
        store.delete([f"{PREFIX}/{whole(store).key}"])
    again = [save_of(rank, no_new_data(store), said) for rank in ranks]
    for rank, outcome in zip(ranks, run_ranks(again), strict=True):
        assert name == (outcome if rank else outcome.manifest.name)
    assert whole(store).name == name


def test_a_new_writer_of_rank_0_that_cannot_look_takes_nothing_away():
    store, said = MemoryStore(), {}
    run_ranks([save_of(rank, store, said) for rank in range(2)])
    del said["checkpoint/1/verdict"]
    blind = FaultyStore(store, Fault("list", kind="denied", times=9))
    outcomes = run_ranks([save_of(rank, blind, said) for rank in range(2)])
    assert all("scripted: list" in str(outcome) for outcome in outcomes)
    assert whole(store)


def test_a_new_writer_publishes_nothing_of_which_a_shard_is_gone():
    """As when its forerunner died while it took back a manifest that could not be written."""
    store, said = MemoryStore(), {}
    name = run_ranks([save_of(rank, store, said) for rank in range(2)])[1]
    del said["checkpoint/1/verdict"]
    store.delete([f"{PREFIX}/{whole(store).key}", f"{PREFIX}/data/{name}/rank=1.ckpt"])
    outcomes = run_ranks([save_of(rank, store, said) for rank in range(2)])
    assert all("rank=1.ckpt is missing" in str(outcome) for outcome in outcomes)
    assert store.objects.keys() == {f"{PREFIX}/last.json"}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_new_writer_need_not_find_what_a_newer_checkpoint_has_replaced(rank):
    store, said = MemoryStore(), {}
    name = run_ranks([save_of(rank, store, said) for rank in range(2)])[1]
    remove(store, PREFIX, [whole(store)])
    assert publish_shard(save_of(rank, no_new_data(store), said), writes(rank)) == name
    assert list_manifests(store, PREFIX).manifests == ()


def test_a_writer_that_comes_back_does_not_publish_what_was_given_up():
    store, said = MemoryStore(), {}
    run_ranks([save_of(0, store, said, deadline_s=0.2)])
    run_ranks([rank_1(store, said)])  # too late: its report stays, its shard does not
    (outcome,) = run_ranks([save_of(0, store, said)])
    assert "rank 1: no report" in str(outcome)
    assert store.objects == {}


def test_secrets_are_not_told_to_others():
    def write(rank):
        def fail(file):
            raise RuntimeError("at https://me:word@host/?X-Amz-Signature=abcdef")

        return fail if rank == 1 else writes(rank)

    said = {}
    outcomes = run_ranks([save_of(rank, MemoryStore(), said) for rank in range(2)], write)
    assert "word" not in str(said) + str(outcomes[0])
    assert "abcdef" not in str(said) + str(outcomes[0])


def test_reports_come_back_as_they_were():
    store = MemoryStore()
    published = run_ranks([save_of(rank, store, {}, world=1) for rank in range(1)])[0]
    report = ShardReport(0, published.manifest.files[0])
    assert ShardReport.from_text(report.to_text()) == report
    assert ShardReport.from_text(ShardReport(1, None, "why").to_text()) == ShardReport(1, None, "why")
