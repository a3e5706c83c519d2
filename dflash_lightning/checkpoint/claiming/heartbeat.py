"""A claim on a prefix, renewed while the run lives.

law   the training thread never waits here: a thread of its own talks to the store
law   a lost answer is not a lost claim; only another owner is, and then nothing is written any more
law   the end of a run waits for an answer of the store for a few seconds only
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
STOP_S = 5.0
"""For giving the prefix back: schedulers kill what does not leave soon after its signal."""


class Heartbeat:
    """Renews from the start on. `stop` when the run ends, however it ends."""

    def __init__(self, claim: Claim, *, every_s: float = EVERY_S, stop_s: float = STOP_S) -> None:
        self._claim = claim
        self._every_s = every_s
        self._stop_s = stop_s
        self._over = threading.Event()
        self.lost: StoreError | None = None
        """Why this run must not write any more."""
        self._thread = threading.Thread(target=self._beat, name="checkpoint-heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._claim.renew(time.time())
            except Exception as error:  # whatever it was: a thread that ends here loses the prefix
                if isinstance(error, StoreError) and error.kind == "conflict":
                    self.lost = error
                    return
                log.debug("the sign of life was not written: %s", error)  # the writer tells of outages
        self._release()

    def _release(self) -> None:
        try:
            self._claim.release()
        except Exception as error:
            log.warning("the prefix stays claimed for %.0f s: %s", STALE_AFTER_S, error)

    def stop(self) -> None:
        """Let the next run start at once; where the store does not answer soon it has to wait."""
        self._over.set()
        self._thread.join(self._stop_s)
        if self._thread.is_alive():
            log.warning(
                "the prefix stays claimed for %.0f s: storage has not answered for %.0f s",
                *(STALE_AFTER_S, self._stop_s),
            )
