"""Snapshots on their way from the trainer to the worker: copied, then handed over, then held until the end.

law   a claimed arena is released in every case: handed over, or left empty
law   the worker sees a number only when the bytes are complete, also where a GPU makes the copy
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.snapshots.arenas import Arenas
from dflash_lightning.checkpoint.snapshots.freezing import Layout
from dflash_lightning.checkpoint.snapshots.snapshot import Copying, copy_state
from dflash_lightning.checkpoint.writing.messages import Channel, Save


@dataclass
class Held:
    save: Save
    copying: Copying
    since: float
    """By the monotonic clock."""
    handed: bool = False


class Loading:
    def __init__(self, arenas: Arenas) -> None:
        self._arenas = arenas
        self._held: dict[int, Held] = {}

    def fit(self, slot: int, num_bytes: int, channel: Channel) -> str:
        """Make room in a claimed arena. Returns "" or, with the claim given back, why there is none."""
        arena = self._arenas[slot]
        if num_bytes <= arena.capacity:
            return ""
        try:
            larger = self._arenas.grow(slot, num_bytes)
        except OSError as error:
            arena.release()
            return f"no memory for a snapshot of {num_bytes} bytes: {error.strerror or error}"
        larger.claim()
        channel.attach(slot, larger)
        return ""

    def load(self, slot: int, layout: Layout, job: SaveJob, number: int) -> None:
        """Copy into the claimed arena."""
        arena = self._arenas[slot]
        arena.number = 0
        since = time.monotonic()
        try:
            copying = copy_state(layout, arena)
        except BaseException:
            arena.release()
            raise
        self._held[number] = Held(Save(number, slot, job, copying.frozen), copying, since)

    def hand_over(self, channel: Channel) -> bool:
        """Give complete copies to the worker. True when none is still being made."""
        waiting = [held for held in self._held.values() if not held.handed]
        for held in waiting:
            if held.copying.done():
                self._publish(held)
                self._arenas[held.save.slot].release()
                held.handed = True
                channel.submit(held.save)
        return all(held.handed for held in waiting)

    def wait(self) -> None:
        for held in self._held.values():
            held.copying.wait()

    def since(self, number: int) -> float:
        return self._held[number].since

    def keep(self, is_held: Callable[[int], bool]) -> None:
        self._held = {number: held for number, held in self._held.items() if is_held(number)}

    def again(self) -> list[Save]:
        """For a new worker, what the dead one had. It may have finished one without being able to say so:
        that one is then stored twice, which harms nobody."""
        lost = [held for held in self._held.values() if held.handed]
        for held in lost:
            self._publish(held)
        return [held.save for held in lost]

    def _publish(self, held: Held) -> None:
        self._arenas[held.save.slot].number = held.save.number
