"""Prompts to evaluate on: rows of chats, of questions, or of benchmark turns -> what the target is asked.

in    JSON Lines or Parquet files (or folders, globs, saved datasets), the column that names a category
out   Prompts in the order of the files
law   a row that cannot be used is an error with its place: over other prompts the figures would be others
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dflash_lightning.data.conversations import Message, RowError
from dflash_lightning.data.sources import find_sources
from dflash_lightning.regenerate.chats import open_chat

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
    inputs: Sequence[str], *, category: str = "category", limit: int | None = None
) -> list[Prompt]:
    """All prompts of the files, or the first `limit` of them.

    A row holds `messages` or `conversations` (a last answer is left out, for the target gives its own),
    `prompt` (a question), or `turns` (questions; the first is asked).

    Raises:
        ValueError: nothing to read, or a row that is none of these, with its place.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"at least one prompt must be asked, got a limit of {limit}")
    prompts: list[Prompt] = []
    for source in find_sources(inputs):
        for chunk in source.chunks():
            for number, row in zip(chunk.numbers, chunk.rows, strict=True):
                prompts.append(_prompt(row, f"{source.path}:{number}", category))
                if len(prompts) == limit:
                    return prompts
    return prompts


def _prompt(raw: object, place: str, category: str) -> Prompt:
    try:
        row = json.loads(raw) if isinstance(raw, bytes | bytearray) else raw
    except ValueError as error:
        raise ValueError(f"{place}: the row is not JSON: {error}") from error
    try:
        chat = open_chat(_as_chat(row), number=0, place=place, turns="last")
    except RowError as error:
        raise ValueError(
            f"{place}: {error}; a prompt needs messages, conversations, prompt or turns"
        ) from error
    assert isinstance(row, Mapping)
    return Prompt(chat.prompt, _category(row.get(category)), place, chat.tools)


def _category(named: object) -> str:
    """Also 0 and False are names; white space would break the tables."""
    return OTHER if named is None else " ".join(str(named).split()) or OTHER


def _as_chat(row: object) -> object:
    """Rows of questions as rows of messages; others as they are."""
    if not isinstance(row, Mapping) or row.get("messages") or row.get("conversations"):
        return row
    question = row.get("prompt")
    if question is None and isinstance(turns := row.get("turns"), Sequence) and turns:
        question = turns[0]
    if isinstance(question, Sequence) and not isinstance(question, str):
        return {**row, "messages": question}  # some files call their messages `prompt`
    return {**row, "messages": [{"role": "user", "content": question}]} if isinstance(question, str) else row
