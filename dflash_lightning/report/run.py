"""What was logged of one run, whatever wrote it: arrays over the steps of training.

in    made by report/read.py
out   Run, MicroLog
law   steps never fall; values[name] has one entry per step, NaN where that name was not logged there
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LOSS = "train/loss"
"""The curve that is judged, under this name whatever the trainer called it."""
UNKNOWN_BUCKET = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class MicroLog:
    """Single micro-batches, ordered by step; all arrays [m]."""

    step: IntArray
    """Optimizer step (`train/step`) whose window the micro-batch belongs to."""
    loss: FloatArray
    """Mean loss of the micro-batch."""
    bucket: IntArray
    """Bucket, UNKNOWN_BUCKET where it was not written."""
    seq_len: FloatArray
    """Padded tokens of a row, NaN where it was not written."""
    weight: FloatArray
    """Weight of the micro-batch in its window's loss; 1 where it was not written."""
    rank: IntArray
    time: FloatArray
    """Unix seconds, NaN where it was not written."""

    def __len__(self) -> int:
        return len(self.step)

    @property
    def has_buckets(self) -> bool:
        return len(self) > 0 and bool((self.bucket != UNKNOWN_BUCKET).all())


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One run's log: n rows of training values, v rows of validation values."""

    name: str
    path: str
    steps: FloatArray
    """[n] `train/step` of each row: optimizer steps finished, from 1."""
    values: Mapping[str, FloatArray]
    """name -> [n]; NaN where the name was not logged in that row. Holds `train/loss`."""
    times: FloatArray
    """[n] unix seconds, NaN where unknown."""
    val_steps: FloatArray
    """[v] optimizer steps finished before each validation."""
    validation: Mapping[str, FloatArray]
    """name (`val/...`) -> [v]."""
    micro: MicroLog | None = None
    """Single micro-batches, where they were written."""
    skipped: list[dict[str, Any]] = field(default_factory=list)
    """Lines of skipped_steps.jsonl: optimizer steps without a finite gradient."""
    non_finite: list[int] = field(default_factory=list)
    """Steps whose loss or gradient norm was logged as NaN or infinite."""
    complete: bool = True
    """False where the log breaks off in the middle of a line."""
    notes: list[str] = field(default_factory=list)
    """What could not be read, or was joined, in words."""
    log: Path | None = None
    """The newest of its files: the run's config lies beside it."""

    @property
    def loss(self) -> FloatArray:
        """[n] the logged loss."""
        return self.values[LOSS]

    @property
    def num_buckets(self) -> int:
        """Buckets i with a column `loss/bucket_{i}` or `batch/bucket_{i}_pct`, or in the micro log."""
        count = 0
        while f"loss/bucket_{count}" in self.values or f"batch/bucket_{count}_pct" in self.values:
            count += 1
        if count == 0 and self.micro is not None and self.micro.has_buckets:
            count = int(self.micro.bucket.max()) + 1
        return count

    def column(self, name: str) -> FloatArray:
        """[n] values of `name`, all NaN where it was never logged."""
        return self.values.get(name, np.full(len(self.steps), np.nan))
