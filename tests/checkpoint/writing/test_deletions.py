"""Deletions in a line of their own: what waits there, what fails there, and who waits for them (nobody)."""

import threading

from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.deletions import Deletions
from tests.checkpoint.saving import steps
from tests.checkpoint.writing.writers import job, make_writer, state_at, until


def test_of_what_waits_the_newest_is_done():
    begun, go_on, done = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        go_on.wait()
        done.append(1)

    deletions = Deletions()
    deletions.submit(first)
    begun.wait()
    for number in (2, 3, 4):
        deletions.submit(lambda number=number: done.append(number))
    go_on.set()
    deletions.finish(30.0)
    assert done == [1, 4]


def test_one_that_fails_ends_nothing_and_says_no_secret(caplog):
    def fail():
        raise KeyError("http://me:hunter22@host")

    deletions, done = Deletions(), threading.Event()
    deletions.submit(fail)
    until(lambda: "older checkpoints were not deleted: KeyError: 'http://***@host'" in caplog.text)
    deletions.submit(done.set)
    assert done.wait(30.0)
    deletions.finish(30.0)


def test_an_end_without_work_is_immediate_and_one_with_slow_work_has_a_limit():
    Deletions().finish(1e9)
    never, deletions = threading.Event(), Deletions()
    deletions.submit(never.wait)
    deletions.finish(0.01)
    never.set()


class SlowToDelete(MemoryStore):
    """Deletions hang until they may go on."""

    def __init__(self):
        super().__init__()
        self.asked, self.open = threading.Event(), threading.Event()

    def delete(self, keys):
        self.asked.set()
        self.open.wait()
        return super().delete(keys)


def slow_writer():
    store = SlowToDelete()
    return store, make_writer(Target(lambda: (store, "ck"), publish))


def test_an_end_does_not_wait_for_a_deletion_that_hangs(monkeypatch):
    monkeypatch.setattr("dflash_lightning.checkpoint.writing.writer.CLOSE_S", 0.05)
    store, writer = slow_writer()
    for step in (1, 2):
        writer.submit(job(step, keep_last=1), state_at(step))
        assert writer.flush(30.0) == []
    writer.close()
    assert steps(store, "ck") == [1, 2]  # the next save of this run finds it
    store.open.set()
