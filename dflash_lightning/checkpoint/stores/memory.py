"""Objects in this process's memory: the twin of S3 for tests, with nothing that could fail by itself.

in    calls of `ObjectStore`; faults are scripted around it by `stores/faults.py`
law   what can be seen from outside equals what S3 would show, uploads that are pending included
"""

import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from itertools import count

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import require_key
from dflash_lightning.checkpoint.stores.protocol import (
    BytesLike,
    ObjectFacts,
    ObjectStore,
    PendingUpload,
    Upload,
)


class MemoryStore:
    """`objects` may be looked at and damaged by tests."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.objects: dict[str, bytes] = {}
        self.modified: dict[str, float] = {}
        self.pending: dict[str, PendingUpload] = {}
        self._ids = count(1)
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes, *, only_if_absent: bool = False) -> None:
        require_key(key)
        with self._lock:
            if only_if_absent and key in self.objects:
                raise StoreError(f"{self.uri(key)} exists already", kind="conflict")
            self.objects[key], self.modified[key] = bytes(data), time.time()

    def open_upload(self, key: str, *, size_hint: int) -> Upload:
        require_key(key)
        with self._lock:
            pending = PendingUpload(key, f"upload-{next(self._ids)}", time.time())
            self.pending[pending.upload_id] = pending
        return _MemoryUpload(self, pending)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        require_key(key)
        with self._lock:
            if key not in self.objects:
                raise StoreError(f"there is no object {self.uri(key)}", kind="missing")
            return self.objects[key][start:stop]

    def head(self, key: str) -> ObjectFacts | None:
        require_key(key)
        with self._lock:
            return self._facts(key) if key in self.objects else None

    def list(self, prefix: str) -> Iterator[ObjectFacts]:
        with self._lock:
            found = [self._facts(key) for key in sorted(self.objects) if key.startswith(prefix)]
        return iter(found)

    def delete(self, keys: Sequence[str]) -> dict[str, StoreError]:
        for key in keys:
            require_key(key)
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)
        return {}

    def list_uploads(self, prefix: str) -> Sequence[PendingUpload]:
        with self._lock:
            return [pending for pending in self.pending.values() if pending.key.startswith(prefix)]

    def abort_upload(self, pending: PendingUpload) -> None:
        with self._lock:
            self.pending.pop(pending.upload_id, None)

    def commit(self, pending: PendingUpload, data: bytes) -> ObjectFacts:
        """Only for its own uploads. Raises StoreError when the upload was aborted meanwhile, by anyone."""
        with self._lock:
            if self.pending.pop(pending.upload_id, None) is None:
                raise StoreError(f"the upload of {self.uri(pending.key)} was aborted", kind="missing")
            self.objects[pending.key], self.modified[pending.key] = data, time.time()
            return self._facts(pending.key)

    def uri(self, key: str) -> str:
        return f"memory://{self.name}/{key}"

    def quick(self) -> ObjectStore:
        return self

    def _facts(self, key: str) -> ObjectFacts:
        data = self.objects[key]
        crc32 = f"{zlib.crc32(data):08x}"
        return ObjectFacts(key, len(data), self.modified[key], crc32, crc32)


class _MemoryUpload:
    def __init__(self, store: MemoryStore, pending: PendingUpload) -> None:
        self._store = store
        self._pending = pending
        self._data = bytearray()

    def write(self, data: BytesLike) -> int:
        self._data += data
        return len(data) if not isinstance(data, memoryview) else data.nbytes

    def flush(self) -> None:
        pass

    def finish(self) -> ObjectFacts:
        return self._store.commit(self._pending, bytes(self._data))

    def abort(self) -> None:
        self._data.clear()
        self._store.abort_upload(self._pending)

    def pending(self) -> PendingUpload:
        return self._pending

    def failure(self) -> StoreError | None:
        return None


_named: dict[str, ObjectStore] = {}


def named_store(name: str) -> ObjectStore:
    """The store behind memory://name in this process: the same one at every call."""
    return _named.setdefault(name, MemoryStore(name))


def name_store(name: str, store: ObjectStore) -> None:
    """Let memory://name mean `store`, for instance one with scripted faults."""
    _named[name] = store
