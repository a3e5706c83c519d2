"""Reads an offline W&B run file back: 7 bytes of header, then LevelDB log records of protobuf Records.

W&B has no public reader for these files, and its protobuf module is internal: keep this in tests only.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 32_768


def records(path: Path) -> Iterator[bytes]:
    """The payload of each record, over block borders."""
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    at, whole = 7, b""
    while at + 7 <= len(content):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", content[at : at + 7])
        part = content[at + 7 : at + 7 + size]
        at += 7 + size
        whole = part if kind in (1, 2) else whole + part  # 1 full, 2 first, 3 middle, 4 last
        if kind in (1, 4):
            yield whole


def history(path: Path) -> list[dict[str, Any]]:
    """The logged rows."""
    from wandb.proto import wandb_internal_pb2

    rows = []
    for raw in records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(raw)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items})
    return rows


def run_files(folder: Path) -> list[Path]:
    """Run files below a save_dir: one per run, whatever the number of ranks."""
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
