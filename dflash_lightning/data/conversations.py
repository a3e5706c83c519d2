"""Rows of a chat file -> chats.

in    one parsed row: OpenAI `messages`, ShareGPT `conversations`, or ready `input_ids` + `loss_mask`
out   Chat (roles and text, ending in an assistant turn) or ReadyTokens
law   a row that cannot be used raises RowError with a short reason that can be counted; nothing is guessed
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Message = dict[str, Any]
IntArray = npt.NDArray[np.int64]

NO_ANSWER = "no assistant turn"
ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
"""Roles as OpenAI and ShareGPT files spell them -> the role that chat templates know."""


class RowError(ValueError):
    """Why one row is left out. `reason` is the same text for all such rows; `detail` is about this one."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)  # both in args, so that it crosses process borders
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


@dataclass(frozen=True)
class Chat:
    """Messages in order; the last one is an assistant turn."""

    messages: Sequence[Message]
    tools: Sequence[Any] | None = None

    @property
    def assistant_turns(self) -> list[int]:
        return [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]


@dataclass(frozen=True)
class ReadyTokens:
    """A row that was tokenised elsewhere: ids and mask of equal length, the mask 0 or 1."""

    input_ids: IntArray
    loss_mask: IntArray


def parse_row(row: object) -> Chat | ReadyTokens:
    """The first form whose columns the row has; ready tokens come before chats. Raises RowError."""
    if not isinstance(row, Mapping):
        raise RowError("row is not an object", f"it is {type(row).__name__}")
    columns = {name: value for name, value in row.items() if value is not None}  # Parquet fills in nulls
    if "input_ids" in columns or "loss_mask" in columns:
        return _ready(columns)
    for name in ("messages", "conversations"):
        if name in columns:
            return _chat(columns[name], columns)
    found = ", ".join(map(str, row)) or "none"
    raise RowError("no messages, conversations, or input_ids + loss_mask", f"columns: {found}")


def _ready(columns: Mapping[str, Any]) -> ReadyTokens:
    if missing := {"input_ids", "loss_mask"} - columns.keys():
        raise RowError("input_ids and loss_mask must come together", f"no {missing.pop()}")
    ids = _integers("input_ids", columns["input_ids"])
    mask = _integers("loss_mask", columns["loss_mask"])
    if len(ids) != len(mask):
        raise RowError("input_ids and loss_mask differ in length", f"{len(ids)} and {len(mask)}")
    if len(mask) and not np.isin(mask, (0, 1)).all():
        raise RowError("loss_mask has values other than 0 and 1")
    return ReadyTokens(ids, mask)


def _integers(name: str, value: object) -> IntArray:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:  # ragged lists
        raise RowError(f"{name} is not a list of integers") from error
    if array.ndim == 1 and (array.size == 0 or array.dtype.kind in "iub"):
        return array.astype(np.int64)
    raise RowError(f"{name} is not a list of integers")


def _chat(value: object, columns: Mapping[str, Any]) -> Chat:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise RowError("the chat is not a list of messages", f"it is {type(value).__name__}")
    messages = [_message(item) for item in value]
    if (
        isinstance(system := columns.get("system"), str) and system
    ):  # a column of its own in some ShareGPT files
        messages.insert(0, {"role": "system", "content": system})
    if not messages:
        raise RowError("the chat is empty")
    return Chat(_asked_and_answered(messages), _tools(columns.get("tools")))


def _asked_and_answered(messages: list[Message]) -> list[Message]:
    """Cut after the last answer: the rest is context of no answer. Raises RowError if nothing was asked."""
    roles = [message["role"] for message in messages]
    if "assistant" not in roles:
        raise RowError(NO_ANSWER)
    if "user" not in roles[: roles.index("assistant")]:
        raise RowError("the assistant speaks before the user", "no prompt to answer")
    last = len(roles) - 1 - roles[::-1].index("assistant")
    return messages[: last + 1]


def _message(item: object) -> Message:
    if not isinstance(item, Mapping):
        raise RowError("a message is not an object", f"it is {type(item).__name__}")
    fields = {name: value for name, value in item.items() if value is not None and value != []}
    spoken = fields.pop("role", fields.pop("from", None))
    if not isinstance(spoken, str) or (role := ROLES.get(spoken)) is None:
        raise RowError("unknown role", repr(spoken))
    content = _text(fields.pop("content", fields.pop("value", "")))
    if role != "assistant" and not content:
        raise RowError("a message without text", f"role {spoken}")
    return {"role": role, "content": content, **fields}


def _text(content: object) -> str:
    """Text, or OpenAI's list of text parts. Pictures and sound are not drafted here."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(_is_text_part(part) for part in content):
        return "".join(part["text"] for part in content)
    raise RowError("the content of a message is not text")


def _is_text_part(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _tools(value: object) -> Sequence[Any] | None:
    if value is None or value == [] or value == "":
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    raise RowError("tools is not a list", f"it is {type(value).__name__}")
