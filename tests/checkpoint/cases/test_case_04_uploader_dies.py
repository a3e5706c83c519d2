"""Case 4: an uploader process that dies is noticed, replaced, and its work done."""

import os
import signal

import pytest

from dflash_lightning.checkpoint.writing.events import Coalesced, Durable, Restarted
from tests.checkpoint.writing.writers import (
    PATIENCE_S,
    events_until,
    folder_target,
    job,
    make_writer,
    pending_files,
    state_at,
    stored_steps,
    until,
)

pytestmark = pytest.mark.slow


def test_case_04_a_killed_uploader_is_replaced_and_its_checkpoint_arrives(folder, hold, caplog):
    writer = make_writer(folder_target(folder, hold), shared=True)
    first = writer.channel.pid
    assert writer.submit(job(1), state_at(1)).accepted
    until(lambda: pending_files(folder))
    os.kill(first, signal.SIGKILL)
    events = events_until(writer, Restarted)
    assert [event.resubmitted for event in events if isinstance(event, Restarted)] == [(job(1),)]
    assert writer.submit(job(2, "best", must_keep=True), state_at(2)).accepted  # goes on meanwhile
    hold.unlink()
    assert writer.flush(PATIENCE_S) == []
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "the checkpoint writer died (killed by SIGKILL) and was started again; "
        "handed over once more: step 1 (step)"
    ]
    assert 2 in stored_steps(folder)
    ends = [event for event in writer.poll() if isinstance(event, Durable | Coalesced)]
    assert sorted(event.job.step for event in ends) == [1, 2]
    writer.close()
