"""Case 3: the uploader process outlives a killed trainer, stores what it has, and leaves."""

import os
import signal
import subprocess
import sys

import pytest

from tests.checkpoint.writing.writers import (
    TRAINER,
    gone,
    pending_files,
    stored_steps,
    until,
)

pytestmark = pytest.mark.slow


KILLED = """
helper = os.fork()
if not helper:
    time.sleep(120)
    os._exit(0)
print(writer.channel.pid, helper, flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize("moment", ["before the uploader has started", "during the upload"])
def test_case_03_a_killed_trainer_still_gets_its_checkpoint_and_leaves_nobody_behind(folder, hold, moment):
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
