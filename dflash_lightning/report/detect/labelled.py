"""Losses of single batches whose bucket or length is known.

in    Run
out   Labelled, or None where the log ties no loss to a length
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.report.detect.curve import movement
from dflash_lightning.report.detect.length_groups import length_groups
from dflash_lightning.report.run import FloatArray, IntArray, Run


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """m single batches in the order of training."""

    steps: FloatArray
    """[m] optimizer step."""
    loss: FloatArray
    """[m]"""
    weight: FloatArray
    """[m] weight in its window."""
    group: IntArray
    """[m] index into names."""
    names: tuple[str, ...]
    """What each group is called: "bucket 3", "1,216-1,728 tokens"."""
    time: FloatArray
    """[m] unix seconds, NaN where unknown."""

    def covered_share(self) -> float:
        """Steps that have a value / steps between the first and the last."""
        return len(np.unique(self.steps)) / float(self.steps[-1] - self.steps[0] + 1)


def labelled(run: Run) -> Labelled | None:
    """The micro log where there is one, else logged values that have a bucket or a length beside them."""
    micro = run.micro
    if micro is not None:
        bucket = micro.bucket.astype(np.float64) if micro.has_buckets else None
        return _labelled(
            micro.step.astype(np.float64), micro.loss, bucket, micro.seq_len, micro.weight, micro.time
        )
    for prefix, loss in (("", run.loss), ("micro/", run.column("micro/loss"))):
        bucket, length = run.column(f"{prefix}bucket"), run.column(f"{prefix}seq_len")
        found = _labelled(run.steps, loss, bucket, length, np.ones(len(loss)), run.times)
        if found is not None:
            return found
    return None


def _labelled(
    steps: FloatArray,
    loss: FloatArray,
    bucket: FloatArray | None,
    length: FloatArray,
    weight: FloatArray,
    time: FloatArray,
) -> Labelled | None:
    label = length if bucket is None or not np.isfinite(bucket).any() else bucket
    kept = np.isfinite(loss) & np.isfinite(label)
    if not kept.any():
        return None
    if label is bucket:
        group, names = _bucket_groups(label[kept])
    else:
        group, names = _length_groups(label[kept], loss[kept])
    return Labelled(
        steps=steps[kept],
        loss=loss[kept],
        weight=np.where(np.isfinite(weight[kept]), weight[kept], 0.0),
        group=group,
        names=names,
        time=time[kept],
    )


def _bucket_groups(bucket: FloatArray) -> tuple[IntArray, tuple[str, ...]]:
    values, group = np.unique(bucket, return_inverse=True)
    return group.astype(np.int64), tuple(f"bucket {value:.0f}" for value in values)


def _length_groups(length: FloatArray, loss: FloatArray) -> tuple[IntArray, tuple[str, ...]]:
    group = length_groups(length, movement(loss))
    parts = (length[group == i] for i in range(int(group.max()) + 1))
    return group, tuple(_span(part.min(), part.max()) for part in parts)


def _span(low: float, high: float) -> str:
    return f"{low:,.0f} tokens" if low == high else f"{low:,.0f}-{high:,.0f} tokens"
