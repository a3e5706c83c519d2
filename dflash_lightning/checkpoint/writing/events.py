"""What became of a save, told by the writer at `poll`: plain values that travel through a pipe.

law   every accepted save ends in exactly one of Durable, Coalesced and Failed(will_retry=False), unless the
      run ends first; `flush` then names it
"""

from dataclasses import dataclass

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.stores.errors import Kind
from dflash_lightning.checkpoint.writing.messages import Missed, Stored


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What `submit` did. A save that was not accepted is not stored, and `reason` says why."""

    accepted: bool
    reason: str
    blocked_s: float
    num_bytes: int
    """Of the snapshot."""


@dataclass(frozen=True, kw_only=True)
class Durable:
    """Stored, verified and published: nothing on this machine is needed any more."""

    job: SaveJob
    manifest_key: str
    """Below the prefix."""
    uri: str
    """To resume from."""
    seconds: float
    """From the snapshot to here: waiting, failed attempts and the upload."""
    num_bytes: int
    retries: int
    """Failed attempts before, and what `publish` repeated by itself."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """One attempt failed."""

    job: SaveJob
    kind: Kind
    message: str
    will_retry: bool
    """False: the snapshot is given up, because trying again cannot help."""
    pause_s: float = 0.0
    """Until the next attempt."""
    outage_s: float = 0.0
    """Since the first of the failures in a row."""


@dataclass(frozen=True, kw_only=True)
class Coalesced:
    """Never stored: a newer save took its place while it waited."""

    job: SaveJob
    by: SaveJob


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Not even copied. The newer state is only in the trainer."""

    job: SaveJob
    reason: str


@dataclass(frozen=True, kw_only=True)
class Restarted:
    """The uploader process died and a new one has its work; the snapshots were not lost."""

    reason: str
    resubmitted: tuple[SaveJob, ...]


Event = Durable | Failed | Coalesced | Refused | Restarted


def durable(report: Stored, job: SaveJob, seconds: float) -> Durable:
    return Durable(
        job=job,
        manifest_key=report.manifest_key,
        uri=report.uri,
        seconds=seconds,
        num_bytes=report.num_bytes,
        retries=report.retries,
    )


def failed(report: Missed, job: SaveJob) -> Failed:
    return Failed(
        job=job,
        kind=report.kind,
        message=report.message,
        will_retry=report.pause_s is not None,
        pause_s=report.pause_s or 0.0,
        outage_s=report.outage_s,
    )
