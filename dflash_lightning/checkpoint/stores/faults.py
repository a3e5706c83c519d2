"""A store that fails as a script says: for tests of what surrounds it, in milliseconds and always alike.

in    any store, and a schedule of faults: at call n of operation x, do y
out   the same store, a log of every call in order
law   without a schedule it changes nothing; after "die" nothing more reaches the store behind it
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.fault_script import Event, Fault, Operation, Script, damaged
from dflash_lightning.checkpoint.stores.protocol import (
    BytesLike,
    ObjectFacts,
    ObjectStore,
    PendingUpload,
    Upload,
)

T = TypeVar("T")


class FaultyStore:
    """`store` is what a process started later would find. Uploads follow the script as well."""

    def __init__(self, store: ObjectStore, *faults: Fault) -> None:
        self.store = store
        self.script = Script(*faults)

    @property
    def events(self) -> Sequence[Event]:
        return self.script.events

    def put(self, key: str, data: bytes, *, only_if_absent: bool = False) -> None:
        fault = self.script.begin("put", key)
        self.store.put(key, damaged(data, fault, up=True), only_if_absent=only_if_absent)
        self.script.end(fault)

    def open_upload(self, key: str, *, size_hint: int) -> Upload:
        upload = self._call("open", key, lambda: self.store.open_upload(key, size_hint=size_hint))
        return _FaultyUpload(self.script, upload, key)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        fault = self.script.begin("read", key)
        data = self.store.read(key, start, stop)
        self.script.end(fault)
        return damaged(data, fault, up=False)

    def head(self, key: str) -> ObjectFacts | None:
        return self._call("head", key, lambda: self.store.head(key))

    def list(self, prefix: str) -> Iterator[ObjectFacts]:
        return self._call("list", prefix, lambda: self.store.list(prefix))

    def delete(self, keys: Sequence[str]) -> dict[str, StoreError]:
        return self._call("delete", next(iter(keys), ""), lambda: self.store.delete(keys))

    def list_uploads(self, prefix: str) -> Sequence[PendingUpload]:
        return self._call("list_uploads", prefix, lambda: self.store.list_uploads(prefix))

    def abort_upload(self, pending: PendingUpload) -> None:
        self._call("abort_upload", pending.key, lambda: self.store.abort_upload(pending))

    def uri(self, key: str) -> str:
        return self.store.uri(key)

    def quick(self) -> ObjectStore:
        return self

    def _call(self, operation: Operation, key: str, work: Callable[[], T]) -> T:
        fault = self.script.begin(operation, key)
        result = work()
        self.script.end(fault)
        return result


class _FaultyUpload:
    def __init__(self, script: Script, upload: Upload, key: str) -> None:
        self._script = script
        self._upload = upload
        self._key = key
        self._crc32 = 0
        self._failure: StoreError | None = None

    def write(self, data: BytesLike) -> int:
        try:
            fault = self._script.begin("write", self._key)
            written = self._upload.write(damaged(bytes(data), fault, up=True))
            self._script.end(fault)
        except StoreError as error:
            self._failure = error
            raise
        self._crc32 = zlib.crc32(data, self._crc32)
        return written

    def flush(self) -> None:
        self._upload.flush()

    def finish(self) -> ObjectFacts:
        if self._failure is not None:
            raise self._failure
        fault = self._script.begin("finish", self._key)
        facts = self._upload.finish()
        self._script.end(fault)
        return replace(facts, crc32=f"{self._crc32:08x}")

    def abort(self) -> None:
        with suppress(StoreError):  # as every store: what could not be freed stays pending
            fault = self._script.begin("abort", self._key)
            self._upload.abort()
            self._script.end(fault)

    def pending(self) -> PendingUpload:
        return self._upload.pending()

    def failure(self) -> StoreError | None:
        return self._failure or self._upload.failure()
