"""The arenas of one writer: how many, where, and what happens when the state grows.

law   two arenas at least: one may be on its way to the store while the next snapshot is taken
law   shared memory that cannot be had is no error: the arenas become private, and the writer a thread
"""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dflash_lightning.checkpoint.snapshots.arena import Arena, Reserve
from dflash_lightning.checkpoint.snapshots.pinning import pin, unpin

log = logging.getLogger(__name__)
MOST, LEAST = 3, 2
_CGROUP = Path("/sys/fs/cgroup")
_LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
_STATISTICS = ("memory.stat", "memory/memory.stat")


def arena_count(capacity: int, available: int) -> int:
    """Three arenas, where they take at most half of the memory that is available; else two.

    Raises: MemoryError, where not even two of `capacity` bytes fit.
    """
    if MOST * capacity <= available // 2:
        return MOST
    if LEAST * capacity <= available:
        return LEAST
    raise MemoryError(
        f"checkpoints in the background need room for {LEAST} snapshots of {capacity} bytes each, but only "
        f"{available} bytes of memory are available; give the job more memory, or save without S3Checkpoint"
    )


def available_bytes() -> int:
    """What this process may still take: of the machine, and of the container that it runs in."""
    machine = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        machine = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return max(0, min(machine, *_container_bytes()))


class Arenas:
    """Raises: MemoryError where even private memory is short."""

    def __init__(
        self,
        count: int | None,
        capacity: int,
        *,
        shared: bool,
        pin: bool = False,
        reserve: Reserve = os.posix_fallocate,
    ) -> None:
        available = available_bytes()
        fitting = arena_count(capacity, available)
        count = fitting if count is None else count
        if count < LEAST:
            raise ValueError(f"a writer needs {LEAST} arenas or more, got {count}")
        self.shared = shared
        """False: private memory, which only a thread of this process can write from."""
        self._reserve = reserve
        self._pin = pin
        self._all: list[Arena] = []
        self._pinned: list[Arena] = []
        try:
            self._fill(count, capacity)
        except OSError as error:
            if not shared:
                raise
            log.warning(
                "no shared memory for checkpoints: memfd needs %d bytes for %d snapshots, %d bytes of memory "
                "are free (%s). They are kept in private memory and written by a thread, which slows steps "
                "more than a process does",
                *(count * capacity, count, available, error.strerror or error),
            )
            self.close()
            self.shared = False
            self._fill(count, capacity)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, slot: int) -> Arena:
        return self._all[slot]

    def __iter__(self) -> Iterator[Arena]:
        return iter(self._all)

    def grow(self, slot: int, num_bytes: int) -> Arena:
        """A larger arena in this place, with room to spare. What was in it is gone.

        Raises: OSError where memory is short; the old one then stays.
        """
        log.warning(
            "the training state grew from at most %d to %d bytes: taking a larger snapshot buffer, which "
            "makes this one save slower",
            *(self._all[slot].capacity, num_bytes),
        )
        larger = self._new(num_bytes + num_bytes // 16)
        self._close(self._all[slot])
        self._all[slot] = larger
        return larger

    def close(self) -> None:
        for arena in self._all:
            self._close(arena)
        self._all = []

    def _close(self, arena: Arena) -> None:
        if arena in self._pinned:
            self._pinned.remove(arena)
            unpin(arena)
        arena.close()

    def _fill(self, count: int, capacity: int) -> None:
        for _ in range(count):
            self._all.append(self._new(capacity))

    def _new(self, capacity: int) -> Arena:
        # Also where the reservation would succeed: in a container the kernel would end the trainer instead.
        if capacity > available_bytes():
            raise OSError(errno.ENOMEM, f"{capacity} bytes are not available")
        arena = Arena.shared(capacity, reserve=self._reserve) if self.shared else Arena.private(capacity)
        if self._pin and pin(arena):
            self._pinned.append(arena)
        return arena


def _container_bytes() -> Iterator[int]:
    """None, or one number for each limit that is set. Cached files count as free: they give way."""
    for (limit, usage), statistics in zip(_LIMITS, _STATISTICS, strict=True):
        with suppress(OSError, ValueError):
            free = int((_CGROUP / limit).read_text()) - int((_CGROUP / usage).read_text())
            lines = (_CGROUP / statistics).read_text().splitlines()
            cached = [int(line.split()[1]) for line in lines if line.startswith("inactive_file ")]
            yield free + sum(cached)
