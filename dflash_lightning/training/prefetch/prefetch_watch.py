"""From log to log: one row of every rank in; what to log, what to say, and how deep from now on.

law   decided from what every rank knows, so that all decide alike; one collective a log
"""

from collections.abc import Callable, Sequence
from typing import Any

from dflash_lightning.target.balance.bottleneck import Side, advice, rates
from dflash_lightning.target.balance.depth import DepthBounds, DepthState, next_depth
from dflash_lightning.target.balance.interval import Interval
from dflash_lightning.target.balance.slow_rank import SlowRank, SlowRule
from dflash_lightning.target.balance.states_from import StatesFrom
from dflash_lightning.training.prefetch.prefetch_values import prefetch_values

Gather = Callable[[Sequence[float]], Sequence[Sequence[float]]]
"""The row of this rank -> the rows of all, rank 0's first. A collective."""

PATIENCE = 3
"""Logs in a row with the same bottleneck before it is told."""


class PrefetchWatch:
    """What is remembered of the pipelines of all ranks."""

    def __init__(self, bounds: DepthBounds, rule: SlowRule, *, depth: int, states_from: StatesFrom) -> None:
        self.bounds = bounds
        self.depth = DepthState(depth=depth)
        self._states_from: StatesFrom = states_from
        self._slow = SlowRank(rule, states_from)
        self._side: Side | None = None
        self._told: Side | None = None
        self._logs = 0

    def look(self, interval: Interval, gather: Gather) -> tuple[dict[str, float], list[str]]:
        """(values to log, lines to say). Moves `depth`. A collective."""
        devices = len(interval.devices)
        ranks = [Interval.of_row(row, devices) for row in gather(interval.row())]
        values = prefetch_values(ranks, depth=self.depth.depth)
        lines = [line for line in (self._slow.look(ranks), self._bottleneck(ranks)) if line]
        self.depth = next_depth(self.depth, ranks, self.bounds)
        return values, lines

    def _bottleneck(self, ranks: Sequence[Interval]) -> str | None:
        """Once for each change, and only behind PATIENCE logs in a row."""
        if (found := rates(ranks)) is None:
            return None
        self._logs = self._logs + 1 if found.side == self._side else 1
        self._side = found.side
        if self._logs < PATIENCE or found.side == self._told:
            return None
        self._told = found.side
        return advice(found, self._states_from)

    def state_dict(self) -> dict[str, Any]:
        return self.depth.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at the depth that was found, as far as the bounds of today allow it."""
        found = DepthState(**state)
        depth = min(max(found.depth, self.bounds.least), self.bounds.most)
        self.depth = DepthState(depth=depth, floor=min(found.floor, depth), calm=found.calm)
