"""Case 14: shared memory that cannot be had is noticed before it is mapped; a thread writes then."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.snapshots.arenas import Arenas

CAPACITY = 1 << 22


def no_room(fd, start, size):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_case_14_shared_memory_that_cannot_be_reserved_is_never_mapped():
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="No space left"):
        Arena.shared(CAPACITY, reserve=no_room)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_case_14_without_shared_memory_the_arenas_are_private_and_one_warning_says_why(caplog):
    arenas = Arenas(2, CAPACITY, shared=True, reserve=no_room)
    assert not arenas.shared
    assert [arena.fd for arena in arenas] == [None, None]
    (record,) = caplog.records
    assert f"memfd needs {2 * CAPACITY} bytes for 2 snapshots" in record.getMessage()
    assert "bytes of memory are free (No space left on device)" in record.getMessage()
    arenas.close()


TRAINER = """
import resource
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.writing.attempt import Target
from tests.checkpoint.saving import steps
from tests.checkpoint.writing.writers import job, make_writer, state_at
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # no file in memory may be larger either
store = MemoryStore()
writer = make_writer(Target(lambda: (store, "ck"), publish), shared=True, capacity=1 << 22)
assert type(writer.channel).__name__ == "ThreadChannel"
assert writer.submit(job(1), state_at(1)).accepted
assert writer.flush(60.0) == []
writer.close()
print(steps(store, "ck"))
"""


@pytest.mark.slow
def test_case_14_a_process_with_too_little_shared_memory_lives_and_stores_with_a_thread():
    ended = subprocess.run([sys.executable, "-c", TRAINER], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr  # -7 would be SIGBUS
    assert ended.stdout == "[1]\n"
    assert "no shared memory for checkpoints" in ended.stderr
