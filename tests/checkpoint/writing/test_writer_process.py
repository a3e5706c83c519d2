"""Cases 3, 4, 8 and 21 with a real uploader process and a directory."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lightning.checkpoint.writing.events import Coalesced, Durable, Restarted
from tests.checkpoint.writing.writers import (
    events_until,
    folder_target,
    job,
    make_writer,
    state_at,
    stored_steps,
    until,
)

pytestmark = pytest.mark.slow  # the process imports torch

TRAINER = """
import os, sys, time
from tests.checkpoint.writing.writers import folder_target, job, make_writer, state_at
folder, hold, processes, step = sys.argv[1:]
writer = make_writer(folder_target(folder, hold), shared=processes == "process")
assert writer.submit(job(int(step)), state_at(int(step))).accepted
"""
KILLED = """
helper = os.fork()
if not helper:
    time.sleep(120)
    os._exit(0)
print(writer.channel.pid, helper, flush=True)
time.sleep(120)
"""


@pytest.fixture
def hold(tmp_path):
    """While this file is there, an upload stays open after its last byte."""
    path = tmp_path / "hold"
    path.touch()
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


def pending_files(folder):
    return list(Path(folder).glob("data/.*.pending"))


def gone(pid):
    """True for a process that has ended, also where nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_killed_uploader_is_replaced_and_its_checkpoint_arrives(folder, hold, caplog):
    writer = make_writer(folder_target(folder, hold), shared=True)
    first = writer.channel.pid
    assert writer.submit(job(1), state_at(1)).accepted
    until(lambda: pending_files(folder))
    os.kill(first, signal.SIGKILL)
    events = events_until(writer, Restarted)
    assert [event.resubmitted for event in events if isinstance(event, Restarted)] == [(job(1),)]
    assert writer.submit(job(2, "best", must_keep=True), state_at(2)).accepted  # goes on meanwhile
    hold.unlink()
    assert writer.flush(60.0) == []
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "the checkpoint writer died (killed by SIGKILL) and was started again; "
        "handed over once more: step 1 (step)"
    ]
    assert 2 in stored_steps(folder)
    ends = [event for event in writer.poll() if isinstance(event, Durable | Coalesced)]
    assert sorted(event.job.step for event in ends) == [1, 2]
    writer.close()


def test_the_uploader_is_fresh_polite_in_its_own_session_and_deaf_to_signals(folder, hold, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "only-in-the-environment")
    target = folder_target(folder, hold)
    writer = make_writer(target, shared=True)
    pid = writer.channel.pid
    writer.submit(job(1), state_at(1))
    until(lambda: pending_files(folder))
    assert os.getsid(pid) == pid
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert command.startswith(sys.executable.encode())  # a new interpreter, no fork of this one
    assert b"only-in-the-environment" not in command + pickle.dumps(target)
    assert b"only-in-the-environment" in Path(f"/proc/{pid}/environ").read_bytes()
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    hold.unlink()
    assert writer.flush(60.0) == []
    assert writer.counts.restarts == 0
    writer.close()
    assert gone(pid)
    assert stored_steps(folder) == [1]


def test_a_store_that_stands_still_holds_nobody_up_and_gets_the_newest_and_the_best(folder, hold):
    writer = make_writer(folder_target(folder, hold), shared=True)
    writer.submit(job(1), state_at(1))
    until(lambda: pending_files(folder))
    for step in range(2, 31):
        kind = "best" if step == 10 else "step"
        assert writer.submit(job(step, kind, must_keep=kind == "best"), state_at(step)).accepted
        assert len(writer.unfinished) <= 3
    hold.unlink()
    assert writer.flush(60.0) == []
    assert stored_steps(folder) == [1, 10, 30]
    assert (writer.counts.durable, writer.counts.coalesced) == (3, 27)
    writer.close()


def test_a_grown_state_reaches_a_running_uploader(folder):
    writer = make_writer(folder_target(folder), shared=True, capacity=1000)
    for step in (1, 2, 3, 4):
        assert writer.submit(job(step, "best", must_keep=True), state_at(step)).accepted
        assert writer.flush(60.0) == []
    assert stored_steps(folder) == [1, 2, 3, 4]
    writer.close()


@pytest.mark.parametrize("moment", ["before the uploader has started", "during the upload"])
def test_a_killed_trainer_still_gets_its_checkpoint_and_leaves_nobody_behind(folder, hold, moment):
    if moment != "during the upload":
        hold.unlink()
    arguments = [str(folder), str(hold), "process", "7"]
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER + KILLED, *arguments], stdout=subprocess.PIPE, text=True
    )
    with trainer:
        uploader, helper = map(int, trainer.stdout.readline().split())
        if moment == "during the upload":
            until(lambda: pending_files(folder))
        trainer.kill()
        trainer.wait()
        hold.unlink(missing_ok=True)
        until(lambda: gone(uploader))  # though the helper still has the trainer's end of the pipe
        assert not gone(helper)
        os.kill(helper, signal.SIGKILL)
    assert stored_steps(folder) == [7]
    assert pending_files(folder) == []


def test_an_interpreter_that_ends_with_a_thread_in_an_upload_publishes_nothing(folder, hold):
    wait = "from pathlib import Path\nwhile not list(Path(folder).glob('data/.*')): time.sleep(0.01)\n"
    arguments = [str(folder), str(hold), "thread", "7"]
    subprocess.run([sys.executable, "-c", TRAINER + wait, *arguments], check=True, timeout=60)
    assert not list(folder.glob("data/*.ckpt"))
    assert not list(folder.glob("manifests/*"))
