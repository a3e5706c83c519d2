"""When to try a failed save again: a function of the error and of how long it has been going on.

law   what may pass by itself is tried for ever, with growing pauses that differ between runs; what a person
      must put right is reported at once
"""

from dataclasses import dataclass

from dflash_lightning.checkpoint.stores.errors import RETRYABLE, Kind

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
CREDENTIALS_S = 900.0
"""Expired or rotating credentials are waited for this long; wrong ones are then reported as final."""


def pause_after(kind: Kind, *, failures: int, outage_s: float, random: float) -> float | None:
    """Seconds until the next attempt, None for never. `failures` in a row, the last one included, in
    `outage_s` seconds; `random` is in [0, 1)."""
    if kind == "credentials" and outage_s > CREDENTIALS_S:
        return None
    if kind not in RETRYABLE and kind not in ("credentials", "full"):
        return None
    pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10))
    return pause * (0.5 + random)  # else all runs of a cluster come back at the same moment


@dataclass
class Outage:
    """Failures of the store in a row, whichever saves they hit."""

    failures: int = 0
    since: float | None = None

    def begin_or_go_on(self, now: float) -> float:
        """Count a failure. Returns how long it has been failing, in seconds."""
        self.failures += 1
        self.since = now if self.since is None else self.since
        return now - self.since

    def end(self) -> None:
        self.failures, self.since = 0, None
