"""Says whom training waits for, when it waits unusually long. A log line, never an error.

law   one line for each culprit and pass: a slow device is named, not complained about for ever
"""

import logging
import time
from collections.abc import Sequence

from dflash_lightning.target.pipeline_queues import Entry, Queues

SLOW_SECONDS = 60.0
"""How long training waits for a batch before the log says for whom."""

_log = logging.getLogger(__name__)


class SlowWatch:
    """Looks at the queues now and then while training waits for one batch."""

    def __init__(self, limit: float = SLOW_SECONDS) -> None:
        self.limit = limit
        self._culprit = ""
        self._since = 0.0
        self._named: set[str] = set()

    def begin(self) -> None:
        """Training begins to wait."""
        self._culprit = ""

    def look(self, names: Sequence[str], queues: Queues, admitted: int) -> None:
        """Name whom training has now waited for `limit` seconds."""
        now, oldest = time.perf_counter(), queues.oldest
        culprit = names[oldest.device] if oldest else "the data loader"
        if culprit != self._culprit:
            self._culprit, self._since = culprit, now
        if now - self._since >= self.limit and culprit not in self._named:
            self._named.add(culprit)
            detail = _of(oldest) if oldest else f"batch {admitted} of this pass has not come yet"
            _log.warning("training has waited %.1f s for %s: %s", now - self._since, culprit, detail)


def _of(entry: Entry) -> str:
    where = "waits to be computed"
    if entry.started is not None:
        where = f"has been computed for {time.perf_counter() - entry.started:.1f} s"
    cost = entry.cost
    return f"batch {entry.number} of this pass (bucket {cost.bucket}, {cost.tokens} padded tokens) {where}"
