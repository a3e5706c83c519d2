"""A row with its answers taken out, and what becomes of it.

in    one parsed row of a chat file, and which turns to answer
out   OpenChat: gives one prompt after the other, takes the answers; Record: what is written down of a row
law   a prompt holds the target's own earlier answers, never those of the row that they replace; a row becomes
      exactly one Record, whatever happens
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from dflash_lightning.data.conversations import ROLES, Chat, Message, ReadyTokens, RowError, parse_row
from dflash_lightning.regenerate.config import Truncated, Turns
from dflash_lightning.regenerate.questions import FORMS, as_chat

Status = Literal[
    "ok",  # every answer is whole
    "truncated",  # an answer reached the limit
    "skipped",  # the row cannot be used
    "failed",  # the target or its server could not answer
]
READY = ("input_ids", "loss_mask")


@dataclass(frozen=True)
class Answer:
    """One turn of the target."""

    text: str
    tokens: int = 0
    """Tokens generated, the end included; 0 where the server does not say."""
    truncated: bool = False
    """It reached the limit, so it has no end of its own."""
    reasoning: str = ""
    """What a server's reasoning parser took out of the text."""
    same_tokens: bool | None = None
    """Whether the text gives the generated tokens again; None: not known."""

    @property
    def message(self) -> Message:
        extra = {"reasoning_content": self.reasoning} if self.reasoning else {}
        return {"role": "assistant", "content": self.text, **extra}


@dataclass(frozen=True, kw_only=True)
class Record:
    """What became of one row."""

    row: int
    """Number of the row over all inputs, from 0."""
    place: str
    """Where it was read, as file:line."""
    status: Status
    reason: str = ""
    """The same text for all rows of the kind."""
    detail: str = ""
    """What is special about this one."""
    answers: int = 0
    tokens: int = 0
    """Generated tokens of all answers."""
    retokenized: int = 0
    """Answers whose text gives other tokens than the target generated."""
    chat: Mapping[str, Any] | None = None
    """The row as it goes to the output; None: it does not."""

    @property
    def facts(self) -> dict[str, Any]:
        """All but the chat."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "chat"}


_FIELDS = frozenset(f.name for f in fields(Record))
_NEEDED = frozenset(f.name for f in fields(Record) if f.default is MISSING)


def record_from(facts: Mapping[str, Any]) -> Record:
    """The record that was written down. Raises ValueError where it has other fields than this version's."""
    if unknown := facts.keys() - _FIELDS:
        raise ValueError(f"it has {', '.join(sorted(unknown))}")
    if missing := _NEEDED - facts.keys():
        raise ValueError(f"it has no {', '.join(sorted(missing))}")
    return Record(**facts)


@dataclass
class OpenChat:
    """A chat on its way: `messages` hold the target's answers as far as they are there."""

    row: int
    place: str
    columns: Mapping[str, Any]
    """The row's other columns, which the output keeps."""
    messages: list[Message]
    tools: Sequence[Any] | None
    turns: Sequence[int]
    """Places in `messages` to answer."""
    truncated: Truncated = "drop"
    answers: list[Answer] = field(default_factory=list)
    _end: tuple[Status, str, str] | None = None

    @property
    def finished(self) -> bool:
        return self._end is not None or len(self.answers) == len(self.turns)

    @property
    def prompt(self) -> list[Message]:
        """The messages before the next answer."""
        return self.messages[: self.turns[len(self.answers)]]

    def take(self, answer: Answer) -> None:
        """Put the next answer in its place; the chat ends with one that cannot be used."""
        self.messages[self.turns[len(self.answers)]] = answer.message
        self.answers.append(answer)
        if not answer.text.strip():
            self.end("skipped", "the target's answer is empty", f"answer {len(self.answers)}")
        elif answer.truncated and self.truncated == "drop":
            self.end("truncated", "an answer reached the limit of new tokens", f"answer {len(self.answers)}")

    def end(self, status: Status, reason: str, detail: str = "") -> None:
        """Leave the rest of the turns unanswered; the chat does not go to the output."""
        self._end = status, reason, detail

    def seed(self, seed: int) -> int:
        """Of the next answer: the same in every run, whatever was answered before or beside it. 31 bits."""
        text = f"{seed}:{self.row}:{len(self.answers)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1

    def record(self) -> Record:
        if not self.finished:
            raise ValueError(f"row {self.row} has {len(self.answers)} of {len(self.turns)} answers")
        cut = any(answer.truncated for answer in self.answers)
        whole: tuple[Status, str, str] = ("truncated", "kept although an answer reached the limit", "")
        status, reason, detail = self._end or (whole if cut else ("ok", "", ""))
        return Record(
            row=self.row,
            place=self.place,
            status=status,
            reason=reason,
            detail=detail,
            answers=len(self.answers),
            tokens=sum(answer.tokens for answer in self.answers),
            retokenized=sum(answer.same_tokens is False for answer in self.answers),
            chat=None if self._end else self._row(),
        )

    def _row(self) -> dict[str, Any]:
        tools = {} if self.tools is None else {"tools": list(self.tools)}
        return {**self.columns, "messages": self.messages, **tools}


