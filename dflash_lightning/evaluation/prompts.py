"""Prompts to evaluate on: rows of chats, of questions, or of benchmark turns -> what the target is asked.

in    JSON Lines or Parquet files (or folders, globs, saved datasets), the column that names a category
out   Prompts in the order of the files
law   a row that cannot be used is an error with its place: over other prompts the figures would be others
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dflash_lightning.data.conversations import Message, RowError
from dflash_lightning.data.sources import find_sources
from dflash_lightning.regenerate.chats import open_chat

COLUMN = "category"
"""Names the kind of a prompt, where nobody says which column does."""
OTHER = "other"
"""Category of rows that name none."""


@dataclass(frozen=True)
class Prompt:
    """What the target is asked, and the name of the kind of question."""

    messages: Sequence[Message]
    category: str
    place: str
    """Where it was read, as file:row."""
    tools: Sequence[Any] | None = None


def read_prompts(
    inputs: Sequence[str], *, category: str | None = None, limit: int | None = None
) -> list[Prompt]:
    """All prompts of the files, or the first `limit` of them.

    A row holds `messages` or `conversations` (a last answer is left out, for the target gives its own),
    `prompt` (a question), or `turns` (questions; the first is asked).

    Args:
        category: column that names the kind of a prompt, which one row at least must have; by default
            `category`, where there is one.

    Raises:
        ValueError: nothing to read, a row that is none of these, with its place, or no such column.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"at least one prompt must be asked, got a limit of {limit}")
    prompts: list[Prompt] = []
    columns: dict[str, None] = {}  # a set that keeps their order
    for place, row in islice(_rows(inputs), limit):
        prompts.append(_prompt(row, place, category or COLUMN))
        columns |= dict.fromkeys(row) if isinstance(row, Mapping) else {}
    if category is not None and category not in columns:
        raise ValueError(
            f"--category {category}: none of the {len(prompts)} prompts has such a column; there are "
            f"{', '.join(columns)}"
        )
    return prompts


def _rows(inputs: Sequence[str]) -> Iterator[tuple[str, object]]:
    """(place, row) in the order of the files."""
    for source in find_sources(inputs):
        for chunk in source.chunks():
            for number, raw in zip(chunk.numbers, chunk.rows, strict=True):
                place = f"{source.path}:{number}"
                try:
                    yield place, json.loads(raw) if isinstance(raw, bytes | bytearray) else raw
                except ValueError as error:
                    raise ValueError(f"{place}: the row is not JSON: {error}") from error


def _prompt(row: object, place: str, category: str) -> Prompt:
    try:
        chat = open_chat(row, number=0, place=place, turns="last")
    except RowError as error:
        raise ValueError(f"{place}: {error}") from error
    assert isinstance(row, Mapping)
    return Prompt(chat.prompt, _category(row.get(category)), place, chat.tools)


def _category(named: object) -> str:
    """Also 0 and False are names; white space would break the tables."""
    return OTHER if named is None else " ".join(str(named).split()) or OTHER
