"""Case 11: an outage is outlived with the newest snapshot, and told once a minute."""

import logging

import pytest

from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.writing.events import Durable, Failed
from tests.checkpoint.writing.writers import (
    events_until,
    faulty,
    job,
    kinds,
    state_at,
    until,
)


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("kind", ["transient", "endpoint", "corrupt", "credentials", "full"])
def test_case_11_an_outage_is_outlived_with_one_warning(kind, caplog):
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


@pytest.mark.usefixtures("quick_retries")
def test_case_11_an_outage_keeps_the_newest_and_forgets_what_it_replaces():
    writer = faulty(Fault("open", times=10**6))
    writer.submit(job(1), state_at(1))
    events_until(writer, Failed)
    for step in range(2, 6):
        assert writer.submit(job(step), state_at(step)).accepted
    until(lambda: writer.poll() and [held.step for held in writer.unfinished] == [5])
    writer.close()
