"""Reads W&B's run files (offline-run-*/run-ID.wandb) without a network.

in    files of 7 bytes of header, then LevelDB log records (blocks of 32 KiB) of protobuf Records
law   a file that W&B has not finished is read up to its last whole record

W&B has no public reader for them, and its protobuf module is internal: only this file knows either.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_lightning.report.sources.json_log import numbers_of
from dflash_lightning.report.sources.rows import Row, Rows

MAGIC = b":W&B"
HEADER = 7
BLOCK = 32_768
FULL, FIRST, LAST = 1, 2, 4


def read_wandb(path: Path) -> Rows:
    """The logged rows, each with W&B's `_step` and `_timestamp` (unix seconds).

    Raises: ValueError where `path` is no such file.
    """
    records = list(parsed(path))
    kinds = {record.WhichOneof("record_type") for record in records}
    rows: list[Row] = [
        numbers_of(history_row(r)) for r in records if r.WhichOneof("record_type") == "history"
    ]
    complete = "exit" in kinds
    notes = [] if complete else [f"{path.name} has no end: the run was killed, or still writes"]
    return Rows(path=path, rows=rows, complete=complete, notes=notes)


def history_row(record: Any) -> dict[str, Any]:
    """What one `log` call wrote: name -> value."""
    return {
        item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
    }


def parsed(path: Path) -> Iterator[Any]:
    """W&B's Records, in order."""
    from wandb.proto.wandb_internal_pb2 import Record  # importing wandb takes a second

    for raw in records(path):
        yield Record.FromString(raw)


def records(path: Path) -> Iterator[bytes]:
    """The payload of each whole record, over block borders.

    Raises: ValueError where `path` does not begin like a W&B run file.
    """
    content = path.read_bytes()
    if content[:4] != MAGIC:
        raise ValueError(f"{path} is no W&B run file: it does not begin with {MAGIC.decode()}")
    at, whole = HEADER, b""
    while at + HEADER <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", content[at : at + HEADER])
        part = content[at + HEADER : at + HEADER + size]
        if (size == 0 and kind == 0) or len(part) < size:  # padding, or a record that is not whole yet
            return
        at += HEADER + size
        whole = part if kind in (FULL, FIRST) else whole + part
        if kind in (FULL, LAST):
            yield whole
