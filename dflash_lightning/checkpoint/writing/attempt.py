"""One attempt to store a snapshot: open the store, thaw, torch.save into the upload, publish.

out   what `Stored` tells, or the exception of the attempt; deletions for later
law   a save that is told to stop ends within one write, and nothing of it is published
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Protocol, cast, runtime_checkable

import torch

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.keeping.removal import sweep
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.snapshots.thaw import thaw
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.protocol import BytesLike, ObjectStore
from dflash_lightning.checkpoint.writing.deletions import Work
from dflash_lightning.checkpoint.writing.messages import Save, Stored


@runtime_checkable
class Writable(Protocol):
    """All that torch.save needs of a file."""

    def write(self, data: BytesLike) -> int: ...

    def flush(self) -> None: ...


Write = Callable[[Any], None]
"""Serialises into a Writable."""


@runtime_checkable
class Published(Protocol):
    """What is used of a publisher's answer."""

    @property
    def manifest_key(self) -> str: ...

    @property
    def uri(self) -> str: ...

    @property
    def retries(self) -> int: ...

    @property
    def superfluous(self) -> tuple[Manifest, ...]:
        """Older checkpoints that may go, now that this one is there."""
        ...


Publish = Callable[[ObjectStore, str, SaveJob, Write], Published]
"""Store, prefix, job, write. Returns when the manifest is there; raises StoreError."""


@dataclass(frozen=True)
class Target:
    """Where to store, and how. Picklable where functions of modules, or partials of such, are used."""

    open_store: Callable[[], tuple[ObjectStore, str]]
    """The store and the prefix in it. Asked again after most failures, since credentials change."""
    publish: Publish


class Stopped(Exception):
    """The attempt was cut short on request."""


class Attempts:
    """Keeps the store open while it works. `later` gets the deletions."""

    def __init__(self, target: Target, stopping: Callable[[], bool], later: Callable[[Work], None]) -> None:
        self._target = target
        self._stopping = stopping
        self._later = later
        self._place: tuple[ObjectStore, str] | None = None

    def store(self, save: Save, arena: Arena) -> Stored:
        """Raises: whatever the store and the publisher raise."""
        written = 0

        def write(file: Writable) -> None:
            nonlocal written
            counted = _Stoppable(file, self._stopping)
            torch.save(thaw(save.frozen, arena.buffer), cast(BinaryIO, counted))
            written = counted.written

        try:
            self._place = self._place or self._target.open_store()
            published = self._target.publish(*self._place, save.job, write)
        except Exception as error:
            if not (isinstance(error, StoreError) and error.kind == "transient"):
                self._place = None  # while a server is busy, the store remembers how much it can take
            raise
        self._later(partial(sweep, *self._place, published.superfluous))
        return Stored(save.number, published.manifest_key, published.uri, written, published.retries)


class _Stoppable:
    """The file that torch.save writes to."""

    def __init__(self, file: Writable, stopping: Callable[[], bool]) -> None:
        self._file = file
        self._stopping = stopping
        self.written = 0

    def write(self, data: BytesLike) -> int:
        if self._stopping():
            raise Stopped("the writer was told to stop")
        self.written += memoryview(data).nbytes
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()
