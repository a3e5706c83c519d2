"""One object on its way to S3: a stream cut into parts, a few of them sent side by side.

in    bytes from `torch.save`, in any pieces
out   an object whose length and checksum the server has confirmed
law   memory is upload_threads + 2 parts, whatever the size; only `finish` commits; a part that failed ends it
"""

import zlib
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.protocol import BytesLike, ObjectFacts, PendingUpload
from dflash_lightning.checkpoint.stores.s3_multipart import Multipart, Part
from dflash_lightning.checkpoint.stores.settings import StoreSettings

_MOST_PARTS = 10_000
_PLANNED_PARTS = 9_000
"""Fewer than S3 allows: `size_hint` knows nothing of what the file format adds."""
_ABORT_PATIENCE_S = 10.0
"""For parts still on their way when all is given up: the server may keep one that arrives later."""


def part_bytes(size_hint: int, smallest: int) -> int:
    """Bytes per part so that an object of about `size_hint` bytes has at most 9,000 of them."""
    return max(smallest, -(-size_hint // _PLANNED_PARTS))


class S3Upload:
    """Used by one thread; its parts are sent by others."""

    def __init__(self, multipart: Multipart, settings: StoreSettings, *, size_hint: int) -> None:
        self._multipart = multipart
        self._part_bytes = part_bytes(size_hint, settings.part_bytes)
        self._threads = ThreadPoolExecutor(settings.upload_threads, "part")
        self._free: SimpleQueue[bytearray | None] = SimpleQueue()
        for _ in range(settings.upload_threads + 1):
            self._free.put(None)  # a buffer not made yet: small objects never need it
        self._buffer = bytearray(self._part_bytes)
        self._filled = 0
        self._size = 0
        self._crc32 = 0
        self._parts: list[Future[Part]] = []
        self._failure: StoreError | None = None
        self._over = False

    def write(self, data: BytesLike) -> int:
        view = memoryview(data).cast("B")
        taken = 0
        while taken < len(view):
            self._raise_failure()
            piece = view[taken : taken + self._part_bytes - self._filled]
            self._buffer[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            taken += len(piece)
            if self._filled == self._part_bytes:
                self._send_buffer()
        self._crc32 = zlib.crc32(view, self._crc32)
        self._size += len(view)
        return len(view)

    def flush(self) -> None:
        pass

    def finish(self) -> ObjectFacts:
        self._raise_failure()
        if self._filled or not self._parts:  # S3 has no object without parts
            self._send_buffer()
        wait(self._parts)
        self._threads.shutdown()
        self._raise_failure()
        self._over = True
        return self._multipart.complete([part.result() for part in self._parts], self._size, self._crc32)

    def abort(self) -> None:
        self._over = True
        self._failure = self._failure or StoreError(
            f"the upload of {self._multipart.uri} is over", kind="other"
        )
        self._threads.shutdown(wait=False, cancel_futures=True)
        wait(self._parts, timeout=_ABORT_PATIENCE_S)
        self._multipart.abort()

    def pending(self) -> PendingUpload:
        return self._multipart.pending

    def failure(self) -> StoreError | None:
        return self._failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._over:
            raise StoreError(f"the upload of {self._multipart.uri} is over", kind="other")

    def _send_buffer(self) -> None:
        """Waits for a free buffer, which bounds the memory and slows the writer down to the network."""
        number = len(self._parts) + 1
        if number > _MOST_PARTS:
            raise StoreError(
                f"{self._multipart.uri} has more than {_MOST_PARTS:,} parts of {self._part_bytes:,} bytes; "
                "raise part_bytes, or tell its size before",
                kind="other",
            )
        self._parts.append(self._threads.submit(self._send, number, self._buffer, self._filled))
        self._buffer, self._filled = self._free.get() or bytearray(self._part_bytes), 0

    def _send(self, number: int, buffer: bytearray, filled: int) -> Part:
        try:
            if self._failure is not None:  # the rest would be sent in vain
                raise self._failure
            return self._multipart.send(number, buffer if filled == len(buffer) else bytes(buffer[:filled]))
        except StoreError as error:
            self._failure = self._failure or error
            raise
        finally:
            self._free.put(buffer)
