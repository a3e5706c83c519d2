"""Reads W&B's run files (offline-run-*/run-ID.wandb) without a network.

in    files of 7 bytes of header, then LevelDB log records (blocks of 32 KiB) of protobuf Records
law   a file that W&B has not finished is read up to its last whole record; behind a damaged place, told by
      the records' checksums, it goes on with the next block

W&B has no public reader for them, and its protobuf module is internal: only this file knows either.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_lightning.report.sources.json_log import numbers_of
from dflash_lightning.report.sources.rows import Row, Rows

MAGIC = b":W&B"
HEADER = 7
BLOCK = 32_768
FULL, FIRST, MIDDLE, LAST = KINDS = (1, 2, 3, 4)


def read_wandb(path: Path) -> Rows:
    """The logged rows, each with W&B's `_step` and `_timestamp` (unix seconds).

    Raises: ValueError where `path` is no such file.
    """
    found = list(_decoded(path))
    records = [record for record in found if record is not None]
    kinds = {record.WhichOneof("record_type") for record in records}
    rows: list[Row] = [
        numbers_of(history_row(r)) for r in records if r.WhichOneof("record_type") == "history"
    ]
    complete = "exit" in kinds
    notes = [] if complete else [f"{path.name} has no end: the run was killed, or still writes"]
    if damaged := len(found) - len(records):
        notes.append(f"{path.name}: {damaged} places are damaged, and rows that stood there are left out")
    return Rows(path=path, rows=rows, complete=complete, notes=notes)


def history_row(record: Any) -> dict[str, Any]:
    """What one `log` call wrote: name -> value."""
    return {
        item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
    }


def parsed(path: Path) -> Iterator[Any]:
    """W&B's Records, in order; damaged places are left out."""
    return (record for record in _decoded(path) if record is not None)


def _decoded(path: Path) -> Iterator[Any]:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from wandb.proto.wandb_internal_pb2 import Record  # importing wandb takes a second

    for raw in records(path):
        try:
            yield None if raw is None else Record.FromString(raw)
        except DecodeError:
            yield None


def records(path: Path) -> Iterator[bytes | None]:
    """The payload of each whole record, over block borders; None for each damaged place.

    Raises: ValueError where `path` does not begin like a W&B run file; an empty one is of a failed start.
    """
    content = path.read_bytes()
    if content and content[:4] != MAGIC:
        raise ValueError(f"{path} is no W&B run file: it does not begin with {MAGIC.decode()}")
    at = HEADER
    whole: bytes | None = None
    while at + HEADER <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        checksum, size, kind = struct.unpack("<IHB", content[at : at + HEADER])
        part = content[at + HEADER : at + HEADER + size]
        if size <= left - HEADER and len(part) < size:  # not whole yet
            return
        if zlib.crc32(part, zlib.crc32(bytes([kind]))) != checksum or kind not in KINDS:
            if not content[at:].strip(b"\0"):  # space that nothing was written to
                return
            yield None
            at, whole = at + left, None
            continue
        at += HEADER + size
        if kind in (FULL, FIRST):
            whole = part
        elif whole is not None:  # else its beginning was lost
            whole += part
        if kind in (FULL, LAST) and whole is not None:
            yield whole
            whole = None
