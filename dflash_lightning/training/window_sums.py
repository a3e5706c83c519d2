"""What one optimizer window adds up to, over its micro-batches and all ranks, bucket by bucket.

law   only sums travel: one collective and one host synchronisation per optimizer step; ratios come later.
      float64, so that counts stay exact
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from dflash_lightning.objective.acceptance import streaks
from dflash_lightning.training.forward import BlockOutcome

Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor over all ranks; the identity on one."""


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What micro-batches add up to. All zero where there were none."""

    loss: float = 0.0
    """Sum of weight x loss (nats)."""
    weight: float = 0.0
    correct: float = 0.0
    supervised: float = 0.0
    streak: float = 0.0
    blocks: float = 0.0
    """Blocks with something supervised."""
    micro_batches: float = 0.0
    """Micro-batches with a weight; those without have no mean."""
    micro_loss: float = 0.0
    """Sum of their mean losses, each counted once, whatever its weight: what a raw loss curve shows."""
    micro_square: float = 0.0
    """Sum of the squares of those means."""

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Sums)})

    @property
    def mean_loss(self) -> float:
        """NaN without weight, as the two ratios below without a slot or block."""
        return _ratio(self.loss, self.weight)

    @property
    def accuracy(self) -> float:
        return _ratio(self.correct, self.supervised)

    @property
    def tau(self) -> float:
        return _ratio(self.streak + self.blocks, self.blocks)

    def ratios(self) -> dict[str, float]:
        """Loss (nats), accuracy and acceptance length per supervised slot or block."""
        return {"train/loss": self.mean_loss, "train/accuracy": self.accuracy, "train/tau": self.tau}


@dataclass(frozen=True, kw_only=True)
class WindowTotals(Sums):
    """Sums over the window and all ranks, the same numbers on every rank."""

    by_bucket: tuple[Sums, ...] = ()
    """The same sums for every bucket of the plan; a bucket that the window has no batch of is all zero."""
    non_finite: float = 0.0
    """Ranks whose gradient norm is NaN or infinite."""
    sigterm: float = 0.0
    """Ranks that were asked to stop by SIGTERM."""
    sigint: float = 0.0
    storage: float = 0.0
    """Ranks that can no longer store checkpoints."""
    busy: float = 0.0
    """Ranks that have not stored their shard of an earlier checkpoint."""
    save: float = 0.0
    """Ranks whose clock asks for a checkpoint in shards."""


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


def micro_sums(outcome: BlockOutcome) -> Tensor:
    """One micro-batch as the fields of Sums: [9] float64, on the device."""
    weight = outcome.weight.sum(dtype=torch.float64)
    numerator = outcome.numerator.detach().double()
    streak = streaks(outcome.correct, outcome.supervised)
    alive = outcome.supervised.any(-1)
    mean = torch.where(weight > 0, numerator / weight, 0.0)
    values = (
        numerator,
        weight,
        (outcome.correct & outcome.supervised).sum(),
        outcome.supervised.sum(),
        (streak * alive).sum(),
        alive.sum(),
        weight > 0,
        mean,
        mean.square(),
    )
    return torch.stack([value.double() for value in values])


class WindowSums:
    """Collects micro-batches on the device; nothing is read back before the window ends."""

    def __init__(self, num_buckets: int = 1) -> None:
        self.num_buckets = num_buckets
        self._parts: list[Tensor] = []
        self._buckets: list[int] = []
        self._places: list[int] = []
        self.losses: list[Tensor] = []
        """Loss sum of each micro-batch of the window on this rank, for the step guard."""
        self.finished: list[Tensor] = []
        """This rank's micro-batches of the window that ended last, each [9] as in Sums, on the device."""
        self.turns: list[int] = []
        """When each of `finished` was trained, counted within the window."""

    def add(self, outcome: BlockOutcome, bucket: int = 0, *, place: int | None = None) -> None:
        """`place`: the micro-step of this batch in the plan's window, where batches come in another order."""
        self._places.append(len(self._places) if place is None else place)
        self._parts.append(micro_sums(outcome))
        self._buckets.append(bucket)
        self.losses.append(outcome.numerator.detach())

    def finish(self, norm: Tensor, votes: Mapping[str, bool], reduce: Reduce) -> WindowTotals:
        """Sum over micro-batches, then over ranks. `votes`: this rank's, by the names of WindowTotals."""
        self._sort_by_plan()
        buckets = torch.stack([self._of(bucket) for bucket in range(self.num_buckets)])  # [K, 9]
        flags = torch.stack(
            [(~torch.isfinite(norm)).double(), *(norm.new_tensor(v).double() for v in votes.values())]
        )
        everyone = reduce(torch.cat([buckets.flatten(), flags])).tolist()
        width = buckets.shape[1]
        rows = [everyone[start : start + width] for start in range(0, buckets.numel(), width)]
        whole = [math.fsum(column) for column in zip(*rows, strict=True)]
        non_finite, *counted = everyone[buckets.numel() :]
        return WindowTotals(
            **_named(whole),
            by_bucket=tuple(Sums(**_named(row)) for row in rows),
            non_finite=non_finite,
            **dict(zip(votes, counted, strict=True)),
        )

    def _sort_by_plan(self) -> None:
        """From here on micro-step m is the plan's, for whoever looks up the batches of the window."""
        self.turns = sorted(range(len(self._places)), key=self._places.__getitem__)
        self._parts = [self._parts[turn] for turn in self.turns]
        self._buckets = [self._buckets[turn] for turn in self.turns]
        self.losses = [self.losses[turn] for turn in self.turns]
        self._places.sort()

    def _of(self, bucket: int) -> Tensor:
        """[9] sums of one bucket. A bad loss of another bucket stays there: no product with a mask."""
        parts = [part for part, of in zip(self._parts, self._buckets, strict=True) if of == bucket]
        return torch.stack(parts).sum(0) if parts else torch.zeros_like(self._parts[0])

    def clear(self) -> None:
        """Forget the window; `finished` still has it until the next one ends."""
        self.finished = list(self._parts)
        self._parts.clear()
        self._buckets.clear()
        self._places.clear()
        self.losses.clear()


def _named(values: list[float]) -> dict[str, float]:
    return dict(zip((field.name for field in fields(Sums)), values, strict=True))
