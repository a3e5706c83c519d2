"""One file on its way: a temporary beside the target, fsync, then one rename.

law   the target is never opened for writing, so a full disk or a kill leaves the last good file as it was
"""

import os
import time
import weakref
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.local_errors import translated
from dflash_lightning.checkpoint.stores.protocol import BytesLike, ObjectFacts, PendingUpload

PENDING = ".pending"
"""Ending of temporary files: `.<name>.<id>.pending`, beside the file they will become."""
_BUFFER_BYTES = 1 << 20


class LocalUpload:
    """Bytes on their way to `target`; what `finish` tells carries `key`."""

    def __init__(self, target: Path, key: str, *, only_if_absent: bool = False) -> None:
        self._target = target
        self._key = key
        self._only_if_absent = only_if_absent
        self._temporary = self._target.with_name(f".{self._target.name}.{uuid4().hex[:8]}{PENDING}")
        self._started = time.time()
        self._size = 0
        self._crc32 = 0
        self._failure: StoreError | None = None
        with translated("write", self._target):
            self._file = _create(self._temporary)
        weakref.finalize(self, self._file.close)  # forgotten uploads: no warning, no leak, and no commit

    def write(self, data: BytesLike) -> int:
        self._raise_failure()
        view = memoryview(data).cast("B")
        try:
            with translated("write", self._target, size=self._size + len(view)):
                self._file.write(view)
        except StoreError as error:
            self._failure = error
            raise
        self._size += len(view)
        self._crc32 = zlib.crc32(view, self._crc32)
        return len(view)

    def flush(self) -> None:
        pass

    def finish(self) -> ObjectFacts:
        self._raise_failure()
        with translated("write", self._target, size=self._size):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._publish()
            _sync_folder(self._target.parent)
        return ObjectFacts(self._key, self._size, time.time(), f"{self._crc32:08x}", None)

    def abort(self) -> None:
        # Closing writes what is buffered, which fails again on a full disk.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def pending(self) -> PendingUpload:
        return PendingUpload(self._key, self._temporary.name, self._started)

    def failure(self) -> StoreError | None:
        return self._failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._file.closed:
            raise StoreError(f"the upload of {self._target} is over", kind="other")

    def _publish(self) -> None:
        if not self._only_if_absent:
            self._temporary.replace(self._target)
            return
        try:
            os.link(self._temporary, self._target)  # the one call like a rename that refuses to replace
        except FileExistsError as error:
            raise StoreError(f"{self._target} exists already", kind="conflict") from error
        self._temporary.unlink()


def _create(path: Path) -> BinaryIO:
    """Once more where another process dropped the empty folder between the two calls."""
    for _ in range(2):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return path.open("xb", buffering=_BUFFER_BYTES)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb", buffering=_BUFFER_BYTES)


def _sync_folder(folder: Path) -> None:
    """Without it a power loss may undo the rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
