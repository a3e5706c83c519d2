"""What batches cost: mean seconds of target and drafter, and how much they vary."""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Of one batch."""

    target: float = 3.0
    """Seconds of a target device, for any unit of time: the simulation scales it."""
    drafter: float = 1.0
    """Seconds of a drafter device."""
    sizes: float = 0.3
    """How much batches differ in padded tokens, and with them the target's time: coefficient of variation."""
    jitter: float = 0.2
    """How much the target's time varies beyond that."""
    drafter_jitter: float = 0.1

    @classmethod
    def read(cls, path: Path) -> "Costs":
        """From a JSON object with any of these names; others are refused."""
        found: Mapping[str, float] = json.loads(path.read_text())
        if unknown := set(found) - {f.name for f in fields(cls)}:
            raise ValueError(f"{path}: unknown costs {sorted(unknown)}; known are {[*_names()]}")
        return cls(**found)


def _names() -> list[str]:
    return [f.name for f in fields(Costs)]


@dataclass(frozen=True)
class Batch:
    """Its costs are drawn beforehand, so that every policy is given the same batches."""

    number: int
    tokens: int
    target: float
    drafter: float


def draw(costs: Costs, batches: int, seed: int, *, rank: int = 0) -> list[Batch]:
    """So many batches, of equal size on all ranks: the plan deals windows by cost. What they take beyond that
    is a rank's own. Mean costs are those asked for exactly, so that the analytic limit is."""
    plan, rng = random.Random(seed), random.Random(1000 * seed + rank + 1)
    sizes = _scaled([_varied(plan, costs.sizes) for _ in range(batches)])
    target = _scaled([size * _varied(rng, costs.jitter) for size in sizes])
    drafter = _scaled([_varied(rng, costs.drafter_jitter) for _ in range(batches)])
    return [
        Batch(i, round(4096 * size), costs.target * t, costs.drafter * d)
        for i, (size, t, d) in enumerate(zip(sizes, target, drafter, strict=True))
    ]


def _varied(rng: random.Random, variation: float) -> float:
    """Log-normal with mean 1: never negative, now and then long."""
    sigma = math.sqrt(math.log1p(variation**2))
    return rng.lognormvariate(-(sigma**2) / 2, sigma)


def _scaled(values: list[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value / mean for value in values]
