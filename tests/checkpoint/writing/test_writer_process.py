"""Cases 3, 4, 8 and 21 with a real uploader process and a directory."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dflash_lightning.checkpoint.writing.writer_process import ProcessChannel
from tests.checkpoint.writing.writers import (
    PATIENCE_S,
    TRAINER,
    folder_target,
    job,
    make_writer,
    state_at,
    stored_steps,
    until,
)

pytestmark = pytest.mark.slow  # the process imports torch


def test_a_grown_state_reaches_a_running_uploader(folder):
    writer = make_writer(folder_target(folder), shared=True, capacity=1000)
    for step in (1, 2, 3, 4):
        assert writer.submit(job(step, "best", must_keep=True), state_at(step)).accepted
        assert writer.flush(PATIENCE_S) == []
    assert stored_steps(folder) == [1, 2, 3, 4]
    writer.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_nobody_spins_while_a_dead_uploader_cannot_be_replaced_yet(stopped, folder):
    channel = ProcessChannel(folder_target(folder))
    os.kill(channel.pid, signal.SIGKILL)
    until(lambda: channel.death() is not None)
    if stopped:
        channel.stop(0.0)  # its pipe is closed
    begin = time.monotonic()
    channel.wait(0.3)
    assert time.monotonic() - begin >= 0.3
    assert channel.reports() == []
    channel.stop(0.0)


def test_an_interpreter_that_ends_with_a_thread_in_an_upload_publishes_nothing(folder, hold):
    wait = "from pathlib import Path\nwhile not list(Path(folder).glob('data/.*')): time.sleep(0.01)\n"
    arguments = [str(folder), str(hold), "thread", "7"]
    subprocess.run([sys.executable, "-c", TRAINER + wait, *arguments], check=True, timeout=60)
    assert not list(folder.glob("data/*.ckpt"))
    assert not list(folder.glob("manifests/*"))
