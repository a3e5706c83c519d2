"""Case 11: an outage is outlived with the newest snapshot, and told once a minute."""

import logging

import pytest

from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.writing.announce import Announcer
from dflash_lightning.checkpoint.writing.events import Durable, Failed
from tests.checkpoint.over_s3 import stored_step, writer_to
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


def test_case_11_a_long_outage_is_told_once_a_minute(caplog):
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


@pytest.mark.slow
@pytest.mark.usefixtures("quick_retries")
def test_case_11_a_server_that_is_killed_and_started_again(
    weed, s3_env, s3_uri, s3_settings, tmp_path, caplog
):
    settings = weed.settings(max_attempts=1, connect_timeout_s=1.0)
    writer = writer_to(s3_uri, settings)
    try:
        weed.kill()
        for step in range(1, 6):  # training goes on
            assert writer.submit(job(step), state_at(step)).accepted
            missed = [event for event in events_until(writer, Failed) if isinstance(event, Failed)]
            assert all(event.kind == "endpoint" and event.will_retry for event in missed)
        until(lambda: writer.poll() is not None and [held.step for held in writer.unfinished] == [5])
    finally:
        weed.start()
    assert [event.job.step for event in events_until(writer, Durable) if isinstance(event, Durable)] == [5]
    writer.close()
    assert stored_step(s3_uri, s3_settings, tmp_path) == 5
    told = [r.getMessage() for r in caplog.records if "is not stored yet" in r.getMessage()]
    assert len(told) == 1
