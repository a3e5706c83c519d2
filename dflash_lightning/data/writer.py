"""Token rows -> a store on disk, complete or not there.

in    rows in order, each with its split and where it came from
out   a Hugging Face DatasetDict (train, validation) with manifest.json beside it
law   all is written beside the goal and renamed once: however the writer ends, no reader meets half a store
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import datasets
import pyarrow as pa

from dflash_lightning.data.manifest import FILE_NAME, Manifest
from dflash_lightning.data.split import SPLITS, Split
from dflash_lightning.data.tokens import TokenRow

FEATURES = datasets.Features(
    {
        "input_ids": datasets.List(datasets.Value("int32")),
        "loss_mask": datasets.List(datasets.Value("uint8")),
        "length": datasets.Value("int64"),
        "supervised": datasets.Value("int64"),
        "source": datasets.Value("int32"),
        "line": datasets.Value("int64"),
    }
)
BATCH_ROWS = 256  # rows per record batch


def require_free(output: Path, *, overwrite: bool) -> None:
    """Refuse a goal that would destroy something. Raises ValueError."""
    if not output.exists():
        return
    if not overwrite:
        raise ValueError(f"{output} already exists; choose another --output, or replace it with --overwrite")
    if not (output / FILE_NAME).exists():
        raise ValueError(f"{output} is not a token store, so --overwrite does not delete it")


class StoreWriter:
    """Inside `with StoreWriter(path) as writer:` add rows, then publish. Without publish, nothing stays."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._scratch = output.parent / f".{output.name}.partial-{os.getpid()}"
        self._open = ExitStack()

    def __enter__(self) -> "StoreWriter":
        shutil.rmtree(self._scratch, ignore_errors=True)  # of a killed process that had our number
        self._scratch.mkdir(parents=True)
        self._splits = {
            split: self._open.enter_context(_SplitFile(self._scratch / f"{split}.arrow")) for split in SPLITS
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, row: TokenRow, split: Split, *, source: int, line: int) -> None:
        self._splits[split].add(row, source=source, line=line)

    def publish(self, manifest_of: Callable[[str], Manifest]) -> Manifest:
        """Write the dataset and the manifest (made from the content digest), then rename."""
        self._open.close()
        manifest = manifest_of(_combined(self._splits))
        done = self._scratch / "store"
        parts = {split: datasets.Dataset.from_file(str(part.path)) for split, part in self._splits.items()}
        datasets.DatasetDict(parts).save_to_disk(str(done), num_shards=_shards(parts))
        manifest.write(done)
        _sync(done)
        _replace(done, self._output)
        return manifest


class _SplitFile:
    """One Arrow stream, written a record batch at a time, and the hash of what went in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = hashlib.sha256()
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> "_SplitFile":
        self._stream = pa.ipc.new_stream(str(self.path), FEATURES.arrow_schema)
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._stream.close()

    def add(self, row: TokenRow, *, source: int, line: int) -> None:
        size = len(row.input_ids)
        for part in (
            size.to_bytes(8, "little"),
            row.input_ids.astype("<i4").tobytes(),
            row.loss_mask.tobytes(),
        ):
            self.content.update(part)
        columns = {"input_ids": row.input_ids, "loss_mask": row.loss_mask, "length": size}
        self._rows.append({**columns, "supervised": row.supervised, "source": source, "line": line})
        if len(self._rows) == BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._stream.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=FEATURES.arrow_schema))
        self._rows = []


def _combined(splits: dict[Split, _SplitFile]) -> str:
    return hashlib.sha256("".join(splits[name].content.hexdigest() for name in SPLITS).encode()).hexdigest()[
        :32
    ]


def _shards(parts: dict[Split, Any]) -> dict[str, int]:
    """At most 2 GB a file, and at least one file for an empty split."""
    return {split: 1 + part.data.nbytes // 2**31 for split, part in parts.items()}


def _sync(folder: Path) -> None:
    """Down to the disk before the rename makes it visible: a power cut must not leave an empty name."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _replace(done: Path, output: Path) -> None:
    if output.exists():  # a folder cannot be renamed over another
        output.rename(done.parent / "replaced")
    done.rename(output)
