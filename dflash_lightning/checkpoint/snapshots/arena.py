"""Room for one snapshot: memory that was reserved and touched long before it is needed.

in    bytes; shared with the uploader process, or private to this one
out   an Arena: a buffer, the number of the save it holds, and a claim on it
law   one holder at a time, across processes: a claim is taken without waiting, and a process that dies loses
      its claims, so a dead uploader cannot lock the trainer out
law   nothing is mapped that was not reserved first: an over-committed mapping ends the trainer with SIGBUS at
      some later write, while `posix_fallocate` says at once that there is no room

The number changes under a claim only: 0 while bytes are written, so half a snapshot is never taken for one.
"""

import fcntl
import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress

HEADER_BYTES = 64
Reserve = Callable[[int, int, int], None]


class Arena:
    """`fd` is None for private memory. Use `shared`, `private` or `attached`."""

    def __init__(self, capacity: int, *, fd: int | None) -> None:
        size = HEADER_BYTES + capacity
        flags = mmap.MAP_SHARED if fd is not None else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.capacity = capacity
        """Bytes a snapshot may take."""
        self.fd = fd
        self._view = memoryview(mmap.mmap(-1 if fd is None else fd, size, flags=flags))
        self.buffer = self._view[HEADER_BYTES:]
        self._number = self._view[:8].cast("q")
        self._lock = threading.Lock()

    @classmethod
    def shared(cls, capacity: int, *, reserve: Reserve = os.posix_fallocate) -> "Arena":
        """Raises: OSError where memory for it cannot be reserved."""
        fd = os.memfd_create("dflash-snapshot")  # in no folder: nothing to clean up, no limit of /dev/shm
        try:
            reserve(fd, 0, HEADER_BYTES + capacity)
            arena = cls(capacity, fd=fd)
        except OSError:
            os.close(fd)
            raise
        arena._touch()
        return arena

    @classmethod
    def private(cls, capacity: int) -> "Arena":
        arena = cls(capacity, fd=None)
        arena._touch()
        return arena

    @classmethod
    def attached(cls, fd: int, capacity: int) -> "Arena":
        """The same memory in another process, from a descriptor that it then owns."""
        return cls(capacity, fd=fd)

    @property
    def number(self) -> int:
        """Of the save whose snapshot is complete in here; 0 for none."""
        return self._number[0]

    @number.setter
    def number(self, number: int) -> None:
        self._number[0] = number

    def claim(self) -> bool:
        """True when it is ours until `release`; False, at once, when another holds it."""
        if not self._lock.acquire(blocking=False):
            return False
        if self.fd is not None:
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._lock.release()
                return False
        return True

    def release(self) -> None:
        if self.fd is not None:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)
        self._lock.release()

    def retire(self, number: int) -> bool:
        """Give up the snapshot inside. False when it is being uploaded, or that has just ended."""
        if not self.claim():
            return False
        inside = self.number == number
        if inside:
            self.number = 0
        self.release()
        return inside

    def close(self) -> None:
        """The memory goes when the last tensor that looks at it does."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        for view in (self._number, self.buffer, self._view):
            with suppress(BufferError):
                view.release()

    def _touch(self) -> None:
        """Write to every page now: else the first snapshot pays for it, 7 to 9 times a copy."""
        pages = self._view[:: mmap.PAGESIZE]
        pages[:] = bytes(len(pages))
