"""All that a run's writing process holds: the claimed prefix, the writer, what became of its saves.

in    states to save, as the training thread has them
out   checkpoints under the prefix; `problem` once they can no longer be stored; figures for the log
law   opening is the only call that waits for the store, closing the only one that waits for saves
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

from dflash_lightning.checkpoint.claiming.claim import Claim, claim
from dflash_lightning.checkpoint.claiming.heartbeat import STALE_AFTER_S, Heartbeat
from dflash_lightning.checkpoint.claiming.preflight import preflight
from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.keeping.removal import clean_leftovers
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.publishing.rank_writer import Meeting, publish_as_rank
from dflash_lightning.checkpoint.snapshots.arenas import LEAST, Arenas
from dflash_lightning.checkpoint.snapshots.freezing import plan_snapshot
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.open import open_store
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.events import Durable, Failed
from dflash_lightning.checkpoint.writing.pending import name_of
from dflash_lightning.checkpoint.writing.writer import Writer

log = logging.getLogger(__name__)
LEFTOVER_AGE_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Where snapshots wait."""

    arenas: int | None = None
    """Snapshots at a time, two or more; None: as many as fit well."""
    process: bool = True
    """Shared memory and a process of its own; False: private memory and a thread."""
    pin: bool = False

    def __post_init__(self) -> None:
        if self.arenas is not None and self.arenas < LEAST:
            raise ValueError(f"arenas must be {LEAST} or more, or null for as many as fit, got {self.arenas}")


class Session:
    """Of one process; with a `meeting` of one among several that store their shards, where rank 0 holds the
    claim for all. Raises: StoreError where the store refuses, or another run writes there."""

    def __init__(
        self,
        uri: str,
        settings: StoreSettings,
        run_id: str,
        memory: Memory,
        *,
        on_durable: Callable[[Durable], None] | None = None,
        meeting: Meeting | None = None,
    ) -> None:
        opener = partial(open_store, uri, settings)
        self.run_id = run_id
        self._name = uuid4().hex[:8]
        self._memory = memory
        self._on_durable = on_durable
        self._writer: Writer | None = None
        self._failed: StoreError | None = None
        self._num_bytes = 0
        self._blocked_s = 0.0
        self._durable_after_s: float | None = None
        self.not_tried = 0
        """Saves that another rank had no room for."""
        ours = self._claim(*opener()) if meeting is None or meeting.rank == 0 else None
        self._heartbeat = None if ours is None else Heartbeat(ours)
        how = publish if meeting is None else partial(publish_as_rank, meeting)
        self._target = Target(opener, how if ours is None else partial(how, nonce=ours.owner.nonce))

    def _claim(self, store: ObjectStore, prefix: str) -> Claim:
        preflight(store, prefix)
        ours = claim(store.quick(), prefix, self.run_id, now=time.time(), stale_after_s=STALE_AFTER_S)
        try:
            self._warn_of_others(store, prefix)
            for gone in clean_leftovers(store.quick(), prefix, ours, older_than_s=LEFTOVER_AGE_S):
                log.info("removed what an earlier run left behind: %s", gone)
        except BaseException:
            ours.release()
            raise
        return ours

    def _warn_of_others(self, store: ObjectStore, prefix: str) -> None:
        """A run that begins where another has saved hides the other's behind `last` and `best`."""
        found = list_manifests(store.quick(), prefix).manifests
        if found and all(manifest.run_id != self.run_id for manifest in found):
            log.warning(
                "%s already holds checkpoints of run %s, the newest of step %d: from its first save on, this "
                "new run, %s, is what last and best mean there; to go on with the old one instead, stop now "
                "and start with --ckpt_path last",
                *(store.uri(prefix), found[0].run_id, found[0].step, self.run_id),
            )

    @property
    def problem(self) -> StoreError | None:
        """Why a save was given up for good, or this run must not write any more."""
        return (self._heartbeat and self._heartbeat.lost) or self._failed

    @property
    def taken_over(self) -> bool:
        """Another run writes here now."""
        return self._heartbeat is not None and self._heartbeat.lost is not None

    @property
    def capacity(self) -> int:
        """Snapshots that surely fit at a time."""
        return self._memory.arenas or LEAST

    @property
    def unfinished(self) -> list[SaveJob]:
        """Saves that are neither stored nor given up."""
        return self._writer.unfinished if self._writer is not None else []

    @property
    def is_ready(self) -> bool:
        return self._writer is not None

    def prepare(self, state: Any) -> None:
        """Take the memory and start the writer: once, with a state of the size that will be saved.

        Raises: MemoryError; ValueError for a state that cannot be saved.
        """
        size = plan_snapshot(state).num_bytes
        memory = self._memory
        arenas = Arenas(memory.arenas, size + size // 16, shared=memory.process, pin=memory.pin)
        self._num_bytes, self._writer = size, Writer(arenas, self._target)

    def save(self, job: SaveJob, state: Any) -> bool:
        """Copy the state and return. False: refused, and said in the log."""
        if self._writer is None:
            self.prepare(state)
        assert self._writer is not None
        receipt = self._writer.submit(replace(job, size_hint=self._num_bytes, session=self._name), state)
        self._num_bytes = receipt.num_bytes
        return receipt.accepted

    def blocked(self, seconds: float) -> None:
        """Training stood still for so long."""
        self._blocked_s += seconds

    def poll(self) -> None:
        """Learn what became of earlier saves. Never waits."""
        for event in self._writer.poll() if self._writer else ():
            if isinstance(event, Durable):
                self._durable_after_s = event.seconds
                if self._on_durable is not None:
                    self._on_durable(event)
            elif isinstance(event, Failed) and not event.will_retry:
                text = f"the checkpoint of {name_of(event.job)} cannot be stored: {event.message}"
                self._failed = StoreError(text, kind=event.kind)

    def metrics(self) -> dict[str, float]:
        """`blocked_s` covers the time since the last call, the counts the whole run."""
        values = {"blocked_s": self._blocked_s}
        self._blocked_s = 0.0
        if self._writer is not None:
            counts = self._writer.counts
            values |= {"bytes": counts.num_bytes, "queue": len(self._writer.unfinished)}
            values |= {"coalesced": counts.coalesced, "retries": counts.retries}
            values["refused"] = counts.refused + self.not_tried
        if self._durable_after_s is not None:
            values["durable_after_s"] = self._durable_after_s
        return {f"checkpoint/{name}": float(value) for name, value in values.items()}

    def finish(self, last: tuple[SaveJob, Any] | None, deadline_s: float) -> list[SaveJob]:
        """The last save, if any, then everything that is held, newest first, for at most `deadline_s`.

        Returns what is not durable.
        """
        begin = time.monotonic()
        refused = []
        if last is not None and self._writer is not None:
            self._writer.wait_for_room(last[0], deadline_s / 2)
        if last is not None and not self.save(*last):
            refused = [last[0]]
        if self._writer is None:
            return refused
        if self.taken_over:  # what waits here would become the newest of the other run
            return [*self._writer.unfinished, *refused]
        lost = self._writer.flush(deadline_s - (time.monotonic() - begin))
        self.poll()
        return [*lost, *refused]

    def flush(self, deadline_s: float) -> None:
        """Wait for what is held, for at most so long."""
        if self._writer is not None:
            self._writer.flush(deadline_s)

    def close(self) -> None:
        """End the writer and give the prefix back."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            if self._heartbeat is not None:
                self._heartbeat.stop()
