"""What an OpenAI-compatible server is asked, and what its reply means.

in    an open chat; status, headers and body of a reply
out   the body of a request; an Answer, or what to do about the failure
law   pure; a reply that is not understood is a fault of the server, never an empty answer
"""

import json
import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from dflash_lightning.regenerate.chats import Answer, OpenChat
from dflash_lightning.regenerate.config import RegenerateConfig, ServerSettings

Verdict = Literal[
    "answer",
    "away",  # busy, starting or restarting: worth waiting for
    "fault",  # its own fault: worth a few more attempts
    "row",  # it refuses this request
    "run",  # it would refuse every request
]
_VERDICTS: Mapping[int, Verdict] = {
    **dict.fromkeys((401, 403, 404, 405), "run"),
    **dict.fromkeys((408, 425, 429, 502, 503, 504), "away"),
}
LONGEST_WAIT_S = 30.0
_SENT = ("role", "content", "name", "tool_calls", "tool_call_id")
"""Fields of a message that are sent; earlier reasoning is not, as in serving."""


class NonsenseError(ValueError):
    """The server said OK, but its reply is no answer."""


class RefusedError(ValueError):
    """The target's answer is there, but cannot be used. The text is the reason."""


def verdict(status: int) -> Verdict:
    """What an HTTP status means for the row and the run."""
    if status == 200:
        return "answer"
    if status in _VERDICTS:
        return _VERDICTS[status]
    if 300 <= status < 400:
        return "run"  # an address that points elsewhere
    return "row" if 400 <= status < 500 else "fault"


def wait_s(attempt: int, luck: float, *, asked_s: float = 0.0) -> float:
    """Seconds before the next attempt: doubling from 0.5 to 30, and up to half of it cut off by `luck` in
    [0, 1), so that clients that failed together do not return together; at least what the server asks for.

    `attempt` counts from 0.
    """
    return max(asked_s, min(LONGEST_WAIT_S, 0.5 * 2.0 ** min(attempt, 16)) * (1 - luck / 2))


def asked_wait_s(headers: Mapping[str, str], *, now_s: float) -> float:
    """Seconds from now that Retry-After asks for, which holds seconds or a date; 0 where there is none, it is
    past, or it is neither.

    Args:
        headers: of the reply, by lower-case name. Its own Date tells how far away a date is, since the clock
            of another machine may be wrong.
        now_s: by the clock of this one, seconds since 1970, for a reply without a Date.
    """
    given = headers.get("retry-after", "")
    try:
        seconds = float(given)
    except ValueError:
        until, sent = _date_s(given), _date_s(headers.get("date", ""))
        seconds = 0.0 if until is None else until - (now_s if sent is None else sent)
    return seconds if 0 < seconds < math.inf else 0.0


def _date_s(text: str) -> float | None:
    """Seconds since 1970 of a date in any of HTTP's three forms; None where it is no date."""
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()  # HTTP's dates are in GMT
    except (ValueError, OverflowError):
        return None


def request_body(
    chat: OpenChat, config: RegenerateConfig, settings: ServerSettings, model: str
) -> dict[str, Any]:
    """One chat completion for the next answer of `chat`."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{k: v for k, v in message.items() if k in _SENT} for message in chat.prompt],
        "max_tokens": config.max_new_tokens,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "seed": chat.seed(config.seed),
        "stream": False,
    }
    if config.top_k:
        body["top_k"] = config.top_k
    if chat.tools is not None:
        body["tools"] = list(chat.tools)
    if settings.template_arguments:
        body["chat_template_kwargs"] = dict(settings.template_arguments)
    return {**body, **settings.request}


def read_answer(body: bytes) -> Answer:
    """The first choice of a chat completion. Raises NonsenseError, RefusedError."""
    reply = _object(body)
    try:
        choice = reply["choices"][0]
        message, finished = choice["message"], choice["finish_reason"]
        text, reasoning = message.get("content") or "", _reasoning(message)
        calls = message.get("tool_calls")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise NonsenseError(f"it is no chat completion: {_text(body)}") from error
    if not isinstance(text, str) or finished is None:
        raise NonsenseError(f"it is no finished chat completion: {_text(body)}")
    if calls or finished in ("tool_calls", "function_call"):
        raise RefusedError("the target calls a tool")
    if finished not in ("stop", "length"):
        raise RefusedError(f"the server ended the answer by {finished!r}")
    return Answer(text, tokens=_tokens(reply), truncated=finished == "length", reasoning=reasoning)


def read_models(body: bytes) -> list[str]:
    """Names of the models that a server lists. Raises NonsenseError."""
    try:
        return [str(entry["id"]) for entry in _object(body)["data"]]
    except (KeyError, TypeError) as error:
        raise NonsenseError(f"it is no list of models: {_text(body)}") from error


def read_error(body: bytes) -> str:
    """The server's own words, in any of the usual forms, on one line."""
    try:
        found = json.loads(body)
        found = found.get("error", found) if isinstance(found, dict) else found
        found = found.get("message", found.get("detail", found)) if isinstance(found, dict) else found
    except (ValueError, RecursionError):
        found = body.decode(errors="replace")
    return " ".join(str(found).split())[:500]


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NonsenseError(f"it is not JSON: {_text(body)}") from error
    if not isinstance(found, dict):
        raise NonsenseError(f"it is no JSON object: {_text(body)}")
    return found


def _reasoning(message: Mapping[str, Any]) -> str:
    return str(message.get("reasoning_content") or message.get("reasoning") or "")


def _tokens(reply: Mapping[str, Any]) -> int:
    usage = reply.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return count if isinstance(count, int) and count is not True and count > 0 else 0


def _text(body: bytes) -> str:
    """Whole: shortened before the key is taken out, it could end in half of a key."""
    return repr(body.decode(errors="replace"))
