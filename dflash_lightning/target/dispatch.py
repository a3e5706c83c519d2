"""Which device computes the next batch, and which finished batch is trained on next. Pure, no thread.

in    what lies in the queues of a rank's target devices
out   the index of a device, or None: wait
law   batches are dealt in plan order, so the oldest undelivered batch is always the head of some queue
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Dispatch = Literal["round_robin", "least_loaded"]
Delivery = Literal["in_order", "ready_first"]


@dataclass(frozen=True, kw_only=True)
class PrefetchPolicy:
    """How a rank's target runs ahead of its drafter."""

    dispatch: Dispatch = "round_robin"
    """Who computes the next batch: every device in turn, or the one with the fewest padded tokens to do."""
    delivery: Delivery = "in_order"
    """Which batch is trained next: the plan's next one, or whatever is ready inside the optimizer window."""
    depth: int = 2
    """Batches that each target device may be ahead, the one it computes included; 0: no pipeline. With
    `least_loaded` on average: a faster device may take part of what a slower one leaves."""
    memory_bytes: int | None = 4 << 30
    """Hidden states of this rank that may exist at a time, in bytes; null: only `depth` bounds them."""

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"prefetch depth must be at least 0 batches (0: no pipeline), got {self.depth}")
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise ValueError(
                f"prefetch memory must be at least 1 byte, got {self.memory_bytes}; null leaves depth as the "
                "only bound"
            )


@dataclass(frozen=True)
class Head:
    """The oldest undelivered batch of one device."""

    number: int
    """Its place in the plan, counted from where the epoch was begun or resumed."""
    window: int
    """The optimizer step it belongs to."""
    ready: bool


def next_device(
    dispatch: Dispatch, *, turn: int, pending_tokens: Sequence[int], room: Sequence[bool]
) -> int | None:
    """Who computes the next batch; None while nobody may.

    Args:
        turn: Batches dealt so far. Equally loaded devices take turns, too: were it always the first, one
            device would do the work of all where the target is faster than the drafter.
        pending_tokens: Padded tokens by device that still have to go through its target. Finished ones that
            wait for the drafter do not count: a device that is fast would look busy, and get less.
        room: Devices that may be given one more. `round_robin` waits for the one whose turn it is.
    """
    if dispatch == "round_robin":
        device = turn % len(room)
        return device if room[device] else None
    free = [device for device, has_room in enumerate(room) if has_room]
    return min(free, key=lambda device: (pending_tokens[device], (device - turn) % len(room)), default=None)


def has_room(dispatch: Dispatch, *, depth: int, queued: Sequence[int], unbegun: Sequence[int]) -> list[bool]:
    """By device: whether it may be given one more.

    By turns each may have `depth`. The least loaded may have what all together may, but only one that it has
    not begun: were its queue filled as far as that goes, a slow device would in the end be given as many as
    the others, and all would wait for it.

    Args:
        queued: Batches by device that are not yet delivered.
        unbegun: Those of them that its target has not begun.
    """
    if dispatch == "round_robin":
        return [count < depth for count in queued]
    return [sum(queued) < depth * len(queued) and waiting == 0 for waiting in unbegun]


def next_delivery(delivery: Delivery, heads: Sequence[Head | None]) -> int | None:
    """The device whose head is trained on next; None while that is not ready.

    A window is drained before the next begins: the oldest head tells which window that is.
    """
    present = [(head.number, device, head) for device, head in enumerate(heads) if head is not None]
    if not present:
        return None
    _, first, oldest = min(present)
    if delivery == "in_order":
        return first if oldest.ready else None
    ready = [(n, device) for n, device, head in present if head.ready and head.window == oldest.window]
    return min(ready)[1] if ready else None


def fits(cost: int, *, in_flight: int, budget: int | None) -> bool:
    """Whether `cost` more bytes may be in flight. What is larger than the whole budget runs alone."""
    return budget is None or in_flight == 0 or in_flight + cost <= budget


class Dispatcher:
    """The one counter that all feeders share: were each to count for itself, all would begin at device 0."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = 0

    def choose(
        self, dispatch: Dispatch, *, pending_tokens: Sequence[int], room: Sequence[bool]
    ) -> int | None:
        """As `next_device`; a turn is used up by whoever gets a device."""
        with self._lock:
            device = next_device(dispatch, turn=self._turn, pending_tokens=pending_tokens, room=room)
            self._turn += device is not None
            return device
