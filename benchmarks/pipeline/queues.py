"""What counters of their own do to queues: several feeders, one deep queue per target device, event by event.

Kept for comparison: the package has one feeder and one shared counter. Before, each of several prefetch
workers dealt its batches by a round-robin counter of its own, all of which began at device 0, into queues so
deep that they could drift apart.
"""

import heapq
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.pipeline.costs import Costs, draw
from dflash_lightning.target.dispatch import next_device

Dealing = Literal["own counters", "round_robin", "least_loaded"]


@dataclass(frozen=True, kw_only=True)
class Feeding:
    """Several feeders before several target devices."""

    dealing: Dealing
    devices: int = 6
    feeders: int = 4
    depth: int = 50
    """Batches that a queue holds, the one in the target included."""
    feed: float = 0.9
    """Time between two batches of all feeders together, over what the targets need: below 1 queues fill."""
    costs: Costs = Costs()


@dataclass
class Drift:
    """What was seen whenever a batch was dealt."""

    depths: list[list[int]]
    """Of each device."""
    spread: int = 0
    """Largest difference between the batches dealt to two devices, ever."""

    @property
    def apart(self) -> list[int]:
        """Deepest minus shallowest queue."""
        return [max(depths) - min(depths) for depths in self.depths]


class Counters:
    """Who is next: one counter for all feeders, or one for each."""

    def __init__(self, feeding: Feeding) -> None:
        self._feeding = feeding
        self._turns = [0] * feeding.feeders

    def choose(self, feeder: int, queues: Sequence[Sequence[int]]) -> int | None:
        """A device for the batch of `feeder`; None: it waits."""
        dealing = self._feeding.dealing
        counter = feeder if dealing == "own counters" else 0
        device = next_device(
            "least_loaded" if dealing == "least_loaded" else "round_robin",
            turn=self._turns[counter],
            pending_tokens=[sum(queue) for queue in queues],
            room=[len(queue) < self._feeding.depth for queue in queues],
        )
        self._turns[counter] += device is not None
        return device


def simulate(feeding: Feeding, *, batches: int, seed: int) -> Drift:
    """Deal `batches` batches; a device works its queue off in order."""
    rng = random.Random(seed)
    todo = iter(draw(feeding.costs, batches, seed))
    counters, drift = Counters(feeding), Drift([])
    queues: list[list[int]] = [[] for _ in range(feeding.devices)]
    left: list[list[float]] = [[] for _ in range(feeding.devices)]
    """Seconds that the batches of each queue take."""
    dealt, order = [0] * feeding.devices, itertools.count()
    pace = feeding.feed * feeding.costs.target / feeding.devices * feeding.feeders
    events = [(rng.random() * pace, next(order), "feeder", i) for i in range(feeding.feeders)]
    heapq.heapify(events)
    blocked: list[int] = []
    while events:
        now, _, who, number = heapq.heappop(events)
        if who == "device":
            queues[number].pop(0)
            left[number].pop(0)
            if left[number]:
                heapq.heappush(events, (now + left[number][0], next(order), "device", number))
        asking = [*blocked, number] if who == "feeder" else blocked[:]
        blocked = []
        for feeder in asking:
            device = counters.choose(feeder, queues)
            if device is None:
                blocked.append(feeder)
                continue
            batch = next(todo, None)
            if batch is None:
                return drift
            queues[device].append(batch.tokens)
            left[device].append(batch.target)
            if len(left[device]) == 1:
                heapq.heappush(events, (now + batch.target, next(order), "device", device))
            dealt[device] += 1
            drift.spread = max(drift.spread, max(dealt) - min(dealt))
            drift.depths.append([len(queue) for queue in queues])
            again = now + pace * rng.uniform(0.5, 1.5)
            heapq.heappush(events, (again, next(order), "feeder", feeder))
    return drift
