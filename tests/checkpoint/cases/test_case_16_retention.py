"""Case 16: deletions come after a newer checkpoint, in their own line; one that fails ends nothing.

Results of a bulk deletion, key by key: tests/checkpoint/stores/test_s3_answers.py and test_s3_faults.py.
"""

from dflash_lightning.checkpoint.job import Retention
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.events import Durable
from tests.checkpoint import saving
from tests.checkpoint.saving import PREFIX, data_of, keep, save, save_and_sweep, steps, writes
from tests.checkpoint.writing.test_deletions import slow_writer
from tests.checkpoint.writing.writers import events_until, job, make_writer, state_at


def assert_deletions_follow_a_newer_one(events):
    """Every deletion of a manifest came when one with a later step had been written and read back."""
    verified, written = set(), None
    for event in events:
        key = event.key.rpartition("/manifests/")[2]
        if not key or key == event.key:
            continue
        if event.operation == "put":
            written = key
        elif event.operation == "read" and key == written:
            verified.add(key)
        elif event.operation == "delete" and key in verified:  # else it takes back its own, never published
            assert any(newer > key for newer in verified)


def test_case_16_no_deletion_before_a_newer_checkpoint_is_verified():
    store = FaultyStore(MemoryStore())
    for step in range(1, 7):
        save(store, step, retention=Retention(keep_last=2))
    assert_deletions_follow_a_newer_one(store.events)
    assert steps(store) == [5, 6]
    assert len(data_of(store.store)) == 2


def test_case_16_nor_by_the_writer_where_deletions_run_beside_the_saves():
    store = FaultyStore(MemoryStore(), Fault("put", 3, key="manifests", times=4))
    writer = make_writer(Target(lambda: (store, "ck"), publish))
    for step in range(1, 9):
        assert writer.submit(job(step, "best", must_keep=True, keep_last=1), state_at(step)).accepted
        events_until(writer, Durable)
    writer.close()
    assert_deletions_follow_a_newer_one(store.events)
    assert steps(store, "ck") == [8]


def test_case_16_a_kill_before_the_deletions_leaves_one_more_and_the_next_save_prunes_it():
    store = MemoryStore()
    save(store, 1)
    publish(store, PREFIX, saving.job(2), writes(2))  # and killed
    assert steps(store) == [1, 2]
    save(store, 3)
    assert steps(store) == [3]
    assert len(data_of(store)) == 1


def test_case_16_the_checkpoint_resumed_from_stays_where_another_run_wrote_it():
    store = MemoryStore()
    save(store, 8, run_id="first")
    for step in (9, 10):
        save(store, step, run_id="second")
    assert steps(store) == [8, 10]


def test_case_16_a_failed_delete_stops_no_other_and_is_tried_again(caplog):
    store = FaultyStore(MemoryStore(), Fault("delete", key="manifests"))
    for step in (1, 2, 3):
        save(store, step, retention=keep())
    _, swept = save_and_sweep(store, 4)  # two of three old ones go
    assert "not deleted, the next save tries again: scripted: delete of" in caplog.text
    assert len(swept.deleted) == 2
    assert steps(store) == [1, 4]
    assert len(data_of(store.store)) == 2  # the manifest of step 1 still has its data
    _, swept = save_and_sweep(store, 5)
    assert [name.split("-")[0] for name in swept.deleted] == ["step=1", "step=4"]
    assert steps(store) == [5]


def test_case_16_saves_become_durable_while_a_deletion_hangs_and_all_superfluous_ones_go_in_the_end():
    store, writer = slow_writer()
    for step in range(1, 6):
        assert writer.submit(job(step, keep_last=1), state_at(step)).accepted
        events_until(writer, Durable)
    assert store.asked.is_set()
    assert steps(store, "ck") == [1, 2, 3, 4, 5]
    store.open.set()
    writer.close()  # waits for what is left to delete
    assert steps(store, "ck") == [5]
