"""When to try a failed save again: a function of the error and of how long it has been going on.

law   what may pass by itself is tried for ever, with growing pauses that differ between runs; what a person
      must put right is reported at once
law   no time of another fault counts against credentials: an outage may end with the old ones expired
"""

from dataclasses import dataclass

from dflash_lightning.checkpoint.stores.errors import RETRYABLE, Kind

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
CREDENTIALS_S = 900.0
"""Expired or rotating credentials are waited for this long; wrong ones are then reported as final."""


def pause_after(kind: Kind, *, failures: int, refused_s: float, random: float) -> float | None:
    """Seconds until the next attempt, None for never. `failures` in a row, the last one included; for the
    last `refused_s` seconds nothing but credentials was wrong; `random` is in [0, 1)."""
    if kind == "credentials" and refused_s > CREDENTIALS_S:
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
    refused_since: float | None = None
    """The first of the failures about credentials that came last, one after the other."""

    def missed(self, kind: Kind, *, now: float, random: float) -> float | None:
        """Count a failure. Returns the pause after it, as `pause_after`."""
        self.failures += 1
        self.since = now if self.since is None else self.since
        if kind != "credentials":
            self.refused_since = None
        elif self.refused_since is None:
            self.refused_since = now
        refused_s = 0.0 if self.refused_since is None else now - self.refused_since
        return pause_after(kind, failures=self.failures, refused_s=refused_s, random=random)

    def lasts_s(self, now: float) -> float:
        """How long it has been failing."""
        return 0.0 if self.since is None else now - self.since

    def end(self) -> None:
        self.failures, self.since, self.refused_since = 0, None, None
