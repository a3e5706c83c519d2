"""Composes the stages: rows -> open chats -> a backend -> journal -> output.

in    RegenerateConfig, what is answering, and how to start it
out   the output, its status file and a Summary
law   the output is a function of inputs, settings and the target's answers: how often the run was stopped and
      in which order rows were finished changes nothing
"""

import hashlib
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dflash_lightning.data.conversations import RowError
from dflash_lightning.data.sources import FINISHED, UNFINISHED, Source, find_sources, require_distinct
from dflash_lightning.data.tokens import parse_json
from dflash_lightning.regenerate.chats import OpenChat, Record, open_chat, require_writable
from dflash_lightning.regenerate.config import RegenerateConfig
from dflash_lightning.regenerate.journal import Journal, holds_records, open_journal
from dflash_lightning.regenerate.publish import publish, written_files
from dflash_lightning.regenerate.summary import Summary

HOPELESS_ROWS = 200  # that many rows without one that can be used: do not answer the rest
TAKEN = "already exists; choose another --output, or replace it with --overwrite"
OnProgress = Callable[[int, int, int], None]


@runtime_checkable
class Backend(Protocol):
    """Whatever answers chats."""

    def answer_all(self, chats: Iterable[OpenChat]) -> Iterator[OpenChat]:
        """Takes chats as it needs them, yields each once it is finished, in any order."""


def regenerate(
    config: RegenerateConfig,
    identity: Mapping[str, Any],
    start: Callable[[], Backend],
    *,
    on_progress: OnProgress = lambda done, rows, tokens: None,
) -> Summary:
    """Answer all rows and write config.output, or go on where an earlier call was stopped.

    Args:
        identity: what is answering, by name; together with the input and config it must be the same to go on.
        start: makes the backend; not called where no row is left.
        on_progress: called with (rows done, all rows, tokens of this row).

    Raises:
        ValueError: unusable input or settings, or too many failed rows. OSError: the server is gone, the disk
            is full. What is finished stays in the folder of unfinished work.
    """
    output = Path(config.output).expanduser()
    work = output.with_name(output.name + UNFINISHED)
    if _is_taken(output, work, config):
        raise ValueError(f"{output} {TAKEN}")
    sources = require_distinct(find_sources(config.input, leave_out=written_files(output)))
    _require_apart(sources, output)
    rows = sum(len(chunk.rows) for source in sources for chunk in source.chunks())
    whole = {"input": _digest(sources), **config.identity, **identity}
    with open_journal(work, whole, rows, retry_failed=config.retry_failed) as journal:
        if _is_taken(output, work, config):  # another process has written it meanwhile
            _forget(work)
            raise ValueError(f"{output} {TAKEN}")
        on_progress(journal.done, rows, 0)
        if journal.done < rows:
            chats = _open_chats(sources, config, journal)
            with closing(_generator(start().answer_all(chats))) as finished:
                for chat in finished:
                    record = chat.record()
                    journal.append(record)
                    _require_hope(journal, record)
                    on_progress(journal.done, rows, record.tokens)
        journal.sync()
        summary = publish(journal, output, max_failed=config.max_failed)
        _forget(work)
    return summary


def _is_taken(output: Path, work: Path, config: RegenerateConfig) -> bool:
    """A kill between publishing and clearing up leaves the output and all its records: that work goes on."""
    return output.exists() and not config.overwrite and not holds_records(work)


def _require_apart(sources: Sequence[Source], output: Path) -> None:
    if any(source.path.resolve() == output.resolve() for source in sources):
        raise ValueError(f"{output} is an input as well: it would be lost; choose another --output")


def _forget(work: Path) -> None:
    """Renamed first: half a folder must not look like work that has just begun."""
    finished = work.with_name(f".{work.name.removesuffix(UNFINISHED)}{FINISHED}")
    shutil.rmtree(finished, ignore_errors=True)
    work.rename(finished)
    shutil.rmtree(finished)


def _generator(chats: Iterator[OpenChat]) -> Generator[OpenChat, None, None]:
    """Its `close` reaches the backend, which then ends its threads."""
    yield from chats


def _open_chats(sources: Sequence[Source], config: RegenerateConfig, journal: Journal) -> Iterator[OpenChat]:
    """Rows that have no record yet; those that cannot be used get theirs at once."""
    for number, place, raw in _numbered(sources):
        if number in journal:
            continue
        try:
            row = parse_json(raw) if isinstance(raw, bytes) else raw
            chat = open_chat(row, number=number, place=place, turns=config.turns, truncated=config.truncated)
            require_writable(chat)
        except RowError as error:
            record = Record(
                row=number, place=place, status="skipped", reason=error.reason, detail=error.detail[:500]
            )
            journal.append(record)
            _require_hope(journal, record)
        else:
            yield chat


def _numbered(sources: Sequence[Source]) -> Iterator[tuple[int, str, object]]:
    number = 0
    for source in sources:
        for chunk in source.chunks():
            for line, row in zip(chunk.numbers, chunk.rows, strict=True):
                yield number, f"{source.path}:{line}", row
                number += 1


def _digest(sources: Sequence[Source]) -> str:
    text = "".join(source.sha256() for source in sources)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _require_hope(journal: Journal, last: Record) -> None:
    if not journal.usable and journal.done >= HOPELESS_ROWS:
        why = f"{last.place} is {last.status}: {last.reason}" + (f" ({last.detail})" if last.detail else "")
        raise ValueError(f"none of the first {journal.done} rows can be used; {why}. {journal.way_out}")
