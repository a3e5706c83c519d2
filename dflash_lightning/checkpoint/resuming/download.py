"""One object to one file: parallel ranges, each verified before it is written.

in    a store, a file of a manifest, the path to write
out   the file under its name, whole; after a failure nothing new on the disk
"""

import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from dflash_lightning.checkpoint.manifest import DataFile, Part
from dflash_lightning.checkpoint.publishing.measured import PART_BYTES
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.local_errors import translated
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.verify import read_part

THREADS = 4
"""Ranges on their way at once; memory is one part for each."""


def download(
    store: ObjectStore, prefix: str, file: DataFile, path: Path, *, on_bytes: Callable[[int], None]
) -> None:
    """`on_bytes` gets the size of each part that has arrived, one call at a time.

    Raises: StoreError, of kind "full" before anything is read where the disk lacks the space.
    """
    beside = path.with_name(f".{path.name}.part")  # one name: what a kill leaves, the next try replaces
    beside.unlink(missing_ok=True)
    try:
        if _linked(store, prefix, file, beside):
            on_bytes(file.size)
        else:
            _read_ranges(store, prefix, file, beside, on_bytes)
        if not is_intact(beside, file):  # read from the disk: what happened on the way there counts as well
            uri = store.uri(join_key(prefix, file.key))
            raise StoreError(f"{uri} does not have the crc32 {file.crc32} of its manifest", kind="corrupt")
        with translated("write", path):
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def is_intact(path: Path, file: DataFile) -> bool:
    """Size and checksum of a file on the disk."""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    crc32 = 0
    with translated("read", path), path.open("rb") as opened:
        while piece := opened.read(PART_BYTES):
            crc32 = zlib.crc32(piece, crc32)
    return f"{crc32:08x}" == file.crc32


def _linked(store: ObjectStore, prefix: str, file: DataFile, beside: Path) -> bool:
    """From a directory on the same disk no byte need be copied, and retention cannot take it away."""
    if not isinstance(store, LocalStore):
        return False
    with suppress(OSError):
        os.link(store.path(join_key(prefix, file.key)), beside)
        return True
    return False


def _read_ranges(
    store: ObjectStore, prefix: str, file: DataFile, path: Path, on_bytes: Callable[[int], None]
) -> None:
    def part_to_disk(part: Part) -> int:
        data = read_part(store, prefix, file, part)
        with translated("write", path, size=file.size):
            written = 0
            while written < len(data):
                written += os.pwrite(opened.fileno(), data[written:], part.offset + written)
        return part.size

    with translated("write", path, size=file.size), path.open("xb") as opened:
        if file.size:
            os.posix_fallocate(opened.fileno(), 0, file.size)  # a full disk is found before the download
        with ThreadPoolExecutor(THREADS, "fetch") as threads:
            pending = [threads.submit(part_to_disk, part) for part in file.parts]
            try:
                for part in pending:
                    on_bytes(part.result())
            finally:
                for part in pending:
                    part.cancel()
