"""What the threads of a pipeline share: its queues and its memory budget, behind one lock.

in    token batches with their cost, from the feed; hidden states, from the workers
out   (batch, states) for training
law   bytes in flight never exceed the budget, unless one batch alone does; every batch is delivered once

Nothing here waits for ever. Let b be the oldest undelivered batch. Batches are admitted one at a time in plan
order, so every undelivered batch in flight comes after b, or is b.
1. b is in flight. A queue is worked off in order, so b is the head of its queue and its worker is at b. Once
   b is ready, either kind of delivery takes it, or another ready batch of its window, of which there are
   finitely many.
2. b is not admitted yet. Then nothing is in flight but the batch in training, and training gives that back
   before it waits for the next one. So the budget admits b whatever its size (`fits`), and all queues are
   empty: the device whose turn it is has room.
Hence the memory that b needs is never held by batches behind it. A depth or budget lowered on the way holds
up admissions only, what is in flight still leaves.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

from dflash_lightning.target.dispatch import Dispatcher, PrefetchPolicy, fits, next_delivery
from dflash_lightning.target.pipeline_counters import PipelineCounters, Tally, snapshot
from dflash_lightning.target.pipeline_queues import BatchCost, Entry, Queues
from dflash_lightning.target.pipeline_slow import SlowWatch


class Board:
    """One pass over a source of batches. Every method may be called from any thread."""

    def __init__(
        self,
        names: Sequence[str],
        policy: PrefetchPolicy,
        *,
        dispatcher: Dispatcher,
        tally: Tally,
        slow: SlowWatch,
    ) -> None:
        self._names = names
        self._policy = policy
        self._dispatcher = dispatcher
        self._tally = tally
        self._slow = slow
        self._queues = Queues(len(names))
        self._changed = threading.Condition()
        self._admitted = 0
        self._source_ended = False
        self._closed = False
        self._error: BaseException | None = None

    # --- feed

    def admit(self, batch: Any, cost: BatchCost, *, window: int, place: int) -> bool:
        """Give the plan's next batch to a device, as soon as one has room and the budget allows it.

        Returns False when the pass is over and nobody wants more.
        """
        begun = time.perf_counter()
        with self._changed:
            while not self._over and (device := self._device_for(cost)) is None:
                self._changed.wait()
            self._tally.feed_wait += time.perf_counter() - begun
            if self._over:
                return False
            assert device is not None
            self._queues.add(Entry(batch, cost, self._admitted, window, place, device))
            self._admitted += 1
            self._tally.dispatched[device][cost.bucket] += 1
            self._tally.peak_bytes = max(self._tally.peak_bytes, self._queues.bytes)
            self._changed.notify_all()
            return True

    def _device_for(self, cost: BatchCost) -> int | None:
        if not fits(cost.bytes, in_flight=self._queues.bytes, budget=self._policy.memory_bytes):
            return None
        return self._dispatcher.choose(
            self._policy.dispatch,
            pending_tokens=self._queues.pending_tokens,
            room=self._queues.room(self._policy),
        )

    def source_took(self, seconds: float) -> None:
        """The feed waited so long for a token batch."""
        with self._changed:
            self._tally.source += seconds

    def source_ended(self) -> None:
        """No batch comes after those admitted."""
        with self._changed:
            self._source_ended = True
            self._changed.notify_all()

    # --- workers

    def take(self, device: int) -> Entry | None:
        """The oldest batch that `device` has not begun; None when there will be no more."""
        begun = time.perf_counter()
        with self._changed:
            while not self._over and (entry := self._queues.unbegun(device)) is None:
                if self._source_ended:
                    return None
                self._changed.wait()
            if self._over:
                return None
            assert entry is not None
            entry.started = time.perf_counter()
            self._tally.idle[device] += entry.started - begun
            self._changed.notify_all()  # it may be given the next one
            return entry

    def finish(self, entry: Entry, states: Any) -> None:
        """The hidden states of a batch are there."""
        with self._changed:
            assert entry.started is not None
            self._tally.busy[entry.device] += time.perf_counter() - entry.started
            entry.states, entry.ready = states, True
            self._changed.notify_all()

    # --- training

    def deliver(self) -> Entry | None:
        """The next batch for training; None at the end. The one delivered before is done with.

        Raises: what a thread raised, at once; RuntimeError when the pass was closed before its end.
        """
        begun = time.perf_counter()
        with self._changed:
            self._queues.give_back()
            self._changed.notify_all()
            self._slow.begin()
            while not self._over and (device := self._next()) is None:
                if self._source_ended and not any(self._queues):
                    return None
                self._slow.look(self._names, self._queues, self._admitted)
                self._changed.wait(self._slow.limit)
            self._tally.consumer_wait += time.perf_counter() - begun
            if self._over:
                raise self._error or RuntimeError("this pass over the batches was closed before its end")
            assert device is not None
            self._tally.delivered += 1
            self._changed.notify_all()
            return self._queues.hand_over(device)

    def _next(self) -> int | None:
        return next_delivery(self._policy.delivery, self._queues.heads)

    # --- all

    @property
    def _over(self) -> bool:
        return self._closed or self._error is not None

    def fail(self, error: BaseException) -> None:
        """Hand an exception to training; the first one counts."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def close(self) -> None:
        """Send all threads home; what is in flight is dropped."""
        with self._changed:
            self._closed = True
            self._queues.clear()
            self._changed.notify_all()

    def set_policy(self, policy: PrefetchPolicy) -> None:
        """Decide by `policy` from now on."""
        with self._changed:
            self._policy = policy
            self._changed.notify_all()

    def counters(self) -> PipelineCounters:
        with self._changed:
            return snapshot(self._names, self._queues, self._tally)
