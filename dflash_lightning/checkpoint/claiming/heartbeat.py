"""A claim on a prefix, renewed while the run lives.

law   the training thread never waits here: a thread of its own talks to the store
law   a lost answer is not a lost claim; only another owner is, and then nothing is written any more
"""

import logging
import threading
import time

from dflash_lightning.checkpoint.claiming.claim import Claim
from dflash_lightning.checkpoint.stores.errors import StoreError

log = logging.getLogger(__name__)
EVERY_S = 30.0
STALE_AFTER_S = 300.0
"""Without a sign of life for so long, a run has lost its prefix to whoever asks for it."""
JOIN_S = 2.0


class Heartbeat:
    """Renews from the start on. `stop` when the run ends, however it ends."""

    def __init__(self, claim: Claim, *, every_s: float = EVERY_S) -> None:
        self._claim = claim
        self._every_s = every_s
        self._over = threading.Event()
        self.lost: StoreError | None = None
        """Why this run must not write any more."""
        self._thread = threading.Thread(target=self._beat, name="checkpoint-heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._claim.renew(time.time())
            except StoreError as error:
                if error.kind == "conflict":
                    self.lost = error
                    return
                log.debug("the sign of life was not written: %s", error)  # the writer tells of outages

    def stop(self) -> None:
        """Let the next run start at once; where the store does not answer it has to wait."""
        self._over.set()
        self._thread.join(JOIN_S)
        if self.lost is not None:
            return
        try:
            self._claim.release()
        except StoreError as error:
            log.warning("the prefix stays claimed for %.0f s: %s", STALE_AFTER_S, error)