def open_chat(
    row: object, *, number: int, place: str, turns: Turns, truncated: Truncated = "drop"
) -> OpenChat:
    """Take the answers out of a row. A last question without answer is answered, too. Raises RowError."""
    row = as_chat(row)
    _require_form(row)
    chat = parse_row(_with_open_end(row))
    if isinstance(chat, ReadyTokens):
        raise RowError("ready tokens hold no messages", "give the chats that they were made of")
    asked = chat.assistant_turns if turns == "all" else chat.assistant_turns[-1:]
    _require_free_of_tools(chat, asked)
    assert isinstance(row, Mapping)
    columns = {name: row[name] for name in row if name not in (*FORMS, "system", "tools")}
    return OpenChat(number, place, columns, list(chat.messages), chat.tools, asked, truncated)


def require_writable(chat: OpenChat) -> None:
    """The output is JSON, with dates, times and decimals as text; bytes fit nowhere. Raises RowError."""
    columns = {**chat.columns, "messages": chat.messages, "tools": chat.tools}
    for name, value in columns.items():
        if _holds_bytes(value):
            raise RowError("a column holds bytes, which JSON cannot", f"{name}: leave it out of the input")


def _holds_bytes(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_bytes, value.values()))
    return isinstance(value, bytes | bytearray) or (
        isinstance(value, list | tuple) and any(map(_holds_bytes, value))
    )


def _require_form(row: object) -> None:
    if isinstance(row, Mapping) and all(row.get(name) is None for name in (*FORMS, *READY)):
        found = ", ".join(map(str, row)) or "none"
        raise RowError("no messages, conversations, prompt or turns", f"columns: {found}")


def _with_open_end(row: object) -> object:
    """The row with a place for the answer that its last message asks for."""
    if not isinstance(row, Mapping) or any(row.get(name) is not None for name in READY):
        return row
    name = next((form for form in FORMS if row.get(form) is not None), "")
    messages = row.get(name)
    if not isinstance(messages, Sequence) or not messages or not isinstance(messages[-1], Mapping):
        return row
    role = messages[-1].get("role") or messages[-1].get("from")
    if not isinstance(role, str) or ROLES.get(role) not in ("user", "tool"):
        return row
    return {**row, name: [*messages, {"role": "assistant", "content": ""}]}


def _require_free_of_tools(chat: Chat, turns: Sequence[int]) -> None:
    for turn in turns:
        followed = chat.messages[turn + 1 : turn + 2]
        if chat.messages[turn].get("tool_calls") or (followed and followed[0]["role"] == "tool"):
            raise RowError(
                "an answer to regenerate calls a tool",
                f"message {turn + 1}: its result would not fit another call; --turns last keeps it",
            )
