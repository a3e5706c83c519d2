"""The batches on their way: one queue per target device. Plain data; the lock is the board's.

law   a batch keeps its place in its queue from dispatch to delivery, so `depth` times the number of devices
      bounds all that is ahead
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dflash_lightning.target.dispatch import Head, PrefetchPolicy, has_room


@dataclass(frozen=True)
class BatchCost:
    """What is known of a batch before the target has seen it."""

    tokens: int
    """Padded tokens."""
    bucket: int
    bytes: int
    """Size of its hidden states."""


@dataclass(eq=False)
class Entry:
    """One batch from the feed to training."""

    batch: Any
    cost: BatchCost
    number: int
    """Its place in this pass."""
    window: int
    place: int
    """Its micro-step in that window, by the plan."""
    device: int
    states: Any = None
    started: float | None = None
    """When its worker took it (time.perf_counter)."""
    ready: bool = False


@dataclass(eq=False)
class Queues:
    """Undelivered batches by device, oldest first, and the bytes of their hidden states."""

    devices: int
    bytes: int = 0
    """In flight: of all that is queued, and of the batch in training."""
    entries: list[deque[Entry]] = field(init=False)
    in_training: Entry | None = None

    def __post_init__(self) -> None:
        self.entries = [deque() for _ in range(self.devices)]

    def __iter__(self) -> Iterator[Entry]:
        return (entry for queue in self.entries for entry in queue)

    @property
    def heads(self) -> Sequence[Head | None]:
        """The oldest of each queue, as dispatch.py decides over them."""
        return [_head(queue[0]) if queue else None for queue in self.entries]

    @property
    def oldest(self) -> Entry | None:
        """The one that has waited longest."""
        return min(self, key=lambda entry: entry.number, default=None)

    @property
    def pending_tokens(self) -> Sequence[int]:
        """By device: padded tokens that are not through the target."""
        return [sum(e.cost.tokens for e in queue if not e.ready) for queue in self.entries]

    def room(self, policy: PrefetchPolicy) -> Sequence[bool]:
        """By device: whether it may be given one more."""
        unbegun = [sum(entry.started is None for entry in queue) for queue in self.entries]
        queued = [len(queue) for queue in self.entries]
        return has_room(policy.dispatch, depth=policy.depth, queued=queued, unbegun=unbegun)

    def unbegun(self, device: int) -> Entry | None:
        """The next one for the worker of `device`."""
        return next((entry for entry in self.entries[device] if entry.started is None), None)

    def add(self, entry: Entry) -> None:
        self.entries[entry.device].append(entry)
        self.bytes += entry.cost.bytes

    def hand_over(self, device: int) -> Entry:
        """The head of a queue goes to training, which has given back the one before."""
        assert self.in_training is None
        self.in_training = self.entries[device].popleft()
        return self.in_training

    def give_back(self) -> None:
        """Training is done with its batch."""
        if self.in_training is not None:
            self.bytes -= self.in_training.cost.bytes
            self.in_training = None

    def clear(self) -> None:
        """Drop everything."""
        self.give_back()
        for queue in self.entries:
            queue.clear()
        self.bytes = 0


def _head(entry: Entry) -> Head:
    return Head(entry.number, entry.window, entry.ready)
