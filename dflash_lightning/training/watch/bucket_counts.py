"""Counts behind the bucket-mix metrics: what was consumed, by bucket.

law   every value is a ratio of sums; counts come from WindowFacts, the same on every rank
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dflash_lightning.data.window_facts import WindowFacts

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
NAMES = ("batches", "samples", "tokens")


def by_bucket(facts: WindowFacts, num_buckets: int) -> IntArray:
    """Batches, samples and real tokens of each bucket in one window: [3, buckets]."""
    weights = (np.ones_like(facts.samples), facts.samples, facts.tokens)
    counts = [np.bincount(facts.bucket, weights=w, minlength=num_buckets) for w in weights]
    return np.array(counts, dtype=np.int64)


def distance(counts: IntArray, shares_of_plan: FloatArray) -> float:
    """Total variation between the mix of `counts` [buckets] and the plan's: 0 the same, 1 disjoint."""
    return float(np.abs(counts / counts.sum() - shares_of_plan).sum() / 2)


def shares(counts: IntArray, *, suffix: str = "") -> dict[str, float]:
    """Percent of batches, samples and tokens per bucket, named as charts name them."""
    values = {}
    for name, row in zip(NAMES, counts, strict=True):
        kind = "" if name == "batches" else f"_{name}"
        for bucket, count in enumerate(row):
            values[f"batch/bucket_{bucket}{kind}_pct{suffix}"] = 100.0 * int(count) / max(1, int(row.sum()))
    return values


@dataclass
class BucketCounts:
    """Recent steps one by one, the run's total, and the sizes since the last log."""

    num_buckets: int
    window_steps: int
    recent: list[list[list[int]]] = field(default_factory=list)
    total: list[list[int]] = field(default_factory=list)
    since_log: dict[str, int] = field(default_factory=dict)
    distance: float = 0.0
    """Sum over the steps since the last log of their distance to the plan's mix."""
    steps: int = 0
    """Since the last log."""

    def add(self, facts: WindowFacts, shares_of_plan: FloatArray) -> None:
        """Count one optimizer step; `shares_of_plan` [buckets]: of all batches of its epoch."""
        counts = by_bucket(facts, self.num_buckets)
        self.recent = [*self.recent, counts.tolist()][-self.window_steps :]
        self.total = (counts + np.array(self.total, np.int64)).tolist() if self.total else counts.tolist()
        self.distance += distance(counts[0], shares_of_plan)
        self.steps += 1
        sums = {
            "batches": len(facts.bucket),
            "samples": int(facts.samples.sum()),
            "tokens": int(facts.tokens.sum()),
            "padded": int(facts.padded_tokens.sum()),
        }
        self.since_log = {
            **{name: self.since_log.get(name, 0) + value for name, value in sums.items()},
            "longest": max(self.since_log.get("longest", 0), int(facts.longest.max(initial=0))),
        }

    def take(self) -> dict[str, float]:
        """All values to log now; the sizes start anew."""
        sizes, self.since_log = self.since_log, {}
        apart, self.distance, self.steps = self.distance / self.steps, 0.0, 0
        return {
            **shares(np.array(self.recent, np.int64).sum(axis=0)),
            **shares(np.array(self.total, np.int64), suffix="_total"),
            "batch/avg_seq_len": sizes["tokens"] / sizes["samples"],
            "batch/max_seq_len": float(sizes["longest"]),
            "batch/batch_size": sizes["samples"] / sizes["batches"],
            "batch/padding_efficiency": sizes["tokens"] / sizes["padded"],
            "batch/mix_distance": apart,
        }

    def state_dict(self) -> dict[str, Any]:
        names = ("recent", "total", "since_log", "distance", "steps")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
