"""Case 15: at the end the newest first, until a deadline, and by name what is not durable.

Whole runs with signals and exit codes: tests/callbacks/test_s3_checkpoint.py and tests/ranks.
"""

import threading

from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.writing.attempt import Target
from tests.checkpoint.writing.writers import (
    begin,
    faulty,
    folder_target,
    job,
    kinds,
    make_writer,
    state_at,
)


def test_case_15_a_flush_takes_the_newest_first_and_names_what_is_not_durable(writer, gate):
    begin(writer, gate, job(1))
    writer.submit(job(2, "best", must_keep=True), state_at(2))
    writer.submit(job(3, "signal", must_keep=True), state_at(3))
    assert [late.step for late in writer.flush(0.05)] == [1, 2, 3]
    gate.open.set()
    assert writer.flush(30.0) == []
    assert gate.steps == [1, 3, 2]


def test_case_15_a_flush_also_names_what_was_given_up():
    writer = faulty(Fault("open", kind="denied"))
    writer.submit(job(1), state_at(1))
    assert writer.flush(30.0) == [job(1)]
    writer.close()


def test_case_15_closing_in_the_middle_publishes_nothing(tmp_path):
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


def test_case_15_what_the_last_save_makes_obsolete_is_dropped(writer, gate):
    begin(writer, gate, job(1))
    writer.submit(job(2), state_at(2))
    writer.submit(job(3, "signal", must_keep=True), state_at(3))
    assert [late.step for late in writer.flush(0.05)] == [1, 3]
    assert kinds(writer.poll()) == [("Coalesced", 2)]
    gate.open.set()
    assert writer.flush(30.0) == []
    assert gate.steps == [1, 3]
