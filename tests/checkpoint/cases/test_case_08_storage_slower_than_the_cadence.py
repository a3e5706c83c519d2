"""Case 8: newest wins, what must be kept stays, and no save waits."""

import pytest

from dflash_lightning.checkpoint.writing.events import Coalesced
from tests.checkpoint.writing.writers import (
    PATIENCE_S,
    begin,
    folder_target,
    job,
    kinds,
    make_writer,
    pending_files,
    state_at,
    stored_steps,
    until,
)


def test_case_08_newest_wins_and_nothing_waits(writer, gate, tmp_path, caplog):
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


def test_case_08_a_save_without_room_is_refused_told_and_counted(writer, gate, caplog):
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


@pytest.mark.slow
def test_case_08_a_store_that_stands_still_holds_nobody_up_and_gets_the_newest_and_the_best(folder, hold):
    writer = make_writer(folder_target(folder, hold), shared=True)
    writer.submit(job(1), state_at(1))
    until(lambda: pending_files(folder))
    for step in range(2, 31):
        kind = "best" if step == 10 else "step"
        assert writer.submit(job(step, kind, must_keep=kind == "best"), state_at(step)).accepted
        assert len(writer.unfinished) <= 3
    hold.unlink()
    assert writer.flush(PATIENCE_S) == []
    assert stored_steps(folder) == [1, 10, 30]
    assert (writer.counts.durable, writer.counts.coalesced) == (3, 27)
    writer.close()
