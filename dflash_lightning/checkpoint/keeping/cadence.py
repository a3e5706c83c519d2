"""When to save: pure rules of steps, time and values.

law   clocks of ranks differ: where several ranks save together, they must agree on what `is_time` says
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dflash_lightning.checkpoint.job import ALL, Mode


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """Raises ValueError for intervals that are none."""

    every_n_steps: int | None = None
    """Optimizer steps; None: never for that reason."""
    every_minutes: float | None = None
    """Since the last save of any kind; None: never for that reason."""

    def __post_init__(self) -> None:
        for name in ("every_n_steps", "every_minutes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, or null for never, got {value}")

    def is_due(self, step: int, since_last_s: float) -> bool:
        """`step`: optimizer steps taken; `since_last_s`: seconds since the last save."""
        return self.is_step(step) or self.is_time(since_last_s)

    def is_step(self, step: int) -> bool:
        """The half of it that is the same on all ranks."""
        return self.every_n_steps is not None and step % self.every_n_steps == 0

    def is_time(self, since_last_s: float) -> bool:
        return self.every_minutes is not None and since_last_s >= 60 * self.every_minutes


def among_best(values: Sequence[float], value: float, *, keep: int, mode: Mode) -> list[float] | None:
    """The best `keep` values, best first, with the new one among them; None where it is not.

    `keep` -1 keeps all. A value that is not finite is never among them; of equal values the older stays.
    """
    if not math.isfinite(value):
        return None
    sign = 1 if mode == "min" else -1
    place = sum(sign * known <= sign * value for known in values)
    if keep != ALL and place >= keep:
        return None
    kept = sorted([*values, value], key=lambda known: sign * known)
    return kept if keep == ALL else kept[:keep]
