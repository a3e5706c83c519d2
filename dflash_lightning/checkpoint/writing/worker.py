"""The loop that stores snapshots, one at a time. A thread runs it here, or the uploader process does.

in    saves with their arenas
out   reports: started, stored, missed
law   a save is tried until it is stored, given up for good, or its arena holds something else
law   an arena is claimed during an attempt only, and free again before anybody hears how it went
law   deletions run beside the attempts, and are finished before it ends, if the store lets them
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from dflash_lightning.checkpoint.redact import known_secrets, redact_text
from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.writing.attempt import Attempts, Target
from dflash_lightning.checkpoint.writing.deletions import Deletions
from dflash_lightning.checkpoint.writing.messages import Missed, Report, Save, Started
from dflash_lightning.checkpoint.writing.retrying import Outage

CLAIMED_ELSEWHERE_S = 0.005
DRAIN_S = 600.0
"""Without a trainer, attempts end after this time: nobody is left to mind an orphan."""
LAST_DELETIONS_S = 60.0
"""At the end, deletions that take longer are left to the next run."""


class Worker:
    """`run` belongs to one thread; every other method may be called from any."""

    def __init__(self, target: Target, report: Callable[[Report], None]) -> None:
        self._deletions = Deletions()
        self._attempts = Attempts(target, lambda: self._stopping, self._deletions.submit)
        self._report = report
        self._arenas: dict[int, Arena] = {}
        self._queue: list[Save] = []
        self._misses: dict[int, int] = {}
        self._outage = Outage()
        self._changed = threading.Condition()
        self._stopping = self._newest_first = False
        self._give_up_at: float | None = None
        self._not_before = 0.0

    def attach(self, slot: int, arena: Arena) -> None:
        """The trainer holds the claim on what was in this place before."""
        with self._changed:
            before = self._arenas.get(slot)
            self._arenas[slot] = arena
            if before is not None:
                before.close()

    def submit(self, save: Save) -> None:
        with self._changed:
            self._queue.append(save)
            self._changed.notify()

    def hurry(self) -> None:
        """From now on the newest save first, and the next attempt at once."""
        with self._changed:
            self._newest_first, self._not_before = True, 0.0
            self._changed.notify()

    def drain(self, within_s: float = DRAIN_S) -> None:
        """Store what is here, then return from `run`."""
        with self._changed:
            self._give_up_at = time.monotonic() + within_s
        self.hurry()

    def stop(self) -> None:
        """Return from `run` at the next write of the attempt in progress."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        try:
            while (save := self._next()) is not None:
                self._turn(save)
        finally:
            self._deletions.finish(LAST_DELETIONS_S)

    def _next(self) -> Save | None:
        with self._changed:
            while not self._over():
                pause = self._not_before - time.monotonic()
                if self._queue and pause <= 0:
                    choose = max if self._newest_first else min
                    save = choose(self._queue, key=lambda save: save.number)
                    self._queue.remove(save)
                    return save
                self._changed.wait(pause if self._queue else None)
        return None

    def _over(self) -> bool:
        if self._stopping or self._give_up_at is None:
            return self._stopping
        return not self._queue or time.monotonic() > self._give_up_at

    def _turn(self, save: Save) -> None:
        with self._changed:  # else it may be exchanged for a larger one in between
            arena = self._arenas[save.slot]
            if arena.number not in (save.number, 0):
                return  # superseded
            claimed = arena.claim()
        if not claimed:  # the trainer is about to hand it over, or to take it back
            time.sleep(CLAIMED_ELSEWHERE_S)
            self.submit(save)
            return
        try:
            if arena.number != save.number:
                return  # superseded
            self._report(Started(save.number))
            outcome = self._try(save, arena)
            again = isinstance(outcome, Missed) and outcome.pause_s is not None
            if outcome is not None and not again:
                arena.number = 0  # so that nobody takes it for one that waits until the report is read
        finally:
            arena.release()
        if again:
            self.submit(save)
        if outcome is not None:
            self._report(outcome)

    def _try(self, save: Save, arena: Arena) -> Report | None:
        try:
            stored = self._attempts.store(save, arena)
        except Exception as error:  # whatever it is, the next save must find a living worker
            return None if self._stopping else self._missed(save, error)
        self._outage.end()
        return replace(stored, retries=stored.retries + self._misses.pop(save.number, 0))

    def _missed(self, save: Save, error: Exception) -> Missed:
        now = time.monotonic()
        self._misses[save.number] = self._misses.get(save.number, 0) + 1
        kind = error.kind if isinstance(error, StoreError) else "other"
        text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        pause = self._outage.missed(kind, now=now, random=random.random())
        self._not_before = now + (pause or 0.0)
        outage_s = self._outage.lasts_s(now)
        return Missed(save.number, kind, redact_text(text, known_secrets()), pause, outage_s)
