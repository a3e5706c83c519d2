"""Is what lies in the store what was written? Quickly by facts, or deeply by every byte.

in    a manifest or one of its files
out   nothing, or a StoreError: "missing" where something is not there, "corrupt" where it differs
law   no byte of a checkpoint is handed on before its checksum was compared with the manifest's
"""

import zlib

from dflash_lightning.checkpoint.manifest import DataFile, Manifest, Part
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore

ATTEMPTS = 3
"""Reads of a part whose bytes are wrong: a bit that flipped on the way down is right the next time."""


def check_facts(store: ObjectStore, prefix: str, file: DataFile) -> bool:
    """Existence, size, and the checksum where the store keeps one. True where it does."""
    key = join_key(prefix, file.key)
    facts = store.head(key)
    if facts is None:
        raise StoreError(f"its data {store.uri(key)} is missing", kind="missing")
    if facts.size != file.size:
        raise StoreError(
            f"{store.uri(key)} has {facts.size:,} bytes, its manifest says {file.size:,}", kind="corrupt"
        )
    if facts.crc32 not in (None, file.crc32):
        raise StoreError(
            f"{store.uri(key)} has crc32 {facts.crc32}, its manifest says {file.crc32}", kind="corrupt"
        )
    return facts.crc32 is not None


def read_part(store: ObjectStore, prefix: str, file: DataFile, part: Part) -> bytes:
    """Verified bytes of one part. Raises: StoreError, of kind "corrupt" when they stay wrong."""
    key = join_key(prefix, file.key)
    for _ in range(ATTEMPTS):
        data = store.read(key, part.offset, part.offset + part.size)
        if len(data) == part.size and f"{zlib.crc32(data):08x}" == part.crc32:
            return data
    raise StoreError(
        f"{store.uri(key)} differs from its manifest in bytes {part.offset:,} to "
        f"{part.offset + part.size:,}, {ATTEMPTS} times over",
        kind="corrupt",
    )


def check_bytes(store: ObjectStore, prefix: str, file: DataFile) -> None:
    """Read everything. Memory: one part."""
    whole = 0
    for part in file.parts:
        whole = zlib.crc32(read_part(store, prefix, file, part), whole)
    if f"{whole:08x}" != file.crc32:
        raise StoreError(
            f"{store.uri(join_key(prefix, file.key))} has crc32 {whole:08x}, its manifest says {file.crc32}",
            kind="corrupt",
        )


def check_stored(store: ObjectStore, prefix: str, file: DataFile) -> None:
    """After an upload: by facts where the store keeps checksums, else by reading it back."""
    if not check_facts(store, prefix, file):
        check_bytes(store, prefix, file)


def check(store: ObjectStore, prefix: str, manifest: Manifest, *, deep: bool = False) -> None:
    """Every file of a checkpoint; `deep` reads every byte."""
    for file in manifest.files:
        check_facts(store, prefix, file)
        if deep:
            check_bytes(store, prefix, file)
