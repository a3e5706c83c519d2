"""What the trainer hands to the worker, and what the worker says: plain values for a pipe or a queue.

law   small: a message never fills a pipe, so sending one does not wait
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.snapshots.snapshot import Frozen
from dflash_lightning.checkpoint.stores.errors import Kind


@dataclass(frozen=True)
class Save:
    """The snapshot in arena `slot`, for as long as that arena has this number."""

    number: int
    slot: int
    job: SaveJob
    frozen: Frozen


@dataclass(frozen=True)
class Started:
    number: int


@dataclass(frozen=True)
class Stored:
    number: int
    manifest_key: str
    uri: str
    num_bytes: int
    retries: int


@dataclass(frozen=True)
class Missed:
    """An attempt failed. Without a pause it was the last one."""

    number: int
    kind: Kind
    message: str
    pause_s: float | None
    outage_s: float


Report = Started | Stored | Missed


@runtime_checkable
class Channel(Protocol):
    """A worker, in a thread or in a process. No call waits, except `wait` and `stop`."""

    def attach(self, slot: int, arena: Arena) -> None:
        """This memory is arena `slot` from now on."""
        ...

    def submit(self, save: Save) -> None: ...

    def hurry(self) -> None:
        """The newest save first, and no pause before the next attempt."""
        ...

    def reports(self) -> list[Report]:
        """What has been said since the last call."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Until there may be a report, or for so long: a worker that is dead already makes nobody spin."""
        ...

    def death(self) -> str | None:
        """Why it is dead; None while it lives."""
        ...

    def stop(self, within_s: float) -> None:
        """Cut short what it does; nothing of that is published. It is gone when this returns."""
        ...
