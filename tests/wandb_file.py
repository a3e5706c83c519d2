"""Reads an offline W&B run file back: 7 bytes of header, then LevelDB log records of protobuf Records.

W&B has no public reader for these files, and its protobuf module is internal: keep this in tests only.
"""

import json
import struct
import time
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
        if (size == 0 and kind == 0) or len(part) < size:  # padding, or a record that is not whole yet
            return
        at += 7 + size
        whole = part if kind in (1, 2) else whole + part  # 1 full, 2 first, 3 middle, 4 last
        if kind in (1, 4):
            yield whole


def history(path: Path, *, timeout_s: float = 60.0) -> list[dict[str, Any]]:
    """The logged rows of a finished run. W&B's own process writes the file, and may still be at it."""
    deadline = time.monotonic() + timeout_s
    while "exit" not in (kinds := [record.WhichOneof("record_type") for record in parsed(path)]):
        assert time.monotonic() < deadline, f"{path} was never finished: {kinds}"
        time.sleep(0.1)
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in parsed(path)
        if record.WhichOneof("record_type") == "history"
    ]


def parsed(path: Path) -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    return [Record.FromString(raw) for raw in records(path)]


def run_files(folder: Path) -> list[Path]:
    """Run files below a save_dir: one per run, whatever the number of ranks."""
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
