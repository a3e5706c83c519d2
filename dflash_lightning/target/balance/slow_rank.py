"""Which rank the others wait for: the one that waits for its own batches, while the others have theirs.

in    what all ranks' pipelines did, log by log
out   a line for people, once for each change
law   a rank is named after `patience` logs in a row in which it stood out, never after one slow batch
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dflash_lightning.target.balance.interval import Interval
from dflash_lightning.target.balance.states_from import StatesFrom

LEAST = 0.02
"""Share of its time by which a rank's wait must exceed the others': less is no matter."""


@dataclass(frozen=True, kw_only=True)
class SlowRule:
    """When a rank stands out. Ranks meet at every optimizer step, so that all wait for the slowest; but only
    the slowest waits for a batch of its own, the others wait for it where gradients are averaged. A rank
    whose drafter is slow is not seen here: it waits for nobody."""

    factor: float = 2.0
    """Its wait for batches, as a multiple of the other ranks' mean."""
    patience: int = 3
    """Logs in a row."""

    def __post_init__(self) -> None:
        if self.factor <= 1 or self.patience < 1:
            raise ValueError(
                "a slow rank is told by a factor above 1 over at least 1 log, got factor "
                f"{self.factor} and patience {self.patience}"
            )


class SlowRank:
    """Watches the ranks from log to log."""

    def __init__(self, rule: SlowRule, states_from: StatesFrom) -> None:
        self.rule = rule
        self._states_from = states_from
        self._candidate: int | None = None
        self._logs = 0
        self._named: int | None = None

    def look(self, ranks: Sequence[Interval]) -> str | None:
        """What to say behind this log, if anything."""
        slow = stands_out(ranks, self.rule.factor)
        self._logs = self._logs + 1 if slow == self._candidate else 1
        self._candidate = slow
        if self._logs < self.rule.patience or slow == self._named:
            return None
        before, self._named = self._named, slow
        if slow is None:
            return f"rank {before} no longer holds the other ranks up"
        return describe(slow, ranks, self._logs, self._states_from)


def stands_out(ranks: Sequence[Interval], factor: float) -> int | None:
    """The rank whose wait for batches exceeds the mean of the others `factor` times, and by LEAST of the
    time; None where there is none."""
    if len(ranks) < 2:
        return None
    waits = [rank.wait for rank in ranks]
    slow = max(range(len(ranks)), key=waits.__getitem__)
    others = (sum(waits) - waits[slow]) / (len(ranks) - 1)
    margin = LEAST * ranks[slow].seconds
    return slow if waits[slow] > factor * others and waits[slow] - others > margin else None


def describe(slow: int, ranks: Sequence[Interval], logs: int, states_from: StatesFrom) -> str:
    """Names the rank, what it waits for, and where to look."""
    others = [rank for number, rank in enumerate(ranks) if number != slow]
    ours, theirs = _share(ranks[slow]), sum(map(_share, others)) / len(others)
    pending, usual = _pending(ranks[slow]), sum(map(_pending, others)) / len(others)
    feed = ranks[slow].source > sum(device.busy for device in ranks[slow].devices) / len(ranks[slow].devices)
    from_disk = states_from == "disk"
    queue = (
        "wait to be read there, {:,.0f} on others" if from_disk else "wait for its target, {:,.0f} for theirs"
    )
    if feed:
        reason = "Its data loader is slow: look at its disk"
    elif from_disk:
        reason = "It reads hidden states slowly: look at its disk (model.hidden_states)"
    else:
        reason = "Its target is slow: look at its GPUs"
    return (
        f"rank {slow} holds the other ranks up: its training waits for batches {100 * ours:.1f} % of the "
        f"time, theirs {100 * theirs:.1f} % ({logs} logs in a row); {pending:,.0f} padded tokens "
        f"{queue.format(usual)}. {reason}, and for other processes there"
    )


def _share(rank: Interval) -> float:
    return rank.wait / rank.seconds if rank.seconds else 0.0


def _pending(rank: Interval) -> float:
    return sum(device.pending_tokens for device in rank.devices)
