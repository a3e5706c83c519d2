"""The unfinished work of `regenerate`: a folder beside the output, from which a killed run goes on.

in    records, in the order in which rows are finished
out   which rows are done, and their records by number
law   a record that was appended survives a kill of the process at any moment, and all but the last second a
      power cut; half a line at the end is dropped and its row done again; one process writes at a time; work
      that was begun with other settings is never mixed in
"""

import fcntl
import json
import os
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from dflash_lightning.regenerate.chats import Record

IDENTITY, RECORDS, LOCK = "identity.json", "records.jsonl", "lock"
SYNC_S = 1.0
_NONE = -1


class Journal:
    """Append-only. Made by `open_journal`."""

    def __init__(self, file: BinaryIO, rows: int, *, retry_failed: bool) -> None:
        self._file = file
        self._places = array("q", [_NONE]) * rows
        self._retry_failed = retry_failed
        self._synced = time.monotonic()
        self.usable = 0
        """Rows so far that go to the output."""
        self.done = 0
        """Rows so far that need no more work."""
        self._recover()

    def __contains__(self, row: int) -> bool:
        return self._places[row] != _NONE

    def append(self, record: Record) -> None:
        """Raises ValueError for a row that is done: it would be in the output twice."""
        if record.row in self:
            raise ValueError(f"row {record.row} ({record.place}) is done already")
        place = self._file.seek(0, os.SEEK_END)
        self._file.write(json.dumps({**record.facts, "chat": record.chat}, default=str).encode() + b"\n")
        self._file.flush()
        self._note(record, place)
        if time.monotonic() - self._synced > SYNC_S:
            self.sync()

    def sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def read(self, row: int) -> Record:
        self._file.seek(self._places[row])
        return Record(**json.loads(self._file.readline()))

    def records(self) -> Iterator[Record]:
        """Of all rows in order. Raises ValueError where one is missing."""
        for row, place in enumerate(self._places):
            if place == _NONE:
                raise ValueError(f"row {row} has no record: the work is not finished")
            yield self.read(row)

    def _note(self, record: Record, place: int) -> None:
        self.done += self._places[record.row] == _NONE  # else it failed before, and was done again
        self._places[record.row] = place
        self.usable += record.chat is not None

    def _recover(self) -> None:
        """Find the records of an earlier process, and cut off what is no whole line."""
        good = 0
        for line in self._file:
            try:
                record = Record(**json.loads(line)) if line.endswith(b"\n") else None
            except (ValueError, TypeError):  # a power cut can leave zeros
                record = None
            if record is None or not 0 <= record.row < len(self._places):
                break
            if not (self._retry_failed and record.status == "failed"):
                self._note(record, good)
            good += len(line)
        self._file.truncate(good)


@contextmanager
def open_journal(
    folder: Path, identity: Mapping[str, Any], rows: int, *, retry_failed: bool = False
) -> Iterator[Journal]:
    """Start the work in `folder`, or go on with it.

    Raises:
        ValueError: another process works there, or the work was begun with other settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(
                f"another process is at work in {folder}: let it finish, or stop it first"
            ) from error
        _require_same(folder, identity)
        with (folder / RECORDS).open("a+b") as file:
            file.seek(0)
            journal = Journal(file, rows, retry_failed=retry_failed)
            try:
                yield journal
            finally:
                journal.sync()


def _require_same(folder: Path, identity: Mapping[str, Any]) -> None:
    path = folder / IDENTITY
    now = json.loads(json.dumps(identity, default=str))
    records = folder / RECORDS
    if not records.exists() or not records.stat().st_size:  # nothing to mix with
        write_whole(path, json.dumps(now, indent=2).encode())
        return
    before = json.loads(path.read_bytes())
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if names:
        changes = "; ".join(f"{name} was {before.get(name)!r}, is {now.get(name)!r}" for name in names)
        raise ValueError(
            f"{folder} holds unfinished work with other settings: {changes}. Give the former settings to go "
            "on, or delete the folder to begin anew"
        )


def write_whole(path: Path, content: bytes) -> None:
    """The file is there as a whole or not at all, also after a power cut."""
    scratch = path.with_name(f".{path.name}")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
