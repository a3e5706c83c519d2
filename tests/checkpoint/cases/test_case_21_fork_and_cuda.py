"""Case 21: the uploader is a fresh interpreter, never a fork of the trainer."""

import os
import pickle
import signal
import sys
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from dflash_lightning.checkpoint.writing.priority import group_nice
from tests.checkpoint.writing.writers import (
    PATIENCE_S,
    folder_target,
    gone,
    job,
    make_writer,
    pending_files,
    state_at,
    stored_steps,
    until,
)

pytestmark = pytest.mark.slow


def test_case_21_the_uploader_is_fresh_polite_and_deaf_to_signals(folder, hold, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "only-in-the-environment")
    target = folder_target(folder, hold)
    writer = make_writer(target, shared=True)
    pid = writer.channel.pid
    writer.submit(job(1), state_at(1))
    until(lambda: pending_files(folder))
    assert os.getsid(pid) == pid
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    ours, theirs = (Path(f"/proc/{number}/autogroup") for number in ("self", pid))
    if theirs.exists() and theirs.read_text().strip():  # where niceness counts within a session only
        until(lambda: group_nice(theirs.read_text()) == min(19, group_nice(ours.read_text()) + 10))
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert command.startswith(sys.executable.encode())  # a new interpreter, no fork of this one
    assert b"only-in-the-environment" not in command + pickle.dumps(target)
    assert b"only-in-the-environment" in Path(f"/proc/{pid}/environ").read_bytes()
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    hold.unlink()
    assert writer.flush(PATIENCE_S) == []
    assert writer.counts.restarts == 0
    writer.close()
    assert gone(pid)
    assert stored_steps(folder) == [1]


@pytest.mark.parametrize("workers", ["before the writer", "after the writer"])
def test_case_21_beside_data_workers_that_are_forked(workers, folder):
    """Their copies of the trainer's end of the pipe keep nobody alive, and nobody waits for a lock."""
    rows = DataLoader(range(64), num_workers=2, multiprocessing_context="fork", persistent_workers=True)
    if workers == "before the writer":
        batches = iter(rows)
    writer = make_writer(folder_target(folder), shared=True)
    if workers == "after the writer":
        batches = iter(rows)
    for step, _ in enumerate(batches, start=1):
        if step % 8 == 0:
            assert writer.submit(job(step), state_at(step)).accepted
        writer.poll()
    assert writer.flush(PATIENCE_S) == []
    assert stored_steps(folder)[-1] == 64
    pid = writer.channel.pid
    writer.close()
    assert gone(pid)
    del batches
