"""The trainer's side of background checkpoints: a copy, a message, and what came of earlier ones.

in    `submit` a save with its state; `poll` at every step; `flush` and `close` at the end
out   a receipt at once; events later
law   `submit` and `poll` never wait for storage: what they cost is the copy, or microseconds
law   a snapshot stays in its arena until it is stored, given up by a rule, or the run ends: a worker that
      died is replaced, and gets all of them again
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.snapshots.arenas import Arenas
from dflash_lightning.checkpoint.snapshots.freezing import Layout, plan_snapshot
from dflash_lightning.checkpoint.writing.announce import Announcer, Counts
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.board import Board
from dflash_lightning.checkpoint.writing.events import (
    Event,
    Failed,
    Receipt,
    Refused,
    Restarted,
    durable,
    failed,
)
from dflash_lightning.checkpoint.writing.keeper import Keeper
from dflash_lightning.checkpoint.writing.loading import Loading
from dflash_lightning.checkpoint.writing.messages import Channel, Missed, Report, Started
from dflash_lightning.checkpoint.writing.pending import Refuse, decide
from dflash_lightning.checkpoint.writing.writer_process import ProcessChannel
from dflash_lightning.checkpoint.writing.writer_thread import ThreadChannel

LOOK_S = 0.2
CLOSE_S = 5.0
"""For the last deletions; what an upload wrote by then is cut short at once."""


class Writer:
    """All methods belong to the training thread. A process where the arenas are shared, else a thread."""

    def __init__(
        self, arenas: Arenas, target: Target, *, open_channel: Callable[[Target], Channel] | None = None
    ) -> None:
        open_channel = open_channel or (ProcessChannel if arenas.shared else ThreadChannel)
        self._arenas = arenas
        self._board = Board(arenas)
        self._loading = Loading(arenas)
        self._keeper = Keeper(lambda: open_channel(target), arenas, otherwise=lambda: ThreadChannel(target))
        self._announce = Announcer()
        self._events: list[Event] = []
        self._number = 0

    @property
    def counts(self) -> Counts:
        return self._announce.counts

    @property
    def unfinished(self) -> list[SaveJob]:
        """Accepted, and neither stored nor given up, oldest first."""
        return self._board.jobs()

    @property
    def channel(self) -> Channel:
        return self._keeper.channel

    def submit(self, job: SaveJob, state: Any) -> Receipt:
        """Copy the state and hand it over. Raises: ValueError for a state that cannot be saved."""
        begin = time.perf_counter()
        self._look()
        layout = plan_snapshot(state)
        reason = self._load(job, layout)
        if reason:
            self._tell(Refused(job=job, reason=reason))
        self._look()
        blocked_s = time.perf_counter() - begin
        return Receipt(accepted=not reason, reason=reason, blocked_s=blocked_s, num_bytes=layout.num_bytes)

    def poll(self) -> list[Event]:
        """What happened since the last call. A worker that died is replaced here."""
        self._look()
        events, self._events = self._events, []
        return events

    def wait_for_room(self, job: SaveJob, deadline_s: float) -> bool:
        """For the last save of a run, before `submit`: True as soon as it would be accepted."""
        return self._until(lambda: not isinstance(decide(self._board.slots, job), Refuse), deadline_s)

    def flush(self, deadline_s: float) -> list[SaveJob]:
        """Store what is held, newest first, for at most this long. Returns what is not stored: still held, or
        given up. Events stay for `poll`."""
        begin = time.monotonic()
        self._loading.wait()
        self._keeper.hurry()
        self._until(lambda: not self.unfinished, deadline_s - (time.monotonic() - begin))
        given_up = [event.job for event in self._events if isinstance(event, Failed) and not event.will_retry]
        return given_up + self.unfinished

    def close(self) -> None:
        """End the worker, finished or not, and free the memory."""
        self._keeper.channel.stop(CLOSE_S)
        with suppress(RuntimeError):  # of a GPU that has failed; else no copy may outlive its memory
            self._loading.wait()
        self._arenas.close()

    def _load(self, job: SaveJob, layout: Layout) -> str:
        """Returns "", or why the save is refused."""
        slot = self._board.claim(job)
        if isinstance(slot, Refuse):
            return slot.reason
        reason = self._loading.fit(slot, layout.num_bytes, self.channel)
        if reason:
            return reason
        self._number += 1
        for event in self._board.occupy(slot, job, self._number):
            self._tell(event)
        try:
            self._loading.load(slot, layout, job, self._number)
        except BaseException:
            self._board.free(slot)
            raise
        return ""

    def _look(self) -> None:
        for report in self._keeper.reports():
            self._note(report)
        self._loading.keep(lambda number: self._board.slot_of(number) is not None)
        self._revive()
        if self._loading.hand_over(self.channel):  # until the new copy is complete the older one counts
            for event in self._board.coalesce():
                self._tell(event)

    def _revive(self) -> None:
        reason = self._keeper.revive(self._loading.again)
        if reason is not None:
            self._board.nothing_uploads()
            self._tell(Restarted(reason=reason, resubmitted=tuple(self.unfinished)))

    def _note(self, report: Report) -> None:
        slot = self._board.slot_of(report.number)
        if slot is None:
            return  # of a worker that has died since
        job, since = self._board.job(slot), self._loading.since(report.number)
        if isinstance(report, Started):
            self._board.mark(slot, uploading=True)
        elif isinstance(report, Missed):
            self._tell(failed(report, job))
            self._board.mark(slot, uploading=False)
            if report.pause_s is None:
                self._board.free(slot)
        else:
            self._board.free(slot)
            self._tell(durable(report, job, time.monotonic() - since))

    def _tell(self, event: Event) -> None:
        self._announce(event)
        self._events.append(event)

    def _until(self, reached: Callable[[], bool], deadline_s: float) -> bool:
        deadline = time.monotonic() + deadline_s
        self._look()
        while not reached():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.channel.wait(min(LOOK_S, left))
            self._look()
        return True
