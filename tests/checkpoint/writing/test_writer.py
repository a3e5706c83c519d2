"""Cases 7, 8, 9, 11 and 15 with the writer as a thread, and stores that wait or fail as told."""

import logging
import threading

import pytest
import torch

from dflash_lightning.checkpoint.publish import publish
from dflash_lightning.checkpoint.stores.fault_script import Died, Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.writing import retrying
from dflash_lightning.checkpoint.writing.announce import Announcer
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.events import Coalesced, Durable, Failed, Refused, Restarted
from tests.checkpoint.writing.writers import (
    events_until,
    folder_target,
    job,
    make_writer,
    state_at,
    stored_steps,
    until,
)


class Gate:
    """A publisher that tells when it has begun, and ends only when it may."""

    def __init__(self):
        self.begun, self.open = threading.Event(), threading.Event()
        self.steps = []

    def publish(self, store, prefix, job, write):
        self.begun.set()
        self.open.wait()
        self.steps.append(job.step)
        return publish(store, prefix, job, write)


@pytest.fixture
def gate(tmp_path):
    return Gate()


@pytest.fixture
def writer(tmp_path, gate):
    target = Target(folder_target(tmp_path).open_store, gate.publish)
    writer = make_writer(target)
    yield writer
    gate.open.set()
    writer.close()


@pytest.fixture
def quick_retries(monkeypatch):
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retrying, "LONGEST_PAUSE_S", 0.01)


def begin(writer, gate, first):
    """Hold the worker up inside the first save."""
    assert writer.submit(first, state_at(first.step)).accepted
    gate.begun.wait()
    writer.poll()


def kinds(events):
    return [(type(event).__name__, event.job.step) for event in events]


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


def test_storage_slower_than_the_cadence_newest_wins_and_nothing_waits(writer, gate, tmp_path, caplog):
    begin(writer, gate, job(1))
    for step in range(2, 31):  # all of them while the store takes nothing: a save that waited would hang
        kind = "best" if step in (10, 12) else "step"
        assert writer.submit(job(step, kind, must_keep=kind == "best"), state_at(step)).accepted
        assert len(writer.unfinished) <= 3
    assert [kept.step for kept in writer.unfinished] == [1, 12, 30]
    events = writer.poll()
    assert len([event for event in events if isinstance(event, Coalesced)]) == 27
    (loss,) = caplog.records  # ordinary saves go without a word
    assert loss.getMessage() == (
        "the checkpoint of step 10 (best) was not stored: that of step 12 (best) took its place"
    )
    gate.open.set()
    assert writer.flush(30.0) == []
    assert stored_steps(tmp_path) == [1, 12, 30]
    assert (writer.counts.durable, writer.counts.coalesced, writer.counts.refused) == (3, 27, 0)


def test_a_save_without_room_is_refused_told_and_counted(writer, gate, caplog):
    begin(writer, gate, job(1))
    writer.submit(job(2, "best", must_keep=True), state_at(2))
    writer.submit(job(3, "epoch", must_keep=True), state_at(3))
    receipt = writer.submit(job(4), state_at(4))
    assert not receipt.accepted
    assert "all 3 snapshot buffers are taken" in receipt.reason
    assert kinds(writer.poll()) == [("Refused", 4)]
    assert writer.counts.refused == 1
    assert "the checkpoint of step 4 (step) was not taken: all 3 snapshot buffers" in caplog.text
    assert not writer.wait_for_room(job(4), 0.05)
    gate.open.set()
    assert writer.wait_for_room(job(4), 30.0)
    assert writer.submit(job(4), state_at(4)).accepted


def test_a_flush_takes_the_newest_first_and_names_what_is_not_durable(writer, gate):
    begin(writer, gate, job(1))
    writer.submit(job(2, "best", must_keep=True), state_at(2))
    writer.submit(job(3, "signal", must_keep=True), state_at(3))
    assert [late.step for late in writer.flush(0.05)] == [1, 2, 3]
    gate.open.set()
    assert writer.flush(30.0) == []
    assert gate.steps == [1, 3, 2]


