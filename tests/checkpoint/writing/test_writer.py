"""Cases 7, 8, 9, 11 and 15 with the writer as a thread, and stores that wait or fail as told."""

import logging

import pytest

from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.stores.fault_script import Died, Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.events import Durable, Refused, Restarted
from tests.checkpoint.writing.writers import (
    events_until,
    folder_target,
    job,
    make_writer,
    state_at,
    stored_steps,
)


def test_a_save_becomes_durable_and_is_that_of_its_moment(writer, gate, tmp_path):
    gate.open.set()
    state = state_at(8)
    receipt = writer.submit(job(8), state)
    state["weight"].zero_()
    assert receipt.accepted
    assert receipt.num_bytes > 4000
    (event,) = events_until(writer, Durable)
    assert event.job == job(8)
    assert event.manifest_key.startswith("manifests/step=000000000008")
    assert (event.num_bytes > 4000, event.retries) == (True, 0)
    assert stored_steps(tmp_path) == [8]
    assert writer.unfinished == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_ends_is_replaced_and_its_work_done(caplog):
    store = MemoryStore()
    places = [FaultyStore(store, Fault("finish", does="die")), store]
    writer = make_writer(Target(lambda: (places.pop(0), ""), publish))
    writer.submit(job(1, "best", must_keep=True), state_at(1))
    events = events_until(writer, Durable)
    restarted = next(event for event in events if isinstance(event, Restarted))
    assert restarted.resubmitted == (job(1, "best", must_keep=True),)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning == (
        "the checkpoint writer died (its thread ended) and was started again; "
        "handed over once more: step 1 (best)"
    )
    assert issubclass(Died, BaseException)
    writer.close()


def test_a_state_that_grew_is_stored_whole(tmp_path, caplog):
    writer = make_writer(folder_target(tmp_path), capacity=1000)
    writer.submit(job(1), state_at(1))
    assert "the training state grew from at most 1000" in caplog.text
    assert writer.flush(30.0) == []
    assert stored_steps(tmp_path) == [1]
    writer.close()


def test_a_state_that_outgrew_memory_is_refused_and_training_goes_on(tmp_path, monkeypatch):
    writer = make_writer(folder_target(tmp_path), capacity=1000)
    monkeypatch.setattr("dflash_lightning.checkpoint.snapshots.arenas.available_bytes", lambda: 10)
    receipt = writer.submit(job(1), state_at(1))
    assert receipt.reason.startswith("no memory for a snapshot of")
    assert [type(event) for event in writer.poll()] == [Refused]
    monkeypatch.undo()
    assert writer.submit(job(2), state_at(2)).accepted
    assert writer.flush(30.0) == []
    writer.close()
