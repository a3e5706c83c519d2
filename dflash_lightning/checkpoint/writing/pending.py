"""Which save goes into which arena: the queue's rules, without memory, processes or clocks.

in    what each arena holds; a new save
out   the arena to use, or why there is none
law   newest wins: an ordinary save that waits is superseded by any newer save, a must-keep one only by a
      newer must-keep one of its kind
law   what is being uploaded is never touched, and no decision waits for it
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dflash_lightning.checkpoint.job import SaveJob


@dataclass(frozen=True)
class Slot:
    """One arena as the trainer knows it. Free without a job."""

    job: SaveJob | None = None
    number: int = 0
    """Order of acceptance, from 1."""
    uploading: bool = False
    """In the hands of the writer; between two attempts it waits again."""


FREE = Slot()


@dataclass(frozen=True)
class Place:
    """Copy into this arena. If its save is waiting, that one is lost to the new one."""

    slot: int


@dataclass(frozen=True)
class Refuse:
    reason: str


def supersedes(newer: SaveJob, older: SaveJob) -> bool:
    """True when `older` need not be stored any more, if it still waits."""
    return not older.must_keep or (newer.must_keep and newer.kind == older.kind)


def decide(slots: Sequence[Slot], job: SaveJob) -> Place | Refuse:
    """A free arena first: what waits elsewhere stays good until the new copy is complete. Otherwise the arena
    of a waiting save that the new one supersedes, ordinary ones and older ones first."""
    for index, slot in enumerate(slots):
        if slot.job is None:
            return Place(index)
    waiting = [
        (slot.job.must_keep, slot.number, index)
        for index, slot in enumerate(slots)
        if slot.job is not None and not slot.uploading and supersedes(job, slot.job)
    ]
    if waiting:
        return Place(min(waiting)[2])
    held = ", ".join(describe(slot) for slot in slots)
    return Refuse(f"all {len(slots)} snapshot buffers are taken and none may be given up: {held}")


def superseded(slots: Sequence[Slot]) -> dict[int, SaveJob]:
    """Arenas whose waiting save another one has made obsolete, and the newest save that did."""
    found: dict[int, SaveJob] = {}
    order = sorted((slot for slot in slots if slot.job is not None), key=lambda slot: slot.number)
    for index, older in enumerate(slots):
        for newer in order:
            if older.job is None or newer.job is None or older.uploading:
                continue
            if newer.number > older.number and supersedes(newer.job, older.job):
                found[index] = newer.job
    return found


def name_of(job: SaveJob) -> str:
    """For people: "step 1200 (best)"."""
    return f"step {job.step} ({job.kind})"


def describe(slot: Slot) -> str:
    if slot.job is None:
        return "free"
    return f"{name_of(slot.job)} {'is being uploaded' if slot.uploading else 'waits'}"
