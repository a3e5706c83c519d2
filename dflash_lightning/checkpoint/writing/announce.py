"""Events counted and told to people: every loss by name, an outage once a minute.

out   log lines, and the counts that the metrics show; `durable_line` for whoever tells the good news
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from dflash_lightning.checkpoint.redact import known_secrets, redact_text
from dflash_lightning.checkpoint.writing.events import Coalesced, Durable, Event, Failed, Refused, Restarted
from dflash_lightning.checkpoint.writing.pending import name_of

log = logging.getLogger(__name__)
BETWEEN_WARNINGS_S = 60.0


def durable_line(event: Durable, *, ranks: int = 1) -> str:
    """Without secrets: step 1200 (best) is durable (1,204.3 MB, 12.9 s after the copy): s3://..."""
    size = f"{event.num_bytes / 1e6:,.1f} MB{f' on each of {ranks} ranks' if ranks > 1 else ''}"
    name, uri = name_of(event.job), redact_text(event.uri, known_secrets())
    return f"{name} is durable ({size}, {event.seconds:.1f} s after the copy): {uri}"


@dataclass
class Counts:
    """Since the writer was made."""

    durable: int = 0
    coalesced: int = 0
    refused: int = 0
    given_up: int = 0
    retries: int = 0
    restarts: int = 0
    num_bytes: int = 0
    """Stored."""


class Announcer:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts = Counts()
        self._clock = clock
        self._quiet_until = 0.0

    def __call__(self, event: Event) -> None:
        counts = self.counts
        if isinstance(event, Durable):
            counts.durable += 1
            counts.num_bytes += event.num_bytes
            self._quiet_until = 0.0
        elif isinstance(event, Coalesced):
            counts.coalesced += 1
            if event.job.must_keep:
                log.warning(
                    "the checkpoint of %s was not stored: that of %s took its place",
                    *(name_of(event.job), name_of(event.by)),
                )
        elif isinstance(event, Refused):
            counts.refused += 1
            log.warning("the checkpoint of %s was not taken: %s", name_of(event.job), event.reason)
        elif isinstance(event, Restarted):
            counts.restarts += 1
            names = ", ".join(map(name_of, event.resubmitted)) or "nothing"
            log.warning(
                "the checkpoint writer died (%s) and was started again; handed over once more: %s",
                *(event.reason, names),
            )
        else:
            self._failed(event)

    def _failed(self, event: Failed) -> None:
        if not event.will_retry:
            self.counts.given_up += 1
            log.error("the checkpoint of %s is given up: %s", name_of(event.job), event.message)
            return
        self.counts.retries += 1
        if self._clock() >= self._quiet_until:
            self._quiet_until = self._clock() + BETWEEN_WARNINGS_S
            log.warning(
                "the checkpoint of %s is not stored yet, storage has been failing for %.0f s: %s. Training "
                "goes on, the snapshot is kept and tried again in %.0f s",
                *(name_of(event.job), event.outage_s, event.message, event.pause_s),
            )
