"""What one optimizer window adds up to, over its micro-batches and all ranks.

law   only sums travel: one collective and one host synchronisation per optimizer step; ratios come later.
      float64, so that counts stay exact
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from dflash_lightning.objective.acceptance import streaks
from dflash_lightning.training.forward import BlockOutcome

Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor over all ranks; the identity on one."""


@dataclass(frozen=True, kw_only=True)
class WindowTotals:
    """Sums over the window and all ranks, the same numbers on every rank."""

    loss: float = 0.0
    weight: float = 0.0
    correct: float = 0.0
    supervised: float = 0.0
    streak: float = 0.0
    blocks: float = 0.0
    non_finite: float = 0.0
    """Ranks whose gradient norm is NaN or infinite."""
    sigterm: float = 0.0
    """Ranks that were asked to stop by SIGTERM."""
    sigint: float = 0.0

    def __add__(self, other: "WindowTotals") -> "WindowTotals":
        return WindowTotals(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def ratios(self) -> dict[str, float]:
        """Loss (nats), accuracy and acceptance length per supervised slot or block."""
        return {
            "train/loss": _ratio(self.loss, self.weight),
            "train/accuracy": _ratio(self.correct, self.supervised),
            "train/tau": _ratio(self.streak + self.blocks, self.blocks),
        }


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


class WindowSums:
    """Collects micro-batches on the device; nothing is read back before the window ends."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []
        self.losses: list[Tensor] = []
        """Loss sum of each micro-batch of the window on this rank, for the step guard."""

    def add(self, outcome: BlockOutcome) -> None:
        numerator = outcome.numerator.detach()
        streak = streaks(outcome.correct, outcome.supervised)
        alive = outcome.supervised.any(-1)
        values = (
            numerator,
            outcome.weight.sum(dtype=torch.float64),
            (outcome.correct & outcome.supervised).sum(),
            outcome.supervised.sum(),
            (streak * alive).sum(),
            alive.sum(),
        )
        self._parts.append(torch.stack([value.double() for value in values]))
        self.losses.append(numerator)

    def finish(self, norm: Tensor, signals: tuple[bool, bool], reduce: Reduce) -> WindowTotals:
        """Sum over micro-batches, then over ranks. `signals`: (SIGTERM, SIGINT) seen by this rank."""
        flags = torch.stack(
            [(~torch.isfinite(norm)).double(), *(norm.new_tensor(s).double() for s in signals)]
        )
        everyone = reduce(torch.cat([torch.stack(self._parts).sum(0), flags]))
        names = [field.name for field in fields(WindowTotals)]
        return WindowTotals(**dict(zip(names, everyone.tolist(), strict=True)))

    def clear(self) -> None:
        self._parts.clear()
        self.losses.clear()