def test_closing_in_the_middle_publishes_nothing(tmp_path):
    in_write, go_on = threading.Event(), threading.Event()

    def slow(store, prefix, job, write):
        def write_later(file):
            in_write.set()
            go_on.wait()
            write(file)

        return publish(store, prefix, job, write_later)

    writer = make_writer(Target(folder_target(tmp_path).open_store, slow))
    writer.submit(job(1), state_at(1))
    in_write.wait()
    threading.Timer(0.05, go_on.set).start()
    writer.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def faulty(*faults):
    store = FaultyStore(MemoryStore(), *faults)
    return make_writer(Target(lambda: (store, "ck"), publish))


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("kind", ["transient", "endpoint", "corrupt", "credentials", "full"])
def test_an_outage_is_outlived_with_one_warning(kind, caplog):
    writer = faulty(Fault("open", kind=kind, times=4))
    writer.submit(job(1), state_at(1))
    events = events_until(writer, Durable)
    assert kinds(events) == [("Failed", 1)] * 4 + [("Durable", 1)]
    assert all(event.will_retry and event.kind == kind for event in events[:4])
    assert events[-1].retries == writer.counts.retries == 4
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert (
        "step 1 (step) is not stored yet, storage has been failing for 0 s: scripted: open of ck" in warning
    )
    assert "Training goes on" in warning
    writer.close()


def test_a_long_outage_is_told_once_a_minute(caplog):
    now = 0.0
    tell = Announcer(lambda: now)
    for outage_s in range(0, 181, 30):
        now = 100.0 + outage_s
        tell(
            Failed(
                job=job(1),
                kind="endpoint",
                message="no answer",
                will_retry=True,
                pause_s=30.0,
                outage_s=float(outage_s),
            )
        )
    told = [record.getMessage() for record in caplog.records]
    assert [text.split("for ")[1].split(" s")[0] for text in told] == ["0", "60", "120", "180"]
    assert tell.counts.retries == 7


@pytest.mark.usefixtures("quick_retries")
def test_an_outage_keeps_the_newest_and_forgets_what_it_replaces():
    writer = faulty(Fault("open", times=10**6))
    writer.submit(job(1), state_at(1))
    events_until(writer, Failed)
    for step in range(2, 6):
        assert writer.submit(job(step), state_at(step)).accepted
    until(lambda: writer.poll() and [held.step for held in writer.unfinished] == [5])
    writer.close()


@pytest.mark.parametrize("kind", ["denied", "missing", "clock", "conflict", "other"])
def test_what_cannot_pass_by_itself_is_given_up_at_once_and_the_next_save_works(kind, caplog):
    writer = faulty(Fault("open", kind=kind))
    writer.submit(job(1), state_at(1))
    (event,) = events_until(writer, Failed)
    assert (event.kind, event.will_retry) == (kind, False)
    assert "the checkpoint of step 1 (step) is given up: scripted: open of ck" in caplog.text
    assert writer.unfinished == []
    writer.submit(job(2), state_at(2))
    assert writer.flush(30.0) == []
    assert writer.counts.given_up == 1
    writer.close()


def test_a_flush_also_names_what_was_given_up():
    writer = faulty(Fault("open", kind="denied"))
    writer.submit(job(1), state_at(1))
    assert writer.flush(30.0) == [job(1)]
    writer.close()


def test_an_error_that_is_none_of_the_store_is_told_without_secrets():
    def broken(store, prefix, job, write):
        raise KeyError("http://me:hunter22@host")

    writer = make_writer(Target(lambda: (MemoryStore(), ""), broken))
    writer.submit(job(1), state_at(1))
    (event,) = events_until(writer, Failed)
    assert (event.kind, event.message) == ("other", "KeyError: 'http://***@host'")
    writer.close()


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


def test_a_state_that_cannot_be_saved_harms_no_later_one(tmp_path):
    writer = make_writer(folder_target(tmp_path))
    with pytest.raises(ValueError, match="cannot be saved"):
        writer.submit(job(1), {"bad": lambda: 0, "weight": torch.zeros(1)})
    assert writer.submit(job(2), state_at(2)).accepted
    assert writer.flush(30.0) == []
    writer.close()
