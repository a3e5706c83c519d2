"""The unfinished work of `regenerate`: a folder beside the output, from which a killed run goes on.

in    records, in the order in which rows are finished
out   which rows are done, and their records by number
law   a record that was appended survives a kill of the process at any moment, and all but the last second a
      power cut; a line that is no whole JSON object is dropped and its row done again; one process writes at
      a time; work of other settings, of another target or another form of Record is refused, never mixed in
"""

import fcntl
import json
import os
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from dflash_lightning.differing import differing
from dflash_lightning.regenerate.chats import Record, record_from

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
        self.failed = set[int]()
        """Those of them that have failed."""
        self._recover()

    def __contains__(self, row: int) -> bool:
        return self._places[row] != _NONE

    @property
    def way_out(self) -> str:
        """What to do where it cannot be published as it is."""
        if self.failed:
            return "What is finished is kept: once the cause is gone, run again with --retry-failed"
        folder = Path(self._file.name).parent
        return f"To begin anew with another input or other settings, delete {folder}"

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
        return record_from(json.loads(self._file.readline()))

    def records(self) -> Iterator[Record]:
        """Of all rows in order. Raises ValueError where one is missing."""
        for row, place in enumerate(self._places):
            if place == _NONE:
                raise ValueError(f"row {row} has no record: the work is not finished")
            yield self.read(row)

    def _note(self, record: Record, place: int) -> None:
        self.done += self._places[record.row] == _NONE  # else it failed before, and was done again
        self._places[record.row] = place
        (self.failed.add if record.status == "failed" else self.failed.discard)(record.row)
        self.usable += record.chat is not None

    def _recover(self) -> None:
        """Find the records of an earlier process, and cut off what is damaged at the end.

        Raises:
            ValueError: a whole line is no record of this work, in the way in which this version writes them.
        """
        place = good = 0
        for number, line in enumerate(self._file, start=1):
            facts = _whole_object(line)
            if facts is not None:
                record = self._record(facts, number)
                if not (self._retry_failed and record.status == "failed"):
                    self._note(record, place)
                good = place + len(line)
            place += len(line)
        self._file.truncate(good)

    def _record(self, facts: dict[str, Any], line: int) -> Record:
        try:
            record = record_from(facts)
            if not 0 <= record.row < len(self._places):
                raise ValueError(f"its row is {record.row}, and the input has {len(self._places)} rows")
        except ValueError as error:
            path = Path(self._file.name)
            raise ValueError(
                f"{path}, line {line}: this version cannot go on with it, {error}. Finish the work with the "
                f"version that began it, or delete {path.parent} to begin anew"
            ) from error
        return record


def _whole_object(line: bytes) -> dict[str, Any] | None:
    """None for what a kill or a power cut leaves: half a line, or zeros."""
    try:
        found = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def holds_records(folder: Path) -> bool:
    """Whether work has been done there."""
    records = folder / RECORDS
    return records.exists() and records.stat().st_size > 0


@contextmanager
def open_journal(
    folder: Path, identity: Mapping[str, Any], rows: int, *, retry_failed: bool = False
) -> Iterator[Journal]:
    """Start the work in `folder`, or go on with it.

    Raises:
        ValueError: another process works there, or the work was begun with other settings, or by a version
            whose records are others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(
                f"another process is at work in {folder}: let it finish, or stop it first"
            ) from error
        if not _is_at(lock, folder / LOCK):
            raise ValueError(f"another process has just finished the work in {folder}: its output is there")
        _require_same(folder, identity)
        with (folder / RECORDS).open("a+b") as file:
            file.seek(0)
            journal = Journal(file, rows, retry_failed=retry_failed)
            try:
                yield journal
            finally:
                journal.sync()


def _is_at(file: IO[str], path: Path) -> bool:
    """Not where another process has deleted the folder between the opening and the locking of its file."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


def _require_same(folder: Path, identity: Mapping[str, Any]) -> None:
    path = folder / IDENTITY
    now = json.loads(json.dumps(identity, default=str))
    if not holds_records(folder):  # nothing to mix with
        write_whole(path, json.dumps(now, indent=2).encode())
        return
    before = json.loads(path.read_bytes())
    names = [name for name in {**before, **now} if _compared(name, before) != _compared(name, now)]
    if names:
        was, is_now = ({name: values.get(name) for name in names} for values in (before, now))
        changes = "; ".join(differing(was, is_now, "before", "now"))
        raise ValueError(
            f"{folder} holds unfinished work with other settings: {changes}. Give the former settings to go "
            "on, or delete the folder to begin anew"
        )


def _compared(name: str, identity: Mapping[str, Any]) -> Any:
    """Of the target its digest alone: the same weights in another folder are the same target."""
    value = identity.get(name)
    return value.get("digest") if name == "target" and isinstance(value, dict) else value


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
