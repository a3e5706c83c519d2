"""Case 14: shared memory that cannot be had is noticed before it is mapped; a thread writes then."""

import errno
import os
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
