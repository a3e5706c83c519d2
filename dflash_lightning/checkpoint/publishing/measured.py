"""What is written to an upload, measured on its way: size and checksums for the manifest.

in    bytes, in pieces of any size
out   the same bytes to the upload; at the end a DataFile
law   the parts and the whole depend on the bytes alone, not on how they were cut into pieces
"""

import zlib

from dflash_lightning.checkpoint.manifest import DataFile, Part
from dflash_lightning.checkpoint.stores.protocol import BytesLike, Upload

PART_BYTES = 16 << 20
"""Bytes of a part: large enough for one request, small enough to hold several at once."""


class MeasuredFile:
    """What `torch.save` writes into."""

    def __init__(self, upload: Upload, *, part_bytes: int = PART_BYTES) -> None:
        self.size = 0
        self._upload = upload
        self._part_bytes = part_bytes
        self._crc32 = 0
        self._parts: list[Part] = []
        self._start = 0
        self._part_crc32 = 0

    def write(self, data: BytesLike) -> int:
        """Bytes taken: all. Raises the StoreError of the upload."""
        view = memoryview(data).cast("B")
        self._upload.write(view)
        self._crc32 = zlib.crc32(view, self._crc32)
        taken = 0
        while taken < len(view):
            piece = view[taken : taken + self._part_bytes - (self.size - self._start)]
            self._part_crc32 = zlib.crc32(piece, self._part_crc32)
            self.size += len(piece)
            taken += len(piece)
            if self.size - self._start == self._part_bytes:
                self._close_part()
        return len(view)

    def flush(self) -> None:
        """Nothing, as for uploads."""

    def measured(self, key: str) -> DataFile:
        """Call once, after the last write. `key` is below the prefix."""
        if self.size > self._start:
            self._close_part()
        return DataFile(key, self.size, f"{self._crc32:08x}", tuple(self._parts))

    def _close_part(self) -> None:
        self._parts.append(Part(self._start, self.size - self._start, f"{self._part_crc32:08x}"))
        self._start, self._part_crc32 = self.size, 0
