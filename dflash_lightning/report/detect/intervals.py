"""How long training took from one logged step to the next, and how much of it storage took.

in    Run
out   Intervals, StorageWaits; None where the log holds no times
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.report.run import FloatArray, IntArray, MicroLog, Run

KNOWN = 0.8
"""Times of at least this share of the rows are enough."""
STALL = 1.0
"""An interval is a stall if it lasts longer than usual by this many usual ones,"""
STALL_SCORE = 6.0
"""and by this many robust deviations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """n intervals; the i-th ends with steps[i]."""

    steps: FloatArray
    seconds: FloatArray
    count: FloatArray
    """Optimizer steps in each."""

    def usual(self) -> FloatArray:
        """[n] what the interval's steps usually take."""
        return self.count * float(np.median(self.seconds / self.count))


@dataclass(frozen=True, kw_only=True, eq=False)
class StorageWaits:
    """Seconds that storage held training up, by logged row."""

    steps: FloatArray
    seconds: FloatArray
    total_s: float
    """Seconds of all rows, waiting or not."""


def intervals(run: Run) -> Intervals | None:
    """From single batches where they were logged, else from the rows' times, else from seconds per step."""
    if run.micro is not None and len(run.micro) and np.isfinite(run.micro.time).all():
        steps, last = _last_times(run.micro)
        if len(steps) > len(run.steps) * KNOWN and _spans(run, steps):
            return _between(steps, last)
    there = np.isfinite(run.times)
    if there.sum() > max(2, KNOWN * len(run.times)):
        return _between(run.steps[there], run.times[there])
    seconds = run.column("throughput/step_s")
    there = np.isfinite(seconds)
    if there.sum() < 2:
        return None
    count = np.diff(run.steps[there], prepend=0.0)
    count[0] = np.median(count[1:])  # the log may begin in the middle of a run
    return Intervals(steps=run.steps[there], seconds=seconds[there] * count, count=count)


def _spans(run: Run, steps: FloatArray) -> bool:
    """Not only a part of the run, as where single batches were logged for a while."""
    whole = max(run.steps[-1], steps[-1]) - min(run.steps[0], steps[0])
    return bool(steps[-1] - steps[0] >= KNOWN * whole)


def _last_times(micro: MicroLog) -> tuple[FloatArray, FloatArray]:
    steps, place = np.unique(micro.step, return_inverse=True)
    last = np.full(len(steps), -np.inf)
    np.maximum.at(last, place, micro.time)
    return steps.astype(np.float64), last


def _between(steps: FloatArray, times: FloatArray) -> Intervals | None:
    if len(steps) < 3:
        return None
    return Intervals(steps=steps[1:], seconds=np.maximum(np.diff(times), 0.0), count=np.diff(steps))


def stalls(found: Intervals) -> IntArray:
    """Indices of the intervals that took at least twice as long as their steps usually do."""
    excess = found.seconds - found.usual()
    typical = float(np.median(found.usual()))
    spread = 1.4826 * float(np.median(np.abs(excess - np.median(excess))))
    return np.flatnonzero(excess > max(STALL * typical, STALL_SCORE * spread))


def storage_waits(run: Run) -> StorageWaits | None:
    """By `checkpoint/blocked_s`, else by `time/storage_pct`; None where neither was logged."""
    rows = run.column("throughput/step_s")
    count = np.diff(run.steps, prepend=0.0)
    count[:1] = np.median(count[1:]) if len(count) > 1 else 1.0
    durations = rows * count
    if not np.isfinite(durations).any():
        durations = np.diff(run.times, prepend=np.nan)
    blocked = run.column("checkpoint/blocked_s")
    if not np.isfinite(blocked).any():
        blocked = run.column("time/storage_pct") / 100 * durations
    there = np.isfinite(blocked) & np.isfinite(durations)
    if not there.any():
        return None
    return StorageWaits(steps=run.steps[there], seconds=blocked[there], total_s=float(np.nansum(durations)))
