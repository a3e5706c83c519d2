"""Deletions in a line of their own: the next save never waits for them, however slow the store is with them.

in    work that deletes, each handed over when a newer checkpoint is durable
law   one at a time. Of what waits only the newest stays: it names all that is still there; where a pointer
      could not be written it names nothing, and the next one does
law   one that fails ends nothing: the next one finds what it left
"""

import logging
import threading
from collections.abc import Callable

from dflash_lightning.checkpoint.redact import known_secrets, redact_text

log = logging.getLogger(__name__)
Work = Callable[[], object]


class Deletions:
    """Every method may be called from any thread. The thread is a daemon, started by the first work."""

    def __init__(self) -> None:
        self._waiting: Work | None = None
        self._ending = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work) -> None:
        with self._changed:
            self._waiting = work
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoint-deletions", daemon=True)
                self._thread.start()
            self._changed.notify()

    def finish(self, within_s: float) -> None:
        """Do what waits, then end; for at most this long."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception as error:  # whatever it is, the next one must find a living thread
                text = redact_text(f"{type(error).__name__}: {error}", known_secrets())
                log.warning("older checkpoints were not deleted: %s", text)

    def _next(self) -> Work | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._ending)
            work, self._waiting = self._waiting, None
            return work
