"""One answer from a server, however often it has to be asked.

in    the body of a request
out   an Answer; RefusedError or FailedError for this row alone; ServerError where no row can be answered
law   a server that is away is waited for until the deadline; then a living server fails the row, a dead one
      stops the run with nothing lost, and so does one that asks for a longer wait than the deadline
"""

import itertools
import random
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from dflash_lightning.regenerate.chats import Answer
from dflash_lightning.regenerate.config import ServerSettings
from dflash_lightning.regenerate.key import KEY_VARIABLE
from dflash_lightning.regenerate.replies import (
    NonsenseError,
    Verdict,
    asked_wait_s,
    read_answer,
    read_error,
    read_models,
    verdict,
    wait_s,
)
from dflash_lightning.regenerate.transport import NETWORK_ERRORS, Reply, Transport

PROBE_TIMEOUT_S = 10.0


class FailedError(ValueError):
    """This row got no answer; others may."""


class ServerError(OSError):
    """No row can be answered now."""


class ChatClient:
    """Asks the servers in turn; for many threads."""

    def __init__(self, settings: ServerSettings, key: str | None = None) -> None:
        self._settings = settings
        self._transport = Transport(key)
        self._turn = itertools.count()
        self._stopping = threading.Event()

    def model(self) -> str:
        """The one model that the servers serve. Raises ServerError, ValueError where they list several."""
        names = self._models()
        if len(names) != 1:
            listed = ", ".join(names) or "none"
            raise ValueError(f"the server lists {len(names)} models ({listed}): name one with --model")
        return names[0]

    def require_alive(self) -> None:
        """Raises ServerError unless one of the servers answers."""
        self._models()

    def stop(self) -> None:
        """Every request, now and later, ends with ServerError."""
        self._stopping.set()
        self._transport.abort()

    def ask(self, body: Mapping[str, Any]) -> Answer:
        """Raises FailedError, RefusedError, ServerError."""
        began = time.monotonic()
        deadline = began + self._settings.deadline_s
        faults, resting = 0, set[str]()
        for attempt in itertools.count():
            base = self._settings.bases[next(self._turn) % len(self._settings.bases)]
            asked_at = time.monotonic()
            outcome, why, asked_s = self._attempt(base, body, max(0.1, deadline - asked_at))
            if isinstance(outcome, Answer):
                return outcome
            self._require_running(outcome, why)
            if outcome == "row":
                raise FailedError(f"the server refuses the request: {why}")
            faults += outcome == "fault"
            if faults >= self._settings.attempts:
                raise FailedError(f"no answer in {faults} attempts, the last: {why}")
            now = time.monotonic()
            if asked_s and asked_s + now - asked_at >= self._settings.deadline_s:  # no row could wait so long
                resting.add(base)
                self._require_awake(resting, why, asked_s)
                asked_s = 0.0  # another server may answer
            wait = wait_s(attempt, random.random(), asked_s=asked_s)
            if now + wait >= deadline:
                self._give_up(why, began)
            self._stopping.wait(wait)
        raise AssertionError("unreachable")

    def _attempt(
        self, base: str, body: Mapping[str, Any], left_s: float
    ) -> tuple[Answer | Verdict, str, float]:
        """An answer, or what its failure means, why, and how many seconds the server asks to wait."""
        url, timeout_s = f"{base}/chat/completions", min(self._settings.timeout_s, left_s)
        try:
            reply = self._transport.post(url, body, timeout_s=timeout_s)
            means = verdict(reply.status)
            if means == "answer":
                return read_answer(reply.body), "", 0.0
        except NETWORK_ERRORS as error:
            return "away", self._named(url, error), 0.0
        except NonsenseError as error:
            return "fault", self._transport.hidden(f"{url} replies nonsense: {error}"), 0.0
        return means, self._words(url, reply), asked_wait_s(reply.headers, now_s=time.time())

    def _require_running(self, outcome: Verdict, why: str) -> None:
        if self._stopping.is_set():
            raise ServerError("the run is being stopped")
        if outcome == "run":
            raise ServerError(f"the server refuses every request: {why}")

    def _require_awake(self, resting: Collection[str], why: str, asked_s: float) -> None:
        if len(resting) == len(set(self._settings.bases)):
            limit = f"--deadline {self._settings.deadline_s:g} s"
            raise ServerError(
                f"the server asks to wait {asked_s:g} s, longer than {limit} lets any row wait ({why}); what "
                "is finished is kept, and no row has failed for it: run the same command later to go on"
            )

    def _give_up(self, why: str, began: float) -> None:
        try:
            self._models()
        except (ServerError, ValueError) as error:
            raise ServerError(
                f"no server answers, for {time.monotonic() - began:.0f} s now ({why}); what is finished is "
                "kept: start the server, then run the same command to go on"
            ) from error
        deadline = f"--deadline {self._settings.deadline_s:g} s"
        raise FailedError(f"no answer, and no time for another attempt ({deadline}), the last: {why}")

    def _models(self) -> list[str]:
        """Of the first server that answers."""
        why = ""
        for base in self._settings.bases:
            url = f"{base}/models"
            try:
                reply = self._transport.get(url, timeout_s=min(PROBE_TIMEOUT_S, self._settings.timeout_s))
                if reply.status == 200:
                    return read_models(reply.body)
                why = self._words(url, reply)
            except (*NETWORK_ERRORS, NonsenseError) as error:
                why = self._named(url, error)
        raise ServerError(f"no server answers ({why}): is it running, and is the address right?")

    def _words(self, url: str, reply: Reply) -> str:
        way_out = f"; the key that it wants is read from {KEY_VARIABLE}" if reply.status in (401, 403) else ""
        return self._transport.hidden(f"{url} says {reply.status}: {read_error(reply.body)}") + way_out

    def _named(self, url: str, error: Exception) -> str:
        """Some exceptions of http.client have no text; others repeat what the server sent."""
        text = f": {error}" if str(error) else ""
        return self._transport.hidden(f"{url}: {type(error).__name__}{text}")
