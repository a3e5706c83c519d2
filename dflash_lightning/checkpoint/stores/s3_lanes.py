"""How many requests are on their way at once: fewer while the server asks to slow down, more again later.

in    every attempt of every request of a client, before it is sent and when it has been answered
law   an answer that asks to slow down leaves half of what is on its way, one at least; as many good answers
      in a row as there are lanes add one; nothing is limited before the first such answer
law   a request that pauses before its next attempt takes no lane, so it cannot hold up others
"""

import threading
from collections.abc import Mapping
from typing import Any, Final

from dflash_lightning.checkpoint.stores.s3_codes import BUSY_CODES, BUSY_STATUSES

_MOST: Final = 16
"""Lanes in use again without trouble: from there on nothing is limited."""


class Lanes:
    """One for all threads of a store. A thread is in one lane at most."""

    def __init__(self) -> None:
        self.limit: int | None = None
        """None: as many as there are threads."""
        self._good = 0
        self._inside: set[int] = set()
        self._changed = threading.Condition()

    def watch(self, client: Any) -> None:
        """From now on its requests keep to the lanes."""
        client.meta.events.register("before-send.s3", self._before)
        client.meta.events.register("response-received.s3", self._after)

    def enter(self) -> None:
        """Waits for a free lane."""
        with self._changed:
            self._inside.discard(threading.get_ident())  # of an attempt whose end nobody told
            self._changed.wait_for(lambda: self.limit is None or len(self._inside) < self.limit)
            self._inside.add(threading.get_ident())

    def answered(self, *, busy: bool) -> None:
        """`busy`: the server asked to slow down."""
        with self._changed:
            if busy:
                self.limit, self._good = max(1, len(self._inside) // 2), 0
            elif self.limit is not None:
                self._good += 1
                if self._good >= self.limit:
                    self.limit, self._good = (self.limit + 1 if self.limit < _MOST else None), 0
        self.leave()

    def leave(self) -> None:
        """Nothing happens outside of a lane."""
        with self._changed:
            self._inside.discard(threading.get_ident())
            self._changed.notify_all()

    def _before(self, **ignored: object) -> None:
        self.enter()

    def _after(self, *, parsed_response: Mapping[str, Any] | None, **ignored: object) -> None:
        if parsed_response is None:  # no answer: it says nothing about how busy the server is
            self.leave()
        else:
            self.answered(busy=_is_busy(parsed_response))


def _is_busy(answer: Mapping[str, Any]) -> bool:
    return (
        answer.get("Error", {}).get("Code") in BUSY_CODES
        or answer.get("ResponseMetadata", {}).get("HTTPStatusCode") in BUSY_STATUSES
    )
