"""Case 3: the uploader process outlives a killed trainer, stores what it has, and leaves."""

import os
import signal
import subprocess
import sys

import pytest

from dflash_lightning.checkpoint.stores import open_store
from tests.checkpoint.over_s3 import stored_step
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


OVER_S3 = """
import sys, time
from dflash_lightning.checkpoint.stores import StoreSettings
from tests.checkpoint.over_s3 import writer_to
from tests.checkpoint.writing.writers import job, state_at
uri, settings = sys.argv[1], StoreSettings(**eval(sys.argv[2]))
writer = writer_to(uri, settings, shared=True)
assert writer.submit(job(7), state_at(7)).accepted
print(writer.channel.pid, flush=True)
time.sleep(120)
"""


def test_case_03_in_a_bucket_too(weed, s3_env, s3_uri, s3_settings, tmp_path):
    settings = repr({"endpoint_url": weed.endpoint, "path_style": True})
    command = [sys.executable, "-c", OVER_S3, s3_uri, settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        uploader = int(trainer.stdout.readline())
        trainer.kill()
    until(lambda: gone(uploader))
    assert stored_step(s3_uri, s3_settings, tmp_path) == 7
    store, prefix = open_store(s3_uri, s3_settings)
    assert list(store.list_uploads(prefix)) == []
