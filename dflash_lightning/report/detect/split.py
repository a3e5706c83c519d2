"""How much of a curve's movement is which bucket its batches came from.

in    losses with a group each, or a window curve with the loss of each group per window
out   Split: the movement, the part of it that the mix does not explain, and the levels of the groups
law   movement = mix + residual, value by value
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dflash_lightning.report.detect.curve import jitter, movement, trend
from dflash_lightning.report.detect.labelled import Labelled
from dflash_lightning.report.run import FloatArray, Run

BoolArray = npt.NDArray[np.bool_]

FEWEST_OF_GROUP = 16
"""A group with fewer values gets the trend of all, moved to its own level."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """A curve of n values taken apart."""

    movement: FloatArray
    """[n] the curve without its falling trend."""
    residual: FloatArray
    """[n] what is left when each group's own trend is taken off too."""
    levels: FloatArray
    """[K] median loss of each group over the second half."""
    names: tuple[str, ...]
    """[K] what the groups are called."""

    @property
    def mix_share(self) -> float:
        """Share of the variance from one value to the next that goes with the mix, 0 to 1.

        Differences, so that a single rise or a slow drift does not count as movement.
        """
        steps, mix = np.diff(self.movement), np.diff(self.movement - self.residual)
        total = float(steps @ steps)
        return float(np.clip(mix @ steps / total, 0.0, 1.0)) if total > 0 else 0.0

    @property
    def jitter(self) -> float:
        """Standard deviation of a value as logged, from the differences between neighbours."""
        return jitter(self.movement)

    @property
    def jitter_within(self) -> float:
        """The same without the mix."""
        return jitter(self.residual)


def split_batches(batches: Labelled) -> Split:
    """Single batches: each against the trend of its own group."""
    residual = _own_residuals(batches)
    late = np.arange(len(batches.loss)) >= len(batches.loss) // 2
    return Split(
        movement=movement(batches.loss),
        residual=residual,
        levels=np.array([_median(batches.loss, batches.group == g, late) for g in range(len(batches.names))]),
        names=batches.names,
    )


def _own_residuals(batches: Labelled) -> FloatArray:
    residual = np.empty(len(batches.loss))
    common = trend(batches.loss)
    for group in range(len(batches.names)):
        mine = batches.group == group
        loss = batches.loss[mine]
        rest = loss - (trend(loss) if len(loss) >= FEWEST_OF_GROUP else common[mine])
        residual[mine] = rest - np.median(rest)
    return residual


def _median(values: FloatArray, mine: BoolArray, late: BoolArray) -> float:
    both = mine & late
    return float(np.median(values[both if both.any() else mine]))


def split_windows(run: Run) -> Split | None:
    """Windows, by `loss/bucket_{i}` beside `train/loss`; None where fewer than two buckets were logged.

    The residual of a window is the mean over its buckets of their distance to their own trends, weighted by
    the run's mix: what the curve would do if every window had the same mix.
    """
    kept = np.isfinite(run.loss)
    present = [i for i in range(run.num_buckets) if np.isfinite(run.column(f"loss/bucket_{i}")[kept]).any()]
    if len(present) < 2:
        return None
    columns = np.array([run.column(f"loss/bucket_{i}")[kept] for i in present])
    distance = np.array([_distance(column) for column in columns])
    weights = np.array([_share(run, i) for i in present])[:, None] * np.isfinite(distance)
    total = weights.sum(axis=0)
    residual = np.where(total > 0, np.nansum(distance * weights, axis=0) / np.where(total > 0, total, 1), 0.0)
    half = columns[:, columns.shape[1] // 2 :]
    return Split(
        movement=movement(run.loss[kept]),
        residual=residual,
        levels=np.array([_level(late, column) for late, column in zip(half, columns, strict=True)]),
        names=tuple(f"bucket {i}" for i in present),
    )


def _distance(column: FloatArray) -> FloatArray:
    """A bucket's losses without their own trend; NaN where the bucket was absent."""
    there = np.isfinite(column)
    distance = np.full(len(column), np.nan)
    distance[there] = movement(column[there])
    return distance


def _share(run: Run, bucket: int) -> float:
    """A bucket's share of the loss over the run; equal shares where no mix was logged."""
    for name in (f"batch/bucket_{bucket}_tokens_pct", f"batch/bucket_{bucket}_pct"):
        values = run.column(name)
        if np.isfinite(values).any():
            return max(float(np.nanmean(values)), 1e-9)
    return 1.0


def _level(late: FloatArray, whole: FloatArray) -> float:
    return float(np.nanmedian(late if np.isfinite(late).any() else whole))
