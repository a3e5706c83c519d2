"""How far ahead the target runs: deep enough that training never waits, and no deeper.

in    what all ranks' pipelines did since the last log, the depth they had
out   the depth from now on, the same for all ranks
law   where costs do not change, the depth stops changing: a depth at which training waited is not tried again
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dflash_lightning.target.balance.interval import Interval

WAIT = 0.01
"""Share of the time that training may wait before queues are made deeper."""
CALM = 0.001
"""Share below which it does not wait at all."""
SPARE = 0.02
"""Share of the time that a device, or the feed, must be held up by full queues for depth to be worth it."""


@dataclass(frozen=True, kw_only=True)
class DepthBounds:
    """Between which depths to look, and what they may cost."""

    least: int = 1
    most: int = 8
    patience: int = 10
    """Logs in a row without a wait after which a smaller depth is tried."""
    memory_bytes: int | None = None
    """Budget of one rank's hidden states in flight."""

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(
                f"depths must be bounded by 1 <= min_depth <= max_depth, got {self.least} and {self.most}"
            )


@dataclass(frozen=True, kw_only=True)
class DepthState:
    """What is remembered from log to log."""

    depth: int
    floor: int = 1
    """Training was seen to wait at every smaller depth."""
    calm: int = 0
    """Logs in a row without a wait."""

    def state_dict(self) -> dict[str, int]:
        return asdict(self)


def next_depth(state: DepthState, ranks: Sequence[Interval], bounds: DepthBounds) -> DepthState:
    """One deeper where training waited and depth can help; one less deep after a long calm.

    The rank that waits most decides: the others wait for it where gradients are averaged.
    """
    worst = max(ranks, key=_waiting)
    if _waiting(worst) > WAIT:
        if state.depth < bounds.most and depth_helps(worst) and _affordable(state.depth, ranks, bounds):
            deeper = state.depth + 1
            return DepthState(depth=deeper, floor=max(state.floor, deeper))
        return DepthState(depth=state.depth, floor=state.floor)
    calm = state.calm + 1 if _waiting(worst) < CALM else 0
    if calm >= bounds.patience and state.depth > max(bounds.least, state.floor):
        return DepthState(depth=state.depth - 1, floor=state.floor)
    return DepthState(depth=state.depth, floor=state.floor, calm=calm)


def depth_helps(rank: Interval) -> bool:
    """Whether deeper queues can shorten the wait: the feed stood before full queues while a device had
    nothing to do or only finished batches.

    A target that is never idle is too slow at any depth, and a feed that never waits for room leaves no queue
    full.
    """
    idle = max(device.idle for device in rank.devices)
    return min(idle, rank.feed_wait) > SPARE * rank.seconds


def _waiting(rank: Interval) -> float:
    return rank.wait / rank.seconds if rank.seconds else 0.0


def _affordable(depth: int, ranks: Sequence[Interval], bounds: DepthBounds) -> bool:
    """Whether the budget has room for one more batch of the usual size in each queue.

    Not for the largest: whatever the depth, the pipeline keeps the budget batch by batch.
    """
    if bounds.memory_bytes is None:
        return True
    return max(rank.bytes_in_flight for rank in ranks) * (depth + 1) <= bounds.memory_bytes * depth
