"""Case 22: deadlines do not follow the wall clock, and a clock that is wrong is explained."""

import time
from pathlib import Path

import pytest

import dflash_lightning.checkpoint
from dflash_lightning.checkpoint.stores import open_store
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.writing.events import Durable, Failed
from tests.checkpoint.over_s3 import refusal
from tests.checkpoint.writing.writers import events_until, faulty, job, state_at

FILES = Path(dflash_lightning.checkpoint.__path__[0])


@pytest.mark.slow
def test_case_22_a_clock_that_is_wrong(proxy):
    proxy.add("answer", status=403, code="RequestTimeTooSkewed", times=None)
    error = refusal(open_store("s3://train/ck", proxy.settings())[0])
    assert error.kind == "clock"
    assert "set the clock (NTP)" in str(error)


def test_case_22_nothing_in_the_background_looks_at_the_wall_clock():
    """Pauses, deadlines and durations are those of `time.monotonic`."""
    for path in (*FILES.glob("writing/*.py"), *FILES.glob("snapshots/*.py"), FILES / "publishing/sharded.py"):
        assert "time.time()" not in path.read_text(), path.name


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("jump_s", [-86400.0, 86400.0])
def test_case_22_a_clock_that_jumps_costs_neither_patience_nor_a_checkpoint(jump_s, monkeypatch):
    writer = faulty(Fault("open", times=4))
    writer.submit(job(1), state_at(1))
    events_until(writer, Failed)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump_s)
    assert writer.flush(30.0) == []
    (event,) = [event for event in writer.poll() if isinstance(event, Durable)]
    assert 0 <= event.seconds < 3600
    assert all(e.outage_s < 3600 for e in writer.poll() if isinstance(e, Failed))
    writer.close()
