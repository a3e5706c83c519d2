"""What each arena holds, as far as the trainer knows: the rules of `pending` applied to real memory.

law   the trainer may be late to learn that an upload has begun, but never acts on it: it claims an arena
      before it gives up or overwrites what is inside
"""

from dataclasses import replace

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.snapshots.arenas import Arenas
from dflash_lightning.checkpoint.writing.events import Coalesced
from dflash_lightning.checkpoint.writing.pending import FREE, Refuse, Slot, decide, superseded


class Board:
    def __init__(self, arenas: Arenas) -> None:
        self._arenas = arenas
        self.slots: list[Slot] = [FREE] * len(arenas)

    def jobs(self) -> list[SaveJob]:
        """Accepted and not finished, oldest first."""
        held = sorted(self.slots, key=lambda slot: slot.number)
        return [slot.job for slot in held if slot.job is not None]

    def job(self, index: int) -> SaveJob:
        job = self.slots[index].job
        assert job is not None, "asked for the save of a free arena"
        return job

    def slot_of(self, number: int) -> int | None:
        numbers = [slot.number for slot in self.slots]
        return numbers.index(number) if number in numbers else None

    def claim(self, job: SaveJob) -> int | Refuse:
        """The arena for a new save, claimed."""
        view = list(self.slots)
        while not isinstance(choice := decide(view, job), Refuse):
            index = choice.slot
            arena, number = self._arenas[index], view[index].number
            if arena.claim():
                if arena.number == number:
                    return index
                arena.release()  # stored this moment; its report is on the way
            # The worker was faster.
            view[index] = replace(view[index], job=view[index].job or job, uploading=True)
        return choice

    def occupy(self, index: int, job: SaveJob, number: int) -> list[Coalesced]:
        """The claimed arena is the new save's. What waited in it is lost."""
        before, self.slots[index] = self.slots[index].job, Slot(job, number)
        return [] if before is None else [Coalesced(job=before, by=job)]

    def mark(self, index: int, *, uploading: bool) -> None:
        self.slots[index] = replace(self.slots[index], uploading=uploading)

    def nothing_uploads(self) -> None:
        self.slots = [replace(slot, uploading=False) for slot in self.slots]

    def free(self, index: int) -> None:
        self.slots[index] = FREE

    def coalesce(self) -> list[Coalesced]:
        """Give up waiting saves that others have made obsolete."""
        events = []
        for index, newer in superseded(self.slots).items():
            older = self.slots[index].job
            if older is not None and self._arenas[index].retire(self.slots[index].number):
                self.free(index)
                events.append(Coalesced(job=older, by=newer))
            else:
                self.mark(index, uploading=True)
        return events
